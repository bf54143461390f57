"""Workspace settings. One blueprint; the modules beside this one add their routes to it."""

from flask import Blueprint

bp = Blueprint("settings", __name__, url_prefix="/admin/settings")
