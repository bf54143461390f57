"""Sessions: what ran, how long, at what cost, and everything that happened in it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flask import Blueprint, Flask, g, request, url_for
from werkzeug.wrappers import Response

from app.access import access
from app.db import transaction
from app.errors import Invalid
from app.models.sessions import SESSION_STATUSES, SESSION_TYPES
from app.services import chats, feedback, intake, sessions
from app.services.filters import FeedbackFilters, SessionFilters
from app.services.pages import Page
from app.views import filters as listing
from app.views import timeline, transcript
from app.views.agent_review import agent_menu, as_id, call_by_name, notes_of, rows_loaded, with_version
from app.views.flags import FlagForm
from app.views.htmx import Toast, page, swap, wants_fragment

MOST_EVENTS = 2000
PANEL_TURNS = 8

bp = Blueprint("sessions", __name__)


@bp.get("/admin/agent-review/sessions")
@access("admin")
def index() -> Any:
    """The sessions of the workspace, newest first."""
    asked = listing.read(SessionFilters)
    found = sessions.list_sessions(asked.filters, asked.page, actor=g.actor)
    return page(
        "sessions/index.html",
        "sessions/_list.html",
        rows=found.items,
        found=found,
        asked=asked,
        fields=_fields(),
        **listing.neighbours(found),
    )


def _fields() -> list[listing.Field]:
    yes_no = [("yes", "yes"), ("no", "no")]
    return [
        listing.choices("status", SESSION_STATUSES),
        listing.choices("type", SESSION_TYPES),
        agent_menu(),
        listing.typed("environment"),
        listing.typed("model"),
        listing.typed("tag"),
        listing.named("golden", yes_no),
        listing.named("replay", yes_no),
        *listing.DAYS,
    ]


@bp.get("/admin/agent-review/sessions/<uuid:session_id>")
@access("admin")
def detail(session_id: UUID) -> Any:
    """One session: as a page, as the panel of the list, or only the form that flags one of its turns."""
    flag = FlagForm.asked(".detail", ".flag", session_id=session_id)
    if wants_fragment() and flag.at:
        return page("sessions/_flag.html", "sessions/_flag.html", flag=flag)
    return _shown(session_id, flag=flag)


@bp.get("/sessions/<uuid:session_id>")
@access("member")
def own_detail(session_id: UUID) -> Any:
    """The same for any member of the workspace, with only their own feedback in it."""
    return page(
        "sessions/detail.html", "sessions/_panel.html", **read_session(session_id, within_admin=False), flag=None
    )


@bp.post("/admin/agent-review/sessions/<uuid:session_id>/flag")
@access("admin")
def flag(session_id: UUID) -> Any:
    """An admin's own observation of the session or of one turn in it."""
    form = FlagForm.posted(".detail", ".flag", session_id=session_id)
    read = read_session(session_id)
    try:
        form.check()
        turn = next((turn for turn in read["turns"] if turn.anchor == form.at), None)
        context = {"event_id": turn.key} if turn and as_id(turn.key) else {}
        with transaction():
            intake.give_feedback(
                intake.NewFeedback(
                    source_type="observation",
                    kind="flag",
                    rating=form.rating,
                    comment=form.comment,
                    session_id=session_id,
                    context=context,
                ),
                actor=g.actor,
            )
    except Invalid as refusal:
        return _shown(session_id, flag=form.with_errors(refusal), status=422)
    back = url_for(".detail", session_id=session_id) + (f"#{form.at}" if form.at else "")
    return swap("sessions/_panel.html", fallback=back, toasts=[Toast("Flagged. It is in Feedback as pending.")], **read)


def _shown(session_id: UUID, *, flag: FlagForm, status: int = 200) -> Response:
    template = "sessions/detail.html"
    return page(
        template,
        "sessions/_panel.html" if _in_panel() else template,
        status=status,
        flag=flag,
        **read_session(session_id),
    )


def _in_panel() -> bool:
    return request.args.get("panel") == "1"


def read_session(session_id: UUID, *, within_admin: bool = True) -> dict[str, Any]:
    """What both the page and the panel show."""
    found = sessions.get_session(session_id, actor=g.actor)
    events = sessions.events_of(session_id, actor=g.actor, limit=MOST_EVENTS)
    version = f"v{found.agent_version}" if found.agent_version else ""
    turns = transcript.of_events(events, person=found.person or "somebody", agent=found.agent, version=version)
    call_by_name(turns)
    if found.session.chat_id:
        said = chats.messages_of(found.session.chat_id, actor=g.actor)
        transcript.answers_of(turns, [message for message in said if message.session_id == session_id])
    rows = feedback.list_feedback(FeedbackFilters(session_id=session_id), Page(100), actor=g.actor).items
    notes = notes_of(rows, linked=within_admin)
    homeless = transcript.place(turns, notes)
    loaded = next((event.payload for event in events if event.event_type == "context.loaded"), None)
    return {
        "found": found,
        "session": found.session,
        "agent": with_version(found.agent, found.agent_version),
        "turns": turns,
        "homeless": homeless,
        "feedback": rows,
        "notes": [note for _, note in notes],
        "timeline": timeline.of_events(events),
        "shown_events": len(events),
        "tool_calls": sum(event.event_type == "tool.call" for event in events),
        "loaded": loaded,
        "loaded_rows": rows_loaded(loaded) if loaded and g.actor.is_admin else [],
        "within_admin": within_admin,
        "panel_turns": PANEL_TURNS,
    }


def register(app: Flask) -> None:
    app.register_blueprint(bp)
