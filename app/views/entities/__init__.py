"""Records that agents work on. One blueprint; the modules beside this one add their routes to it."""

from flask import Blueprint

bp = Blueprint("entities", __name__, url_prefix="/entities")
