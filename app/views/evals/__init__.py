"""Goldens, runs and diffs. One blueprint; the modules beside this one add their routes to it."""

from flask import Blueprint

bp = Blueprint("evals", __name__, url_prefix="/admin/agent-review/evals")
