"""Conversations: what people asked, and how the answers were received."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flask import Blueprint, Flask, g, request, url_for

from app.access import access
from app.db import transaction
from app.errors import Invalid
from app.services import chats, feedback, intake, sessions, transcripts
from app.services.filters import ChatFilters, FeedbackFilters, SessionFilters
from app.services.pages import Page
from app.views import filters as listing
from app.views import saved_views, transcript
from app.views.agent_review import agent_menu, call_by_name, notes_of, with_version
from app.views.flags import FlagForm
from app.views.htmx import Toast, page, swap, wants_fragment

PANEL_TURNS = 8

bp = Blueprint("conversations", __name__, url_prefix="/admin/agent-review/conversations")


@bp.get("")
@access("admin")
def index() -> Any:
    """The conversations of the workspace, the liveliest first."""
    views = saved_views.of("conversations")
    if views.opening:
        return views.opening
    asked = listing.read(ChatFilters)
    found = chats.list_chats(asked.filters, asked.page, actor=g.actor)
    fields = [agent_menu(), listing.typed("project"), *listing.DAYS]
    return page(
        "conversations/index.html",
        "conversations/_list.html",
        rows=found.items,
        found=found,
        asked=asked,
        views=views,
        fields=fields,
        **listing.neighbours(found),
    )


@bp.get("/<uuid:chat_id>")
@access("admin")
def detail(chat_id: UUID) -> Any:
    """One conversation: as a page, as the panel of the list, or only the form that flags one of its answers."""
    flag = FlagForm.asked(".detail", ".flag", chat_id=chat_id)
    if wants_fragment() and flag.at:
        return page("sessions/_flag.html", "sessions/_flag.html", flag=flag)
    return _shown(chat_id, flag)


def _shown(chat_id: UUID, flag: FlagForm, status: int = 200) -> Any:
    template = "conversations/detail.html"
    fragment = "conversations/_panel.html" if request.args.get("panel") == "1" else template
    return page(template, fragment, status=status, flag=flag, **_read(chat_id))


@bp.post("/<uuid:chat_id>/flag")
@access("admin")
def flag(chat_id: UUID) -> Any:
    """An admin's own observation of one answer."""
    form = FlagForm.posted(".detail", ".flag", chat_id=chat_id)
    read = _read(chat_id)
    try:
        form.check()
        turn = next((turn for turn in read["turns"] if turn.anchor == form.at), None)
        if turn is None:
            raise Invalid("There is no such message in this conversation.", {"comment": "This message is not here."})
        with transaction():
            intake.give_feedback(
                intake.NewFeedback(
                    source_type="observation",
                    kind="flag",
                    rating=form.rating,
                    comment=form.comment,
                    chat_id=str(chat_id),
                    context={"chat_id": str(chat_id), "message_index": int(turn.key)},
                ),
                actor=g.actor,
            )
    except Invalid as refusal:
        return _shown(chat_id, form.with_errors(refusal), 422)
    back = url_for(".detail", chat_id=chat_id) + f"#{form.at}"
    toast = Toast("Flagged. It is in Feedback as pending.")
    return swap("conversations/_panel.html", fallback=back, toasts=[toast], **read)


def _read(chat_id: UUID) -> dict[str, Any]:
    """What both the page and the panel show."""
    found = chats.get_chat(g.actor, chat_id)
    behind = sessions.list_sessions(SessionFilters(chat_id=chat_id), Page(100), actor=g.actor).items
    work = transcripts.work_of({m.session_id for m in found.messages if m.session_id}, actor=g.actor)
    version = behind[0].agent_version if behind else None
    turns = transcript.of_messages(
        found.messages,
        person=found.person or "somebody",
        agent=found.agent or "agent",
        versions={row.id: f"v{row.agent_version}" for row in behind if row.agent_version},
        work=work,
    )
    call_by_name(turns)
    names = [str(chat_id), *([found.chat.external_id] if found.chat.external_id else [])]
    rows = [row for name in names for row in _feedback_of(name)]
    notes = notes_of(rows)
    transcript.place(turns, notes)
    return {
        "found": found,
        "chat": found.chat,
        "agent": with_version(found.agent, version),
        "turns": turns,
        "notes": [note for _, note in notes],
        "feedback": rows,
        "behind": behind,
        "asked_times": sum(message.role == "user" for message in found.messages),
        "panel_turns": PANEL_TURNS,
    }


def _feedback_of(name: str) -> list[Any]:
    return list(feedback.list_feedback(FeedbackFilters(chat_id=name), Page(100), actor=g.actor).items)


def register(app: Flask) -> None:
    app.register_blueprint(bp)
