"""Feedback: the queue. What was said, the moment it is about, and what became of it."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID

from flask import Blueprint, Flask, g, request, url_for
from werkzeug.wrappers import Response

from app.access import access
from app.db import transaction
from app.errors import Invalid, Refused
from app.models.feedback import ORIGINS, RATINGS, SIGNALS, SOURCES, STATUSES
from app.services import feedback
from app.services.filters import FeedbackFilters
from app.views import filters as listing
from app.views.agent_review import agent_menu, as_id
from app.views.htmx import Toast, page, swap
from app.views.moments import read_moment
from app.views.said import said
from app.views.shell import own_path

DONE = {"reviewed": "Reviewed", "applied": "Applied", "dismissed": "Dismissed", "reopen": "Reopened"}

bp = Blueprint("feedback", __name__, url_prefix="/admin/agent-review/feedback")


@bp.get("")
@access("admin")
def index() -> Any:
    """The feedback of the workspace, newest first."""
    return page("feedback/index.html", "feedback/_list.html", **_listed())


def _listed(given: dict[str, str] | None = None) -> dict[str, Any]:
    asked = listing.read(FeedbackFilters, given)
    found = feedback.list_feedback(asked.filters, asked.page, actor=g.actor)
    fields = [
        listing.choices("status", STATUSES),
        listing.choices("source_type", SOURCES, "source"),
        listing.choices("rating", RATINGS),
        listing.choices("signal", SIGNALS),
        listing.choices("origin", ORIGINS),
        agent_menu(),
        *listing.DAYS,
    ]
    return {
        "rows": found.items,
        "found": found,
        "asked": asked,
        "fields": fields,
        "said": said,
        **listing.neighbours(found),
    }


@bp.get("/<uuid:feedback_id>")
@access("admin")
def detail(feedback_id: UUID) -> Response:
    """One row with its moment. That an admin read what somebody said is noted."""
    with transaction():
        found = feedback.get_feedback(feedback_id, actor=g.actor, audit_read=True)
    return page("feedback/detail.html", "feedback/_panel.html", **read_moment(found))


@bp.post("/<uuid:feedback_id>/review")
@access("admin")
def review(feedback_id: UUID) -> Any:
    """Decide about one row, or take the decision back."""
    action = request.form.get("action", "")
    status, toast = 200, _toast(action, [feedback_id], 1, url_for(".review", feedback_id=feedback_id))
    try:
        with transaction():
            feedback.review([feedback_id], action, actor=g.actor, notes=_notes())
    except Refused as refusal:
        status, toast = 409, Toast(refusal.detail, "error")
    found = feedback.get_feedback(feedback_id, actor=g.actor)
    back = url_for(".detail", feedback_id=feedback_id)
    return swap("feedback/_moved.html", fallback=back, status=status, toasts=[toast], **read_moment(found))


@bp.post("/review")
@access("admin")
def review_many() -> Any:
    """Decide about several rows at once, all or none of them, and give the list back."""
    action = request.form.get("action", "")
    ids = _ids()
    try:
        with transaction():
            moved = feedback.review(ids, action, actor=g.actor, notes=_notes()) if len(ids) > 1 else _one(ids, action)
        toast = _toast(action, ids, moved, url_for(".review_many"))
    except Refused as refusal:
        toast = Toast(refusal.detail, "error")
    back = own_path()
    if urlsplit(back).path != url_for(".index"):
        back = url_for(".index")
    given = dict(parse_qsl(urlsplit(back).query))
    return swap("feedback/_list_moved.html", fallback=back, toasts=[toast], **_listed(given))


def _one(ids: list[UUID], action: str) -> int:
    if not ids:
        raise Invalid("Select at least one row first.")
    return feedback.review(ids, action, actor=g.actor, notes=_notes())


def _notes() -> str | None:
    return request.form.get("notes", "").strip() or None


def _ids() -> list[UUID]:
    """The ticked rows. The same rows come back as one field when they are undone."""
    texts = [part for value in request.form.getlist("ids") for part in value.split(",")]
    found = [as_id(text) for text in texts]
    if None in found:
        raise Invalid("One of these ids is no id; load the page again.")
    return [value for value in found if value is not None]


def _toast(action: str, ids: list[UUID], moved: int, undo: str) -> Toast:
    """What was done, with the way back. Rows that could not move are said, not hidden."""
    word = DONE.get(action, "Done")
    text = f"{word}." if len(ids) == 1 else f"{word} {moved} of {len(ids)}." if moved < len(ids) else f"{word} {moved}."
    if action == "reopen" or not moved:
        return Toast(text, "success" if moved else "info")
    if len(ids) == 1:
        return Toast(text, undo=undo, target="#toasts", fields=(("action", "reopen"),))
    fields = (("action", "reopen"), ("ids", ",".join(map(str, ids))), ("next", own_path()))
    return Toast(text, undo=undo, target="#list", fields=fields)


def register(app: Flask) -> None:
    app.register_blueprint(bp)
