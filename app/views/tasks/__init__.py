"""Scheduled work and current runs."""

from flask import Blueprint

bp = Blueprint("tasks", __name__)
