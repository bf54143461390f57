"""What admins and their scripts use: evals, knowledge, settings."""

from flask import Blueprint

bp = Blueprint("api_admin", __name__)
