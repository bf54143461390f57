"""Knowledge rows. One blueprint; the modules beside this one add their routes to it."""

from flask import Blueprint

bp = Blueprint("knowledge", __name__, url_prefix="/admin/agent-review/knowledge")
