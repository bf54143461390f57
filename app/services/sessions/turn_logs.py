"""Turn logs: what was said and done in a turn of a conversation, built from its messages and its sessions' events."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import func, or_, select

from app.actor import Actor
from app.db import db
from app.learning.reactions import LogEntry
from app.models import AgentSession, Message, SessionEvent
from app.services.feedback.reactions import Conversation

MAX_TURNS = 50
# Of tool calls and their results, in bytes of JSON over all turns of an answer.
EVENT_BUDGET = 4_000_000
EVENTS = ("user.message", "tool.call", "tool.result")
ROLES = {"agent": "assistant"}


def read_turn_logs(conversation: Conversation, turn_ids: Sequence[str], *, actor: Actor) -> dict[str, list[LogEntry]]:
    """What happened in the last 50 of these turns, by turn, in order of time. Three queries.

    Tool calls come from the sessions that answered, as far as these belong to the conversation or to none.
    """
    wanted = list(turn_ids)[-MAX_TURNS:]
    ours = [Message.tenant_id == actor.tenant_id, Message.chat_id == conversation.id]
    messages = db.session.scalars(
        select(Message).where(*ours, Message.turn_id.in_(wanted)).order_by(Message.message_index)
    ).all()
    sessions = {message.session_id for message in messages if message.session_id}
    work = _work_by_turn(sessions, ours, conversation, actor) if sessions else {}
    return {turn: _entries([one for one in messages if one.turn_id == turn], work) for turn in wanted}


def _work_by_turn(
    sessions: set[UUID], ours: list[Any], conversation: Conversation, actor: Actor
) -> dict[tuple[UUID | None, str], list[Any]]:
    """The events of each turn, by session and turn."""
    ends = db.session.execute(
        select(Message.session_id, Message.turn_id, func.max(Message.created_at))
        .where(*ours, Message.session_id.in_(sessions))
        .group_by(Message.session_id, Message.turn_id)
        .order_by(Message.session_id, func.max(Message.message_index))
    )
    events = _load_events(conversation, sessions, actor)
    found = {}
    for session_id, rows in groupby(ends, key=lambda row: row[0]):
        turns = [(turn_id, end) for _, turn_id, end in rows]
        for turn_id, part in _divide([one for one in events if one.session_id == session_id], turns).items():
            found[session_id, turn_id] = part
    return found


def _divide(events: Sequence[Any], turns: Sequence[tuple[str, datetime]]) -> dict[str, list[Any]]:
    """A session's events by turn. Where it has a question for each turn, the questions divide it; else the times of the
    messages do, and what comes after the last message belongs to the last turn."""
    found: dict[str, list[Any]] = {turn_id: [] for turn_id, _ in turns}
    by_question = sum(event.event_type == "user.message" for event in events) == len(turns)
    ends = [end for _, end in turns[:-1]]
    asked = 0
    for event in events:
        asked += event.event_type == "user.message"
        place = max(0, asked - 1) if by_question else bisect_left(ends, event.occurred_at)
        found[turns[place][0]].append(event)
    return found


def _load_events(conversation: Conversation, sessions: set[UUID], actor: Actor) -> Sequence[Any]:
    """Questions, tool calls and results of the sessions, in order, until the budget is used up."""
    order = (SessionEvent.occurred_at, SessionEvent.sequence, SessionEvent.id)
    columns = (SessionEvent.session_id, SessionEvent.event_type, SessionEvent.payload, SessionEvent.occurred_at)
    used = func.sum(SessionEvent.payload_bytes).over(order_by=order)
    sized = (
        select(*columns, used.label("used"), func.row_number().over(order_by=order).label("place"))
        .join(
            AgentSession,
            (AgentSession.tenant_id == SessionEvent.tenant_id) & (AgentSession.id == SessionEvent.session_id),
        )
        .where(
            SessionEvent.tenant_id == actor.tenant_id,
            SessionEvent.session_id.in_(sessions),
            SessionEvent.event_type.in_(EVENTS),
            or_(AgentSession.chat_id.is_(None), AgentSession.chat_id == conversation.id),
        )
        .subquery()
    )
    return db.session.execute(select(sized).where(sized.c.used <= EVENT_BUDGET).order_by(sized.c.place)).all()


def _entries(messages: Sequence[Message], work: Mapping[tuple[UUID | None, str], Sequence[Any]]) -> list[LogEntry]:
    """What was asked, what the agent did, what it answered."""
    sessions = dict.fromkeys((message.session_id, message.turn_id) for message in messages)
    calls = [entry for session in sessions for entry in _calls(work.get(session, ()))]
    asked = [_message_entry(message) for message in messages if message.role == "user"]
    answered = [_message_entry(message) for message in messages if message.role != "user"]
    return [*asked, *calls, *answered]


def _message_entry(message: Message) -> LogEntry:
    if message.role != "tool":
        return LogEntry(ROLES.get(message.role, message.role), message.created_at, message.content)
    details = message.details
    failed = bool(details.get("is_error"))
    return _call(message.created_at, details.get("name") or "tool", details.get("arguments"), message.content, failed)


def _calls(events: Sequence[Any]) -> list[LogEntry]:
    """Each tool call with its result."""
    results = {event.payload.get("call_id"): event.payload for event in events if event.event_type == "tool.result"}
    found = []
    for event in events:
        if event.event_type == "tool.call":
            call, result = event.payload, results.get(event.payload.get("id"), {})
            arguments, output, failed = call.get("arguments"), result.get("output"), result.get("is_error")
            found.append(_call(event.occurred_at, call.get("name"), arguments, output, failed))
    return found


def _call(at: datetime, name: Any, arguments: Any, output: Any, is_error: bool | None) -> LogEntry:
    return LogEntry("tool_call", at, name=str(name), arguments=arguments, output=output, is_error=is_error)
