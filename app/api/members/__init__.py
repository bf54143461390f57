"""Routes for members and their browsers: feedback, reactions, conversations, responses."""

from flask import Blueprint

bp = Blueprint("api_members", __name__)
