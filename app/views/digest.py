"""The weekly digest for admins."""

from typing import Any

from flask import Blueprint, current_app, g, request

from app.errors import Invalid
from app.security.access import access
from app.security.cookies import cookie_name
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
    found = digest.load_digest(wanted, actor=g.actor)
    answer = render("digest/index.html", digest=found)
    safe = {"secure": current_app.config["SECURE"], "httponly": True, "samesite": "Lax"}
    answer.set_cookie(_cookie(), "1", expires=found.until, **safe)
    return answer


def is_unread() -> bool:
    """Whether this browser has not opened the digest since the newest week ended: its cookie lasts until then."""
    return _cookie() not in request.cookies


def _cookie() -> str:
    return cookie_name(f"upshot_digest_{g.actor.tenant_id.hex}")
