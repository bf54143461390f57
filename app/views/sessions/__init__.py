"""Sessions. One blueprint; the modules beside this one add their routes to it."""

from flask import Blueprint

bp = Blueprint("sessions", __name__)
