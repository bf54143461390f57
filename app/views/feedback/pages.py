"""Feedback: the queue. What was said, the moment it is about, and what became of it."""

from collections.abc import Collection, Iterable
from datetime import date
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID

from flask import g, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Invalid, Refused
from app.formats.ids import parse_id
from app.security.access import access
from app.services.feedback import failures as feedback_failures
from app.services.feedback import lists as feedback_lists
from app.services.feedback import review as feedback_review
from app.services.feedback import teamwork
from app.services.feedback import volume as feedback_volume
from app.services.feedback.failures import FailureGroup
from app.services.feedback.lists import FeedbackFilters, FeedbackRow
from app.services.feedback.volume import Day
from app.views import digest
from app.views import lists as listing
from app.views.feedback import bp
from app.views.feedback.context import assessment_fields, load_context, load_sidebar, posted_assessment
from app.views.feedback.summary import group_title, summarise
from app.views.forms import selected_ids
from app.views.htmx import Toast, page, swap, wants_fragment
from app.views.layout import saved_views
from app.views.layout.columns import choose_columns
from app.views.layout.shell import own_path

# The filters whose values stand in the cells of a row.
CELLS = ("rating", "source_type", "agent", "author_id", "origin", "assignee")
DONE = {"reviewed": "Reviewed", "applied": "Applied", "dismissed": "Dismissed", "reopen": "Reopened"}


@bp.get("/admin/agent-review/feedback")
@access("admin")
def index() -> Any:
    """The feedback of the workspace, newest first."""
    views = saved_views.load_views("feedback")
    return views.opening or page(
        "feedback/index.html", "feedback/_list.html", views=views, digest_unread=digest.is_unread(), **list_context()
    )


def list_context(given: dict[str, str] | None = None) -> dict[str, Any]:
    """The list that the address asks for, or the query that was given."""
    volume = feedback_volume.volume(actor=g.actor)
    asked = listing.read_box(FeedbackFilters, given, menus=("admins",))
    found, groups = feedback_failures.list_folded(asked.filters, asked.page, actor=g.actor)
    return {
        "rows": found.items,
        "groups": groups,
        "found": found,
        "asked": asked,
        "columns": choose_columns("feedback", found.items),
        "cells": CELLS,
        "volume": draw_chart(volume, asked.filters.since, asked.filters.until),
        "colleagues": asked.menus["admins"],
        "summary": summarise,
        "group_title": group_title,
        "looked_at": feedback_lists.SCAN_LIMIT,
        **listing.pager_links(found),
    }


@bp.get("/admin/agent-review/feedback/<uuid:feedback_id>")
@access("admin")
def detail(feedback_id: UUID) -> Response:
    """Show one row with its context. Reading it is audited."""
    ahead = request.headers.get("HX-Preloaded") == "true"
    with transaction():
        found = feedback_lists.get_feedback(feedback_id, actor=g.actor, audit_read=True, ahead=ahead)
    return page("feedback/detail.html", "feedback/_panel.html", **_detail_context(found))


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
    group = _group_on_page(found) if wants_fragment() else None
    alone = urlsplit(request.headers.get("HX-Current-URL", "")).path == back
    more = {"group": group, "group_title": group_title, "alone": alone, "only": row_links(), **_detail_context(found)}
    return swap("feedback/_moved.html", fallback=back, status=status, toasts=[toast], **more)


def _detail_context(row: FeedbackRow) -> dict[str, Any]:
    return {**load_context(row), **load_sidebar(row)}


def _group_on_page(row: FeedbackRow) -> FailureGroup | None:
    """What is left of the row's group as the list beside the panel shows it."""
    if row.kind != feedback_failures.KIND or row.eval_run_id is None:
        return None
    try:
        filters = listing.read_listing(FeedbackFilters, _list_args()).filters
    except Invalid:
        filters = FeedbackFilters()
    group = feedback_failures.group_of(row.eval_run_id, filters, actor=g.actor)
    return group or FailureGroup(row.eval_run_id)


def _list_args() -> dict[str, str]:
    """The query of the list beside the panel."""
    return dict(parse_qsl(urlsplit(request.headers.get("HX-Current-URL", "")).query))


def row_links() -> dict[str, str]:
    """The links of a row that is swapped alone."""
    args = {name: value for name, value in _list_args().items() if name not in listing.PAGE_ARGS}
    return listing.links_to(url_for(".index"), args, *CELLS)


def notes() -> str | None:
    return request.form.get("notes", "").strip() or None


def _toast(action: str, row: FeedbackRow) -> Toast:
    """What was done with which row, since the next one is open by now, and the way back."""
    line = summarise(row).line
    text = f"{DONE.get(action, 'Decided')} “{line[:60].rstrip()}{'…' if len(line) > 60 else ''}”."
    if action == "reopen":
        return Toast(text)
    undo = url_for(".review", feedback_id=row.id)
    return Toast(text, undo=undo, target="#toasts", row=f"feedback-{row.id}", fields=(("action", "reopen"),))


# Working on feedback together: several rows at once, who takes what, comments, and what admins think of an answer

# Without a script a toast waits in a cookie, which holds 4 KB.
MAX_IN_COOKIE = 40
NONE_SELECTED = "Select at least one row first."


@bp.post("/admin/agent-review/feedback/review")
@access("admin")
def review_many() -> Any:
    """Decide about several rows at once, all or none of them, or hand them over, and give the list back."""
    action = request.form.get("action", "")
    try:
        with transaction():
            toast = _assign_many(action) if action in ("take", "assign", "return") else _decide_many(action)
    except Refused as refusal:
        toast = Toast(refusal.detail, "error")
    back = own_path()
    if urlsplit(back).path != url_for(".index"):
        back = url_for(".index")
    given = dict(parse_qsl(urlsplit(back).query))
    return swap("feedback/_list_moved.html", fallback=back, toasts=[toast], **list_context(given))


def _decide_many(action: str) -> Toast:
    ids = selected_ids(NONE_SELECTED)
    # Both menus of the bar have a note; the one that belongs to the action counts.
    note = request.form.get("done", "").strip() or None if action == "applied" else notes()
    moved = feedback_review.review(ids, action, actor=g.actor, notes=note)
    undo = () if action == "reopen" else (("action", "reopen"), ("ids", ",".join(map(str, moved))))
    return _toast_of(DONE.get(action, "Decided"), moved, len(ids), undo)


def _assign_many(action: str) -> Toast:
    if action == "return":
        moved = teamwork.give_back(_before(), actor=g.actor)
        return Toast(f"Restored {moved} assignment{'' if moved == 1 else 's'}.")
    ids, taker = selected_ids(NONE_SELECTED), g.actor.id if action == "take" else _taker()
    before = teamwork.assign(ids, taker, actor=g.actor)
    pairs = ",".join(f"{row}:{had or ''}" for row, had in before.items())
    word = "Unassigned" if taker is None else "Assigned"
    return _toast_of(word, before, len(ids), (("action", "return"), ("before", pairs)))


def _toast_of(word: str, moved: Collection[UUID], asked: int, undo: tuple[tuple[str, str], ...]) -> Toast:
    """Name also how many rows could not move."""
    text = f"{word} {len(moved)} of {asked}." if len(moved) < asked else f"{word} {len(moved)}."
    if not moved:
        return Toast(text, "info")
    if not undo or (len(moved) > MAX_IN_COOKIE and not wants_fragment()):
        return Toast(text)
    row, fields = f"feedback-{next(iter(moved))}", (*undo, ("next", own_path()))
    return Toast(text, undo=url_for(".review_many"), target="#list", row=row, fields=fields)


def _before() -> dict[UUID, UUID | None]:
    pairs = [pair.partition(":") for pair in request.form.get("before", "").split(",") if pair]
    return {_read_id(row): _read_id(had) if had else None for row, _, had in pairs}


def _read_id(text: str) -> UUID:
    found = parse_id(text)
    if found is None:
        raise Invalid("One of these IDs isn’t valid. Reload the page.")
    return found


def _taker() -> UUID | None:
    text = request.form.get("assignee", "")
    actor_id: UUID = g.actor.id
    return actor_id if text == "me" else _read_id(text) if text else None


@bp.post("/admin/agent-review/feedback/<uuid:feedback_id>/assign")
@access("admin")
def assign(feedback_id: UUID) -> Any:
    """Assign a row to oneself or to another admin, or unassign it."""
    taker = _taker()
    with transaction():
        before = teamwork.assign([feedback_id], taker, actor=g.actor)
    names = {one.id: one.name for one in teamwork.colleagues(actor=g.actor)}
    whom = "you" if taker == g.actor.id else names.get(taker) if taker else None
    text = f"Assigned to {whom}." if whom else "Unassigned."
    toast = Toast(text)
    if feedback_id in before:
        fields = (("assignee", str(before[feedback_id] or "")),)
        toast = Toast(text, undo=url_for(".assign", feedback_id=feedback_id), target="#toasts", fields=fields)
    return _changed(feedback_id, "feedback/_sidebar_changed.html", toast)


@bp.post("/admin/agent-review/feedback/<uuid:feedback_id>/comments")
@access("admin")
def comment(feedback_id: UUID) -> Any:
    """Say something to the other admins."""
    body = request.form.get("body", "")
    try:
        with transaction():
            comment_id = teamwork.add_comment(feedback_id, body, actor=g.actor)
    except Invalid as refusal:
        more = {"comment_error": refusal.detail, "comment_text": body[: teamwork.MAX_COMMENT_LENGTH + 100]}
        return _changed(feedback_id, "feedback/_comments_changed.html", Toast(refusal.detail, "error"), 422, **more)
    undo = url_for(".delete_comment", feedback_id=feedback_id, comment_id=comment_id)
    added = Toast("Added the comment.", undo=undo, target="#toasts")
    return _changed(feedback_id, "feedback/_comments_changed.html", added)


@bp.post("/admin/agent-review/feedback/<uuid:feedback_id>/comments/<uuid:comment_id>/delete")
@access("admin")
def delete_comment(feedback_id: UUID, comment_id: UUID) -> Any:
    """Take back what one said oneself."""
    with transaction():
        body = teamwork.delete_comment(feedback_id, comment_id, actor=g.actor)
    toast = Toast("Deleted the comment.")
    if wants_fragment() or len(body) < 1000:
        undo = url_for(".comment", feedback_id=feedback_id)
        toast = Toast("Deleted the comment.", undo=undo, target="#toasts", fields=(("body", body),))
    return _changed(feedback_id, "feedback/_comments_changed.html", toast)


@bp.post("/admin/agent-review/feedback/<uuid:feedback_id>/assessment")
@access("admin")
def assess(feedback_id: UUID) -> Any:
    """Keep what an admin thinks of the answer."""
    given = posted_assessment()
    try:
        with transaction():
            before = teamwork.assess_feedback(feedback_id, given, actor=g.actor)
    except Invalid as refusal:
        errors = {name.split(".")[2] if name.count(".") > 1 else "": text for name, text in refusal.fields.items()}
        toast = Toast("Not saved. Enter scores from 0 to 100.", "error")
        more = {"assessment": given, "assessment_errors": errors}
        return _changed(feedback_id, "feedback/_assessed.html", toast, 422, **more)
    undo = url_for(".assess", feedback_id=feedback_id)
    toast = Toast("Assessed.", undo=undo, target="#toasts", fields=assessment_fields(before))
    return _changed(feedback_id, "feedback/_assessed.html", toast)


def _changed(feedback_id: UUID, template: str, toast: Toast, status: int = 200, **more: Any) -> Any:
    found = feedback_lists.get_feedback(feedback_id, actor=g.actor)
    back = url_for(".detail", feedback_id=feedback_id)
    shown = {"only": row_links(), **load_sidebar(found), **more}
    return swap(template, fallback=back, status=status, toasts=[toast], **shown)


# How much feedback came in each day

STEP = 10
BAR = 8
HEIGHT = 40
TALLEST = 36
# From the bottom up.
STACK = (("negative", "u-bneg"), ("positive", "u-bpos"), ("neutral", "u-bneu"))


def draw_chart(days: list[Day], since: date | None, until: date | None) -> dict[str, Any]:
    """Return the chart: `paths` are the bars of each rating, `chosen` is where the days of the filter begin and how
    wide they are."""
    peak = max(days, key=lambda day: day.total)
    return {
        "label": _label(days, peak),
        "span": f"{_short(days[0].day)} – {_short(days[-1].day)}",
        "days": days,
        "paths": [(css, _bars(days, place, peak.total)) for place, (_, css) in enumerate(STACK)],
        "chosen": _chosen(days, since, until),
        "width": STEP * len(days),
        "height": HEIGHT,
    }


def _bars(days: Iterable[Day], place: int, peak: int) -> str:
    """One rating's bars in one path, each standing on what is below it."""
    parts = []
    for index, day in enumerate(days):
        counts = [getattr(day, rating) for rating, _ in STACK]
        if counts[place]:
            low = HEIGHT - TALLEST * sum(counts[:place]) / peak
            high = TALLEST * counts[place] / peak
            parts.append(f"M{index * STEP + 1} {low:.1f}v-{high:.1f}h{BAR}v{high:.1f}z")
    return "".join(parts)


def _chosen(days: list[Day], since: date | None, until: date | None) -> tuple[int, int] | None:
    """The part that the list is narrowed to; None when it is not, or to days outside."""
    if since is None and until is None:
        return None
    inside = [i for i, day in enumerate(days) if (not since or day.day >= since) and (not until or day.day <= until)]
    return (inside[0] * STEP, len(inside) * STEP) if inside else None


def _label(days: list[Day], peak: Day) -> str:
    start = f"Feedback per day over the last {len(days)} days"
    if not peak.total:
        return f"{start}: none"
    return f"{start}: a peak of {peak.total:,} on {peak.day.day} {peak.day:%B}, {days[-1].total:,} today"


def _short(day: date) -> str:
    return f"{day.day} {day:%b}"
