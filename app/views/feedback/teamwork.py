"""Working on feedback together: several rows at once, who takes what, comments, and what admins think of an answer."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID

from flask import g, request, url_for

from app.db import transaction
from app.errors import Invalid, Refused
from app.formats.ids import parse_id
from app.security.access import access
from app.services.feedback import lists as feedback_lists
from app.services.feedback import review as feedback_review
from app.services.feedback import teamwork
from app.views.feedback import bp
from app.views.feedback.pages import DONE, listed, notes
from app.views.feedback.sidebar import assessment_fields, load_sidebar, posted_assessment
from app.views.forms import selected_ids
from app.views.htmx import Toast, swap, wants_fragment
from app.views.layout.shell import own_path

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
    return swap("feedback/_list_moved.html", fallback=back, toasts=[toast], **listed(given))


def _decide_many(action: str) -> Toast:
    ids = selected_ids(NONE_SELECTED)
    moved = feedback_review.review(ids, action, actor=g.actor, notes=notes())
    undo = () if action == "reopen" else (("action", "reopen"), ("ids", ",".join(map(str, moved))))
    return _toast_of(DONE.get(action, "Done"), len(moved), len(ids), undo)


def _assign_many(action: str) -> Toast:
    if action == "return":
        moved = teamwork.give_back(_before(), actor=g.actor)
        return Toast(f"Assigned {moved} as before.")
    ids, taker = selected_ids(NONE_SELECTED), g.actor.id if action == "take" else _taker()
    before = teamwork.assign(ids, taker, actor=g.actor)
    pairs = ",".join(f"{row}:{had or ''}" for row, had in before.items())
    word = "Given back" if taker is None else "Took" if taker == g.actor.id else "Assigned"
    return _toast_of(word, len(before), len(ids), (("action", "return"), ("before", pairs)))


def _toast_of(word: str, moved: int, asked: int, undo: tuple[tuple[str, str], ...]) -> Toast:
    """Name also how many rows could not move."""
    text = f"{word} {moved} of {asked}." if moved < asked else f"{word} {moved}."
    if not moved:
        return Toast(text, "info")
    if not undo or (moved > MAX_IN_COOKIE and not wants_fragment()):
        return Toast(text)
    return Toast(text, undo=url_for(".review_many"), target="#list", fields=(*undo, ("next", own_path())))


def _before() -> dict[UUID, UUID | None]:
    pairs = [pair.partition(":") for pair in request.form.get("before", "").split(",") if pair]
    return {_read_id(row): _read_id(had) if had else None for row, _, had in pairs}


def _read_id(text: str) -> UUID:
    found = parse_id(text)
    if found is None:
        raise Invalid("One of these ids is no id; load the page again.")
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
    text = "Given back." if taker is None else "Yours now." if taker == g.actor.id else f"Assigned to {names[taker]}."
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
            said = teamwork.add_comment(feedback_id, body, actor=g.actor)
    except Invalid as refusal:
        more = {"comment_error": refusal.detail, "comment_text": body[: teamwork.MAX_COMMENT_LENGTH + 100]}
        return _changed(feedback_id, "feedback/_comments_changed.html", Toast(refusal.detail, "error"), 422, **more)
    undo = url_for(".delete_comment", feedback_id=feedback_id, comment_id=said)
    added = Toast("Comment added.", undo=undo, target="#toasts")
    return _changed(feedback_id, "feedback/_comments_changed.html", added)


@bp.post("/admin/agent-review/feedback/<uuid:feedback_id>/comments/<uuid:comment_id>/delete")
@access("admin")
def delete_comment(feedback_id: UUID, comment_id: UUID) -> Any:
    """Take back what one said oneself."""
    with transaction():
        body = teamwork.delete_comment(feedback_id, comment_id, actor=g.actor)
    toast = Toast("Comment deleted.")
    if wants_fragment() or len(body) < 1000:
        undo = url_for(".comment", feedback_id=feedback_id)
        toast = Toast("Comment deleted.", undo=undo, target="#toasts", fields=(("body", body),))
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
        toast = Toast("The assessment was not saved: a score is a whole number from 0 to 100.", "error")
        more = {"assessment": given, "assessment_errors": errors}
        return _changed(feedback_id, "feedback/_assessed.html", toast, 422, **more)
    undo = url_for(".assess", feedback_id=feedback_id)
    toast = Toast("Assessed.", undo=undo, target="#toasts", fields=assessment_fields(before))
    return _changed(feedback_id, "feedback/_assessed.html", toast)


def _changed(feedback_id: UUID, template: str, toast: Toast, status: int = 200, **more: Any) -> Any:
    found = feedback_lists.get_feedback(feedback_id, actor=g.actor)
    back = url_for(".detail", feedback_id=feedback_id)
    return swap(template, fallback=back, status=status, toasts=[toast], **{**load_sidebar(found), **more})
