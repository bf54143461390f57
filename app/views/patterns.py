"""Patterns: feedback that complains about the same thing, decided together."""

from typing import Any
from uuid import UUID

from flask import Blueprint, g, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Invalid, NotFound, Refused
from app.formats.ids import parse_id
from app.security.access import access
from app.services.feedback import lists as feedback_lists
from app.services.review import pattern_figures, patterns
from app.services.review.pattern_decisions import MAX_DECIDED, decide_pattern
from app.services.review.pattern_figures import PatternFilters, PatternRow
from app.views import lists as listing
from app.views.htmx import Toast, leave, page, swap
from app.views.layout.columns import choose_columns

bp = Blueprint("patterns", __name__, url_prefix="/admin/agent-review/patterns")
PAGE_SIZE = 25
DONE = {"reviewed": "Reviewed", "applied": "Applied", "dismissed": "Dismissed", "reopen": "Reopened"}
# So many are taken back from the toast; its form carries their ids.
MAX_UNDONE = 200


@bp.get("")
@access("admin")
def index() -> Response:
    """Patterns, last seen first."""
    asked = listing.read_box(PatternFilters, rows=PAGE_SIZE)
    found = pattern_figures.list_patterns(asked.filters, asked.page, actor=g.actor)
    return page(
        "patterns/index.html",
        "patterns/_list.html",
        rows=found.items,
        found=found,
        asked=asked,
        columns=choose_columns("patterns", found.items),
        bars=draw_bars,
        **listing.pager_links(found),
    )


@bp.get("/<uuid:pattern_id>")
@access("admin")
def detail(pattern_id: UUID) -> Response:
    return page("patterns/detail.html", "patterns/_panel.html", **_detail_context(pattern_id))


def _detail_context(pattern_id: UUID) -> dict[str, Any]:
    row = pattern_figures.get_pattern(pattern_id, actor=g.actor)
    if row is None:
        raise NotFound("There is no such pattern in this workspace.")
    samples = pattern_figures.list_samples(pattern_id, actor=g.actor)
    return {"row": row, "samples": samples, "bars": draw_bars, "most": MAX_DECIDED}


@bp.post("/<uuid:pattern_id>/decide")
@access("admin")
def decide(pattern_id: UUID) -> Any:
    """Decide about the whole group, or take that back."""
    action, notes = request.form.get("action", ""), request.form.get("notes", "").strip() or None
    try:
        with transaction():
            moved = decide_pattern(pattern_id, action, actor=g.actor, notes=notes, only=_only(action))
        toast = _toast(pattern_id, action, moved)
        status = 200
    except (Refused, Invalid) as refusal:
        toast, status = Toast(refusal.detail, "error"), 422 if isinstance(refusal, Invalid) else 409
    back = url_for(".detail", pattern_id=pattern_id)
    return swap("patterns/_moved.html", fallback=back, status=status, toasts=[toast], **_detail_context(pattern_id))


def _only(action: str) -> list[UUID] | None:
    """Only what was just decided is taken back, never the whole group."""
    if action != "reopen":
        return None
    found = [parse_id(one) for one in request.form.get("ids", "").split(",")][:MAX_UNDONE]
    return [one for one in found if one is not None]


def _toast(pattern_id: UUID, action: str, moved: list[UUID]) -> Toast:
    text = f"{DONE[action]} {len(moved):,}." if moved else "All of it was already decided."
    if not moved or action == "reopen" or len(moved) > MAX_UNDONE:
        return Toast(text)
    fields = (("action", "reopen"), ("ids", ",".join(map(str, moved))))
    return Toast(text, undo=url_for(".decide", pattern_id=pattern_id), target="#toasts", fields=fields)


@bp.get("/of/<uuid:feedback_id>")
@access("admin")
def show_pattern_of(feedback_id: UUID) -> Response:
    """The pattern that a row is in; the row itself where it is in none."""
    found = patterns.patterns_of([feedback_id], actor=g.actor).get(feedback_id)
    if found is not None:
        return leave(url_for(".detail", pattern_id=found))
    feedback_lists.get_feedback(feedback_id, actor=g.actor)
    unknown = Toast("Not in a pattern yet. The next review groups it.", "info")
    return leave(url_for("feedback.detail", feedback_id=feedback_id), unknown)


def draw_bars(row: PatternRow) -> list[tuple[int, float]]:
    """A bar for each of the last weeks, as its place and its height."""
    peak = max(row.weeks, default=0)
    return [(place * 6, round(16 * number / peak, 1)) for place, number in enumerate(row.weeks) if number]
