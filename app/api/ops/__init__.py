"""Routes for operators and tools: health, metrics, API documentation."""

from flask import Blueprint

bp = Blueprint("api_ops", __name__)
