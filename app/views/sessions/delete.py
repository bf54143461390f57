"""Deleting several sessions: first what it would mean, then the deed."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID

from flask import g, request, url_for

from app.db import transaction
from app.errors import Invalid, Refused
from app.formats.ids import parse_id
from app.security.access import access
from app.services.sessions import delete as session_delete
from app.services.sessions.lists import SessionFilters
from app.views import lists as listing
from app.views.htmx import Toast, page, swap, toast_only, wants_fragment
from app.views.layout import saved_views
from app.views.layout.shell import own_path
from app.views.sessions import bp
from app.views.sessions.pages import listed


@bp.post("/admin/agent-review/sessions/delete")
@access("admin")
def ask_delete() -> Any:
    """How many would go, the ticked ones or all that the list shows. Changes nothing."""
    back = _list_address()
    try:
        if request.form.get("which") == "all":
            filters = listing.read_listing(SessionFilters, _query(back)).filters
            ids = session_delete.find_ids(filters, actor=g.actor)
        else:
            ids = _ticked()
        session_delete.check_deletable(ids, actor=g.actor)
    except Refused as refusal:
        return _refused(refusal, back)
    if not ids:
        return _refused(Refused("Select at least one session first."), back)
    return page("sessions/delete.html", "sessions/_delete.html", ids=ids, back=back, in_place=wants_fragment())


@bp.post("/admin/agent-review/sessions/delete/confirmed")
@access("admin")
def delete_sessions() -> Any:
    """Delete them, all or none, and give the list back."""
    back = _list_address()
    try:
        with transaction():
            gone = session_delete.delete_sessions(_ticked(), actor=g.actor)
    except Refused as refusal:
        return _refused(refusal, back)
    toast = Toast(f"Deleted {gone:,} session{'' if gone == 1 else 's'} for good.")
    shown = {**listed(_query(back)), "views": saved_views.load_views("sessions")} if wants_fragment() else {}
    return swap("sessions/_list.html", fallback=back, toasts=[toast], **shown)


def _refused(refusal: Refused, back: str) -> Any:
    """409 with the sentence: beside the list, or on a page that leads back to it."""
    if wants_fragment():
        return toast_only(Toast(refusal.detail, "error"), status=refusal.status)
    return page(
        "sessions/delete.html", "sessions/delete.html", status=refusal.status, refusal=refusal.detail, back=back
    )


def _list_address() -> str:
    back = own_path()
    return back if urlsplit(back).path == url_for("sessions.index") else url_for("sessions.index")


def _query(back: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(back).query))


def _ticked() -> list[UUID]:
    texts = [part for value in request.form.getlist("ids") for part in value.split(",") if part]
    found = [parse_id(text) for text in texts]
    if None in found:
        raise Invalid("One of these ids is no id; load the page again.")
    return list(dict.fromkeys(value for value in found if value is not None))
