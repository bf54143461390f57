"""What members and their browsers use: feedback, reactions, conversations, responses."""

from flask import Blueprint

bp = Blueprint("api_members", __name__)
