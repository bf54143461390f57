"""The feedback queue, and each person's own feedback. The modules of this package add their routes to one blueprint."""

from flask import Blueprint

bp = Blueprint("feedback", __name__)
