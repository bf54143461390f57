"""Agents and their versions. One blueprint; the modules beside this one add their routes to it."""

from flask import Blueprint

bp = Blueprint("agents", __name__, url_prefix="/admin/agents")
