"""Conversations: what people asked, and how the answers were received."""

from typing import Any
from uuid import UUID

from flask import Blueprint, g, request, url_for

from app.errors import Invalid
from app.security.access import access
from app.services.chats import lists as chat_lists
from app.services.chats import store as chat_store
from app.services.chats.lists import SCAN_LIMIT, ChatFilters
from app.services.feedback import lists as feedback_lists
from app.services.sessions import transcript as session_transcript
from app.views import lists as listing
from app.views.feedback.flag_form import FlagForm, flagged
from app.views.format import query, with_version
from app.views.forms import parse_count
from app.views.htmx import page, wants_fragment
from app.views.layout import saved_views
from app.views.layout.columns import choose_columns
from app.views.transcript import turns as transcript_turns
from app.views.transcript.notes import attach_notes, build_note, name_changed_records

PANEL_TURNS = 8
PAGE_MESSAGES = 100

bp = Blueprint("conversations", __name__, url_prefix="/admin/agent-review/conversations")


@bp.get("")
@access("admin")
def index() -> Any:
    """The conversations of the workspace, the liveliest first."""
    views = saved_views.load_views("conversations")
    if views.opening:
        return views.opening
    asked = listing.read_box(ChatFilters)
    found = chat_lists.list_chats(asked.filters, asked.page, actor=g.actor)
    return page(
        "conversations/index.html",
        "conversations/_list.html",
        rows=found.items,
        found=found,
        asked=asked,
        columns=choose_columns("conversations", found.items),
        views=views,
        looked_at=SCAN_LIMIT,
        **listing.pager_links(found),
    )


@bp.get("/<uuid:chat_id>")
@access("admin")
def detail(chat_id: UUID) -> Any:
    """One conversation: as a page, as the panel of the list, its next part, or the form that flags a message."""
    flag = FlagForm.from_query(".detail", ".flag", chat_id=chat_id)
    if wants_fragment() and flag.at:
        return page("sessions/_flag.html", "sessions/_flag.html", flag=flag)
    if wants_fragment() and flag.args:
        more = "conversations/_more_messages.html"
        return page(more, more, flag=flag, **_load_conversation(chat_id))
    return _conversation_page(chat_id, flag)


def _conversation_page(chat_id: UUID, flag: FlagForm, status: int = 200) -> Any:
    template = "conversations/detail.html"
    fragment = "conversations/_panel.html" if request.args.get("panel") == "1" else template
    return page(template, fragment, status=status, flag=flag, **_load_conversation(chat_id))


@bp.post("/<uuid:chat_id>/flag")
@access("admin")
def flag(chat_id: UUID) -> Any:
    """An admin's own observation of one message."""
    form = FlagForm.from_post(".detail", ".flag", chat_id=chat_id)
    try:
        messages = chat_store.get_chat(g.actor, chat_id).messages
        index = next((one.message_index for one in messages if f"m-{one.message_index}" == form.at), None)
        if index is None:
            raise Invalid.at("comment", "This conversation has no such message.")
        about = {"chat_id": str(chat_id), "message_index": index}
        row = form.record(chat_id=str(chat_id), context=about)
    except Invalid as refusal:
        form = form.with_errors(refusal)
        if wants_fragment():
            return page("sessions/_flag.html", "sessions/_flag.html", status=422, flag=form)
        return _conversation_page(chat_id, form, 422)
    back = query(url_for(".detail", chat_id=chat_id), form.args) + f"#{form.at}"
    return flagged(row, form, back)


def _load_conversation(chat_id: UUID) -> dict[str, Any]:
    """What the page, the panel and the parts show. Six queries."""
    found = chat_store.get_chat(g.actor, chat_id)
    given = request.values.get("after")
    after = parse_count(given) if given else -1
    if after is None:
        raise Invalid("This conversation has no such position. Leave it out to start at the first message.")
    here = [message for message in found.messages if message.message_index > after]
    shown = here[:PAGE_MESSAGES]
    behind = session_transcript.sessions_behind(chat_id, actor=g.actor)
    work = session_transcript.load_work_events({m.session_id for m in shown if m.session_id}, actor=g.actor)
    versions = {row.id: f"v{row.agent_version}" for row in behind if row.agent_version}
    steps = transcript_turns.chat_steps(shown, versions=versions, work=work)
    turns = transcript_turns.build_turns(steps, person=found.person or "someone", agent=found.agent or "agent")
    name_changed_records(turns)
    names = [str(chat_id), *([found.chat.external_id] if found.chat.external_id else [])]
    rows = feedback_lists.feedback_about(actor=g.actor, chats=names)
    notes = [build_note(row) for row in rows]
    whole = len(shown) == len(found.messages)
    about = attach_notes(turns, notes, whole=whole)
    if not whole:
        elsewhere = {name for message in found.messages for name in transcript_turns.message_ids(message)}
        about = [note for note in about if elsewhere.isdisjoint(note.ids)]
    return {
        "found": found,
        "chat": found.chat,
        "agent": with_version(found.agent, behind[0].agent_version if behind else None),
        "turns": turns,
        "first": after < 0,
        "following": shown[-1].message_index if len(here) > PAGE_MESSAGES else None,
        "about": about,
        "notes": notes,
        "feedback": rows,
        "behind": behind,
        "asked_times": sum(message.role == "user" for message in found.messages),
        "panel_turns": PANEL_TURNS,
        "own_url": url_for(".detail", chat_id=chat_id),
    }
