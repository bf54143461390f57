"""Turn logs: what was said and done in a turn of a conversation, built from its messages and its sessions' events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Text, cast, func, or_, select

from app.actor import Actor
from app.db import db
from app.learning.reactions import LogEntry
from app.models import AgentSession, Message, SessionEvent
from app.services.feedback.reactions import Conversation

MAX_TURNS = 50
# Of tool calls and their results, in characters of JSON over all turns of an answer.
EVENT_BUDGET = 4_000_000
EVENTS = ("user.message", "tool.call", "tool.result")
ROLES = {"agent": "assistant"}


@dataclass(frozen=True)
class Event:
    session_id: UUID
    event_type: str
    payload: dict[str, Any]
    at: datetime


@dataclass(frozen=True)
class Part:
    """Which part of its session a turn is: one of `turns`, from the end of the one before to its own."""

    place: int
    turns: int
    after: datetime | None
    until: datetime | None

    def of(self, events: Sequence[Event]) -> list[Event]:
        """The turn's events. Where a session has a question for each turn, the questions divide it; else the times of
        the messages do, and what comes after the last message belongs to the last turn."""
        asked = [place for place, event in enumerate(events) if event.event_type == "user.message"]
        if len(asked) == self.turns:
            first = asked[self.place] if self.place else 0
            return list(events[first : asked[self.place + 1] if self.place + 1 < self.turns else None])
        return [
            event
            for event in events
            if (self.after is None or event.at > self.after) and (self.until is None or event.at <= self.until)
        ]


def read_turn_logs(conversation: Conversation, turn_ids: Sequence[str], *, actor: Actor) -> dict[str, list[LogEntry]]:
    """What happened in the last 50 of these turns, by turn, in order of time. Three queries.

    Tool calls come from the sessions that answered, as far as these belong to the conversation or to none.
    """
    wanted = list(turn_ids)[-MAX_TURNS:]
    messages = _messages_in(conversation, wanted, actor)
    sessions = {message.session_id for message in messages if message.session_id}
    parts = _parts_of(conversation, sessions, actor)
    events = _events_of(conversation, sessions, actor)
    return {turn: _entries([one for one in messages if one.turn_id == turn], events, parts) for turn in wanted}


def _messages_in(conversation: Conversation, turn_ids: Sequence[str], actor: Actor) -> Sequence[Message]:
    return db.session.scalars(
        select(Message)
        .where(
            Message.tenant_id == actor.tenant_id,
            Message.chat_id == conversation.id,
            Message.turn_id.in_(turn_ids),
        )
        .order_by(Message.message_index)
    ).all()


def _parts_of(conversation: Conversation, sessions: set[UUID], actor: Actor) -> dict[tuple[UUID | None, str], Part]:
    """Which part of its session each turn is, by session and turn."""
    if not sessions:
        return {}
    rows = db.session.execute(
        select(Message.session_id, Message.turn_id, func.max(Message.created_at))
        .where(
            Message.tenant_id == actor.tenant_id,
            Message.chat_id == conversation.id,
            Message.session_id.in_(sessions),
        )
        .group_by(Message.session_id, Message.turn_id)
        .order_by(func.max(Message.message_index))
    )
    turns: dict[UUID | None, list[tuple[str, datetime]]] = {}
    for session_id, turn_id, end in rows:
        turns.setdefault(session_id, []).append((turn_id, end))
    return {
        (session_id, turn_id): Part(
            place,
            len(found),
            after=found[place - 1][1] if place else None,
            until=end if place + 1 < len(found) else None,
        )
        for session_id, found in turns.items()
        for place, (turn_id, end) in enumerate(found)
    }


def _events_of(conversation: Conversation, sessions: set[UUID], actor: Actor) -> list[Event]:
    """Questions, tool calls and results of the sessions, in order, until the budget is used up."""
    if not sessions:
        return []
    order = (SessionEvent.occurred_at, SessionEvent.sequence, SessionEvent.id)
    used = func.sum(func.length(cast(SessionEvent.payload, Text))).over(order_by=order).label("used")
    sized = (
        select(SessionEvent.id, used)
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
    rows = db.session.execute(
        select(SessionEvent.session_id, SessionEvent.event_type, SessionEvent.payload, SessionEvent.occurred_at)
        .join(sized, sized.c.id == SessionEvent.id)
        .where(SessionEvent.tenant_id == actor.tenant_id, sized.c.used <= EVENT_BUDGET)
        .order_by(*order)
    )
    return [Event(*row) for row in rows]


def _entries(
    messages: Sequence[Message], events: Sequence[Event], parts: Mapping[tuple[UUID | None, str], Part]
) -> list[LogEntry]:
    """What was asked, what the agent did, what it answered."""
    calls: list[LogEntry] = []
    for session_id in dict.fromkeys(message.session_id for message in messages):
        if session_id is not None:
            part = parts[session_id, messages[0].turn_id]
            calls += _calls(part.of([event for event in events if event.session_id == session_id]))
    asked = [_message_entry(message) for message in messages if message.role == "user"]
    answered = [_message_entry(message) for message in messages if message.role != "user"]
    return [*asked, *calls, *answered]


def _message_entry(message: Message) -> LogEntry:
    if message.role != "tool":
        return LogEntry(ROLES.get(message.role, message.role), message.created_at, message.content)
    details = message.details
    return LogEntry(
        "tool_call",
        message.created_at,
        name=str(details.get("name") or "tool"),
        arguments=details.get("arguments"),
        output=message.content,
        is_error=bool(details.get("is_error")),
    )


def _calls(events: Sequence[Event]) -> list[LogEntry]:
    """Each tool call with its result."""
    results = {event.payload.get("call_id"): event.payload for event in events if event.event_type == "tool.result"}
    calls = [event for event in events if event.event_type == "tool.call"]
    return [_call_entry(event, results.get(event.payload.get("id"), {})) for event in calls]


def _call_entry(call: Event, result: Mapping[str, Any]) -> LogEntry:
    return LogEntry(
        "tool_call",
        call.at,
        name=str(call.payload.get("name")),
        arguments=call.payload.get("arguments"),
        output=result.get("output"),
        is_error=result.get("is_error"),
    )
