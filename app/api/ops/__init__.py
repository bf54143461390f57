"""What operators and tools use: health, metrics, the description of the API."""

from flask import Blueprint

bp = Blueprint("api_ops", __name__)
