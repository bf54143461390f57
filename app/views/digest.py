"""The weekly digest for admins."""

from typing import Any

from flask import Blueprint, g, request

from app.errors import Invalid
from app.security.access import access
from app.services.analytics import digest
from app.services.lists.filters import parse_day
from app.views.htmx import render

bp = Blueprint("digest", __name__)


@bp.get("/admin/agent-review/digest")
@access("admin")
def index() -> Any:
    """One week, and the weeks before it. A day that is none, or too long ago, shows the last week."""
    try:
        wanted = parse_day("week", request.args.get("week", ""))
    except Invalid:
        wanted = None
    return render("digest/index.html", digest=digest.load_digest(wanted, actor=g.actor))
