"""Drafts of agents and entity types. One blueprint; the module beside this one adds its routes to it."""

from flask import Blueprint

bp = Blueprint("drafts", __name__, url_prefix="/admin/agent-review/drafts")
