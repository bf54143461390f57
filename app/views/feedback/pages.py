"""Feedback: the queue. What was said, the moment it is about, and what became of it."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from flask import g, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Refused
from app.security.access import access
from app.services.feedback import lists as feedback_lists
from app.services.feedback import review as feedback_review
from app.services.feedback import teamwork
from app.services.feedback import volume as feedback_volume
from app.services.feedback.lists import FeedbackFilters, FeedbackRow
from app.views import lists as listing
from app.views.feedback import bp, volume_chart
from app.views.feedback.context import load_context
from app.views.feedback.sidebar import load_sidebar
from app.views.feedback.summary import summarise
from app.views.htmx import Toast, page, swap
from app.views.layout import saved_views

DONE = {"reviewed": "Reviewed", "applied": "Applied", "dismissed": "Dismissed", "reopen": "Reopened"}

OFFERED = (
    "status", "rating", "assignee", "agent", "version", "source_type", "signal", "kind", "origin", "error_category",
    "environment", "model", "tag",
)  # fmt: skip
# No menu offers these, but a link may ask for them; then they show as chips.
LINKED = ("session_id", "chat_id", "entity_id", "trace_id", "agent_id", "author_id")


@bp.get("/admin/agent-review/feedback")
@access("admin")
def index() -> Any:
    """The feedback of the workspace, newest first."""
    views = saved_views.load_views("feedback")
    return views.opening or page("feedback/index.html", "feedback/_list.html", views=views, **listed())


def listed(given: dict[str, str] | None = None) -> dict[str, Any]:
    """The list that the address asks for, or the query that was given."""
    volume = feedback_volume.volume(actor=g.actor)
    asked = listing.read_listing(FeedbackFilters, given)
    found = feedback_lists.list_feedback(asked.filters, asked.page, actor=g.actor)
    menus = teamwork.menus_of(asked.filters.author_id, actor=g.actor)
    return {
        "rows": found.items,
        "found": found,
        "asked": asked,
        "volume": volume_chart.draw_chart(volume, asked.filters.since, asked.filters.until),
        "fields": _fields(asked.args, menus),
        "colleagues": menus["admins"],
        "said": summarise,
        "looked_at": feedback_lists.SCAN_LIMIT,
        **listing.pager_links(found),
    }


def _fields(args: Mapping[str, str], menus: Mapping[str, list[tuple[str, str]]]) -> list[listing.Field]:
    """What the menu offers, and what only a link can ask for, which is a chip when it does."""
    admins = [(value, name) for value, name in menus["admins"] if value != str(g.actor.id)]
    options = {"assignee": [("me", "me"), ("nobody", "nobody"), *admins], "agent": menus["agents"]}
    offered = listing.offer(FeedbackFilters, *OFFERED, **options)
    chips = {name: [(args[name], args[name][-8:])] for name in LINKED if name in args}
    if "author_id" in chips:
        chips["author_id"] = menus["author"] or [(args["author_id"], "somebody")]
    return [*offered, *listing.DAYS, *listing.offer(FeedbackFilters, *chips, **chips)]


@bp.get("/admin/agent-review/feedback/<uuid:feedback_id>")
@access("admin")
def detail(feedback_id: UUID) -> Response:
    """Show one row with its context. Reading it is audited."""
    with transaction():
        found = feedback_lists.get_feedback(feedback_id, actor=g.actor, audit_read=True)
    return page("feedback/detail.html", "feedback/_panel.html", **_shown(found))


@bp.post("/admin/agent-review/feedback/<uuid:feedback_id>/review")
@access("admin")
def review(feedback_id: UUID) -> Any:
    """Decide about one row, or take the decision back."""
    action = request.form.get("action", "")
    status, refused = 200, ""
    try:
        with transaction():
            feedback_review.review([feedback_id], action, actor=g.actor, notes=notes())
    except Refused as refusal:
        status, refused = 409, refusal.detail
    found = feedback_lists.get_feedback(feedback_id, actor=g.actor)
    toast = Toast(refused, "error") if refused else _toast(action, found)
    back = url_for(".detail", feedback_id=feedback_id)
    return swap("feedback/_moved.html", fallback=back, status=status, toasts=[toast], **_shown(found))


def _shown(row: FeedbackRow) -> dict[str, Any]:
    return {**load_context(row), **load_sidebar(row)}


def notes() -> str | None:
    return request.form.get("notes", "").strip() or None


def _toast(action: str, row: FeedbackRow) -> Toast:
    """What was done with which row, since the next one is open by now, and the way back."""
    line = summarise(row).line
    text = f"{DONE.get(action, 'Done')}: {line[:60].rstrip()}{'…' if len(line) > 60 else ''}"
    if action == "reopen":
        return Toast(text)
    undo = url_for(".review", feedback_id=row.id)
    return Toast(text, undo=undo, target="#toasts", fields=(("action", "reopen"),))
