"""Evals: the golden sessions of the workspace, by set."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flask import Blueprint, Flask, g, redirect, url_for

from app.access import access
from app.errors import NotFound
from app.models.sessions import SESSION_TYPES
from app.services import golden, sessions
from app.services.filters import SessionFilters
from app.views import filters as listing
from app.views.agent_review import agent_menu
from app.views.htmx import page, wants_fragment
from app.views.session_pages import read_session

bp = Blueprint("evals", __name__, url_prefix="/admin/agent-review/evals")


@bp.get("")
@access("admin")
def index() -> Any:
    """The golden sessions, newest first; a set can be chosen."""
    asked = listing.read(SessionFilters, golden="yes")
    found = sessions.list_sessions(asked.filters, asked.page, actor=g.actor)
    sets = golden.list_sets(actor=g.actor)
    fields = [
        listing.named("set", [(one.name, one.name) for one in sets]),
        agent_menu(),
        listing.choices("type", SESSION_TYPES),
        *listing.DAYS,
    ]
    return page(
        "evals/index.html",
        "evals/_list.html",
        rows=found.items,
        found=found,
        asked=asked,
        sets=sets,
        fields=fields,
        **listing.neighbours(found),
    )


@bp.get("/<uuid:session_id>")
@access("admin")
def detail(session_id: UUID) -> Any:
    """A golden session beside the list; its page is the session's own."""
    found = sessions.get_session(session_id, actor=g.actor)
    if found.session.golden_set is None:
        raise NotFound("This session is not golden.")
    if wants_fragment():
        return page("sessions/_panel.html", "sessions/_panel.html", **read_session(session_id))
    return redirect(url_for("sessions.detail", session_id=session_id), 303)


def register(app: Flask) -> None:
    app.register_blueprint(bp)
