"""Routes for agents: sessions, events, imports, context, MCP."""

from flask import Blueprint

bp = Blueprint("api_agents", __name__)
