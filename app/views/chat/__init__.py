"""Conversations with agents. One blueprint; the modules beside this one add their routes to it."""

from flask import Blueprint

bp = Blueprint("chat", __name__, url_prefix="/chat")
