"""Routes for admins and their scripts: evals, knowledge, settings."""

from functools import partial

from flask import Blueprint

from app.api.kit.route import route

bp = Blueprint("api_admin", __name__)
admin_route = partial(route, bp, access=("admin", "admin"))
