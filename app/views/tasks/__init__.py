"""Scheduled work and current runs. One blueprint; the modules beside this one add their routes to it."""

from flask import Blueprint

bp = Blueprint("tasks", __name__)
