"""Sessions: what ran, how long, at what cost, and everything that happened in it."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID

from flask import g, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Invalid, NotFound, Refused
from app.formats.ids import parse_id
from app.security.access import access
from app.services.sessions import event_windows
from app.services.sessions import lists as session_lists
from app.services.sessions import store as session_store
from app.services.sessions.lists import SessionFilters
from app.views import lists as listing
from app.views.feedback.flag_form import FlagForm, flagged
from app.views.format import query
from app.views.forms import selected_ids
from app.views.htmx import Toast, page, swap, toast_only, wants_fragment
from app.views.layout import saved_views
from app.views.layout.columns import choose_columns
from app.views.layout.shell import own_path
from app.views.sessions import bp
from app.views.sessions.detail import read_event, read_more, read_session

LIST = "/admin/agent-review/sessions"
NONE_SELECTED = "Select at least one session first."


@bp.get(LIST)
@access("admin")
def index() -> Any:
    """The sessions of the workspace, newest first."""
    views = saved_views.load_views("sessions")
    return views.opening or page("sessions/index.html", "sessions/_list.html", views=views, **list_context())


def list_context(given: dict[str, str] | None = None) -> dict[str, Any]:
    """What the list shows, for the address or for the query that was given."""
    asked = listing.read_box(SessionFilters, given)
    found = session_lists.list_sessions(asked.filters, asked.page, actor=g.actor)
    return {
        "rows": found.items,
        "found": found,
        "asked": asked,
        "columns": choose_columns("sessions", found.items),
        "looked_at": asked.filters.scan_limit,
        **listing.pager_links(found),
    }


@bp.get(f"{LIST}/<uuid:session_id>")
@access("admin")
def detail(session_id: UUID) -> Any:
    """One session: as a page, as the panel of the list, its next part, or the form that flags one of its turns."""
    flag = FlagForm.from_query(".detail", ".flag", session_id=session_id)
    if wants_fragment() and flag.at:
        return page("sessions/_flag.html", "sessions/_flag.html", flag=flag)
    return _session_page(session_id, flag)


@bp.get("/sessions/<uuid:session_id>")
@access("member")
def own_detail(session_id: UUID) -> Any:
    """The same for any member of the workspace, with only their own feedback in it."""
    return _session_page(session_id)


@bp.get(f"{LIST}/<uuid:session_id>/events/<uuid:event_id>")
@access("admin")
def event(session_id: UUID, event_id: UUID) -> Any:
    """All that one event holds; transcripts cut what is very long."""
    return page("sessions/event.html", "sessions/_event.html", **read_event(session_id, event_id))


@bp.get("/sessions/<uuid:session_id>/events/<uuid:event_id>")
@access("member")
def own_event(session_id: UUID, event_id: UUID) -> Any:
    """The same for members."""
    read = read_event(session_id, event_id, within_admin=False)
    return page("sessions/event.html", "sessions/_event.html", **read)


@bp.post(f"{LIST}/<uuid:session_id>/flag")
@access("admin")
def flag(session_id: UUID) -> Any:
    """An admin's own observation of the session or of one turn in it."""
    form = FlagForm.from_post(".detail", ".flag", session_id=session_id)
    session_store.get_session(session_id, actor=g.actor)
    try:
        row = form.record(session_id=session_id, context=_meant(session_id, form.at))
    except Invalid as refusal:
        form = form.with_errors(refusal)
        if wants_fragment():
            return page("sessions/_flag.html", "sessions/_flag.html", status=422, flag=form)
        return _session_page(session_id, form, 422)
    back = query(url_for(".detail", session_id=session_id), form.args)
    return flagged(row, form, back + (f"#{form.at}" if form.at != "whole" else ""))


def _meant(session_id: UUID, at: str) -> dict[str, str]:
    """The event that a flag on a turn names; none for a flag on the whole."""
    if at == "whole":
        return {}
    try:
        found = event_windows.find_event(session_id, actor=g.actor, ending=at.removeprefix("e-"))
    except NotFound:
        raise Invalid.at("comment", "This session has no such turn.") from None
    return {"event_id": str(found.id)}


def _session_page(session_id: UUID, flag: FlagForm | None = None, status: int = 200) -> Response:
    """The page, its panel or its next part. Only admins flag it."""
    after, within_admin = request.values.get("after"), flag is not None
    template, fragment = "sessions/detail.html", "sessions/_panel.html"
    if wants_fragment() and after and status == 200:
        template = fragment = "sessions/_more_events.html"
        read = read_more(session_id, after, within_admin=within_admin)
    else:
        read = read_session(session_id, within_admin=within_admin, after=after or _asked_place(session_id))
        if within_admin and request.args.get("panel") != "1":
            fragment = template
    return page(template, fragment, status=status, flag=flag, **read)


def _asked_place(session_id: UUID) -> str | None:
    wanted = parse_id(request.args.get("at", ""))
    return event_windows.cursor_of(session_id, wanted, actor=g.actor) if wanted else None


@bp.post(f"{LIST}/delete")
@access("admin")
def ask_delete() -> Any:
    """How many would go, the ticked ones or all that the list shows. Changes nothing."""
    back = _list_address()
    try:
        if request.form.get("which") == "all":
            filters = listing.read_listing(SessionFilters, _query(back)).filters
            ids = session_lists.find_ids(filters, actor=g.actor)
        else:
            ids = selected_ids(NONE_SELECTED) if request.form.get("ids") else []
        session_lists.check_deletable(ids, actor=g.actor)
    except Refused as refusal:
        return _refused(refusal, back)
    if not ids:
        return _refused(Refused(NONE_SELECTED), back)
    return page("sessions/delete.html", "sessions/_delete.html", ids=ids, back=back, in_place=wants_fragment())


@bp.post(f"{LIST}/delete/confirmed")
@access("admin")
def delete_sessions() -> Any:
    """Delete them, all or none, and give the list back."""
    back = _list_address()
    try:
        with transaction():
            gone = session_lists.delete_sessions(selected_ids(NONE_SELECTED), actor=g.actor)
    except Refused as refusal:
        return _refused(refusal, back)
    toast = Toast(f"Deleted {gone:,} session{'' if gone == 1 else 's'}.")
    shown = {**list_context(_query(back)), "views": saved_views.load_views("sessions")} if wants_fragment() else {}
    return swap("sessions/_list.html", fallback=back, toasts=[toast], **shown)


def _refused(refusal: Refused, back: str) -> Any:
    """409 with the sentence: beside the list, or on a page that leads back to it."""
    if wants_fragment():
        return toast_only(Toast(refusal.detail, "error"), status=refusal.status)
    template = "sessions/delete.html"
    return page(template, template, status=refusal.status, refusal=refusal.detail, back=back)


def _list_address() -> str:
    back = own_path()
    return back if urlsplit(back).path == url_for("sessions.index") else url_for("sessions.index")


def _query(back: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(back).query))
