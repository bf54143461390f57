"""The living end of a conversation: what is being answered now, and what one can do about it.

The page asks for this part again every now and then and gets an empty answer when nothing is new.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from flask import g, make_response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Invalid, Refused
from app.security.access import access
from app.services.chats import own as chat_own
from app.services.chats.own import ChatMessage
from app.services.sessions import start as session_start
from app.services.sessions import transcript as session_transcript
from app.services.sessions.start import ChatState
from app.views.chat import bp
from app.views.chat.messages import MessageView, build_messages, group_alternatives
from app.views.forms import form_text, parse_count
from app.views.htmx import Toast, swap, vary_by_htmx, wants_fragment
from app.views.transcript import turns as transcript_turns

# How often the page asks, in milliseconds: while an answer is written, when that takes long, and when all is quiet.
FAST_POLL_MS, SLOW_POLL_MS, IDLE_POLL_MS = 400, 1000, 5000
LONG_SECONDS = 30
# After so many seconds the page says that no executor has taken the session.
UNCLAIMED_SECONDS = 20
MAX_SPOKEN_LENGTH = 2000


@bp.get("/<uuid:chat_id>/run")
@access("member")
def follow_answer(chat_id: UUID) -> Any:
    """What is new since the page last asked; nothing, in 204, when nothing is."""
    now = session_start.chat_state(chat_id, actor=g.actor)
    if not wants_fragment():
        return vary_by_htmx(redirect(_end_of(chat_id), 303))
    if request.args.get("seen") == now.mark:
        return vary_by_htmx(make_response("", 204))
    return _live(now)


@bp.post("/<uuid:chat_id>/messages")
@access("member")
def send_message(chat_id: UUID) -> Any:
    """What the person says next."""
    return _act(chat_id, lambda: session_start.send_message(chat_id, form_text("message"), actor=g.actor))


@bp.post("/<uuid:chat_id>/again")
@access("member")
def regenerate(chat_id: UUID) -> Any:
    """Another answer to the last question."""
    return _act(chat_id, lambda: session_start.ask_again(chat_id, actor=g.actor))


@bp.post("/<uuid:chat_id>/stop")
@access("member")
def stop_answer(chat_id: UUID) -> Any:
    """No more of this answer."""
    return _act(chat_id, lambda: session_start.stop_answer(chat_id, actor=g.actor))


def _act(chat_id: UUID, act: Callable[[], object]) -> Response:
    """Do it and show the end of the conversation, with what went wrong."""
    status, error = 200, ""
    try:
        with transaction():
            act()
    except Invalid as refusal:
        status, error = 422, refusal.fields.get("message", refusal.detail)
    except Refused as refusal:
        status, error = 409, refusal.detail
    if wants_fragment():
        return _live(session_start.chat_state(chat_id, actor=g.actor), status, error=error)
    return swap("chat/_run.html", fallback=_end_of(chat_id), toasts=[Toast(error, "error")] if error else ())


def _end_of(chat_id: UUID) -> str:
    return url_for("chat.detail", chat_id=chat_id) + "#run"


def _live(now: ChatState, status: int = 200, *, error: str = "") -> Response:
    """What the page does not have yet, and the end of the conversation as it is."""
    had = parse_count(request.values.get("after"))
    had = -1 if had is None else had
    fresh = chat_own.messages_after(now.chat_id, had, actor=g.actor)
    last = fresh[-1].message.message_index if fresh else had
    moments, replaced = _moments(now, fresh, had)
    spoken = _spoken(now, fresh)
    html = render_template(
        "chat/_live.html", moments=moments, replaced=replaced, spoken=spoken, error=error, **_end(now, last)
    )
    return vary_by_htmx(make_response(html, status))


def _moments(now: ChatState, fresh: list[ChatMessage], had: int) -> tuple[list[MessageView], int | None]:
    """Return the new messages, and the index of the message that the first of them replaces on the page."""
    agent = now.agent_name or "Agent"
    latest = fresh[0].message if fresh else None
    if latest is None or latest.role != "agent" or "instead_of" not in latest.details:
        return build_messages(now.chat, fresh, agent, fresh=True), None
    beside = chat_own.answers_in_turn(latest, actor=g.actor)
    groups = group_alternatives([one.message for one in beside]).values()
    first = next(places[0] for places in groups if latest.message_index in places)
    earlier = [one for one in beside if first <= one.message.message_index <= had]
    return build_messages(now.chat, [*earlier, *fresh], agent, fresh=True), first


def _spoken(now: ChatState, fresh: Sequence[ChatMessage]) -> str:
    """What is said aloud: a whole answer, once, and never a part of one."""
    said = [one.message.content for one in fresh if one.message.role == "agent"]
    if said:
        return f"{now.agent_name or 'The agent'}: {said[-1]}"[:MAX_SPOKEN_LENGTH]
    if now.run and now.run.status == "failed":
        return f"No answer. {now.run.error or ''}"[:MAX_SPOKEN_LENGTH]
    return ""


def live_now(now: ChatState, last: int) -> dict[str, Any]:
    """What the page of a conversation needs when it shows it to its end."""
    to_the_end = last + 1 >= now.chat.message_count
    return {"to_the_end": to_the_end, **(_end(now, last) if to_the_end else {"now": now})}


def _end(now: ChatState, last: int) -> dict[str, Any]:
    age = (datetime.now(UTC) - now.run.created_at).total_seconds() if now.run else 0.0
    pace = (FAST_POLL_MS if age < LONG_SECONDS else SLOW_POLL_MS) if now.running else IDLE_POLL_MS
    unclaimed = now.run is not None and now.run.status == "pending" and age > UNCLAIMED_SECONDS
    return {"now": now, "after": last, "lines": _lines(now), "pace": pace, "unclaimed": unclaimed}


def _lines(now: ChatState) -> list[transcript_turns.Part]:
    """What the agent has done so far."""
    if now.run is None or not now.run.open:
        return []
    events = session_transcript.load_work_events({now.run.session_id}, actor=g.actor).get(now.run.session_id, [])
    turns = transcript_turns.build_turns(events, person="", agent="")
    return [part for turn in turns for part in turn.parts]
