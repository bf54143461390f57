"""Read what was said and done: the work behind a chat's messages, excerpts, turn logs, and what an agent knew."""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import and_, exists, func, or_, select

from app.actor import Actor
from app.db import db
from app.formats.ids import UUID_PATTERN
from app.learning.reactions import LogEntry
from app.models import AgentSession, AgentVersion, Entity, Message, SessionEvent, SharedContext
from app.services.feedback.reactions import Conversation
from app.services.sessions.event_windows import LARGE_PAYLOAD, Event, shorten_payload

MAX_EVENTS = 2000
MAX_BYTES = 4_000_000
RECORD_ID = re.compile(rf"(?:entity )?({UUID_PATTERN.pattern})")
MAX_NAMES = 500
MAX_SESSIONS = 100
WORK = ("context.loaded", "tool.call", "tool.result", "entity.created", "entity.updated", "response.submitted")
# Of an excerpt.
EXCERPT_EVENTS = 40
EXCERPT_LENGTH = 600
EXCERPT_KEYS = ("name", "text", "arguments", "output")
EXCERPT_TYPES = ("user.message", "agent.message", "tool.call", "tool.result", "session.failed")
# Of the log of a turn.
MAX_TURNS = 50
# Of tool calls and their results, in bytes of JSON over all turns of an answer.
LOG_BUDGET = 4_000_000
LOG_EVENTS = ("user.message", "tool.call", "tool.result")
ROLES = {"agent": "assistant"}


def sessions_behind(chat_id: UUID, *, actor: Actor) -> Sequence[Any]:
    """The sessions of a conversation, the newest 100. One query."""
    asked = exists().where(
        SessionEvent.tenant_id == AgentSession.tenant_id, SessionEvent.session_id == AgentSession.id,
        SessionEvent.event_type == "user.message",
    )  # fmt: skip
    promotable = and_(
        AgentSession.status == "completed", AgentSession.golden_set.is_(None), AgentSession.eval_source.is_(None), asked
    )
    return db.session.execute(
        select(
            AgentSession.id, AgentSession.title, AgentSession.status, AgentSession.duration_ms, AgentSession.golden_set,
            AgentVersion.version.label("agent_version"), promotable.label("promotable"),
        )
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.chat_id == chat_id)
        .order_by(AgentSession.created_at.desc(), AgentSession.id.desc())
        .limit(MAX_SESSIONS)
    ).all()  # fmt: skip


def load_work_events(session_ids: Collection[UUID], *, actor: Actor) -> dict[UUID, list[Event]]:
    """What the agents did in these sessions, in order of time, as far as a page can show it. One query."""
    if not session_ids:
        return {}
    some = (
        select(
            SessionEvent.session_id, SessionEvent.id, SessionEvent.sequence, SessionEvent.event_type,
            SessionEvent.payload, SessionEvent.occurred_at, SessionEvent.payload_bytes,
        )
        .where(
            SessionEvent.tenant_id == actor.tenant_id,
            SessionEvent.session_id.in_(session_ids),
            SessionEvent.event_type.in_(WORK),
        )
        .order_by(SessionEvent.session_id, SessionEvent.occurred_at, SessionEvent.sequence)
        .limit(MAX_EVENTS)
        .subquery()
    ).c  # fmt: skip
    order = (some.session_id, some.occurred_at, some.sequence)
    so_far = func.sum(func.least(some.payload_bytes, LARGE_PAYLOAD)).over(order_by=order)
    sized = select(*some, so_far.label("so_far")).subquery().c
    rows = db.session.execute(
        select(sized.session_id, sized.id, sized.sequence, sized.event_type, shorten_payload(sized), sized.occurred_at)
        .where(sized.so_far <= MAX_BYTES)
        .order_by(sized.session_id, sized.occurred_at, sized.sequence)
    )
    found: dict[UUID, list[Event]] = {}
    for session_id, *event in rows:
        found.setdefault(session_id, []).append(Event(*event))
    return found


def excerpt_of(session_id: UUID, *, actor: Actor) -> dict[str, Any] | None:
    """A session's title, state and last events in order of time, each cut, for an agent to read. Two queries."""
    row = db.session.execute(
        select(AgentSession.id, AgentSession.title, AgentSession.status, AgentSession.error).where(
            AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id
        )
    ).one_or_none()
    if row is None:
        return None
    # One character longer than what is shown, so that a cut can be seen.
    texts = [func.left(SessionEvent.payload[name].astext, EXCERPT_LENGTH + 1).label(name) for name in EXCERPT_KEYS]
    failed = SessionEvent.payload["is_error"].astext == "true"
    events = db.session.execute(
        select(SessionEvent.event_type.label("type"), *texts, failed.label("is_error"))
        .where(
            SessionEvent.tenant_id == actor.tenant_id,
            SessionEvent.session_id == session_id,
            SessionEvent.event_type.in_(EXCERPT_TYPES),
        )
        .order_by(SessionEvent.occurred_at.desc(), SessionEvent.sequence.desc())
        .limit(EXCERPT_EVENTS)
    )
    shown = [{name: _short(value) for name, value in event._mapping.items() if value is not None} for event in events]
    return {**row._mapping, "events": shown[::-1]}


def _short(value: Any) -> Any:
    cut = isinstance(value, str) and len(value) > EXCERPT_LENGTH
    return value[: EXCERPT_LENGTH - 1] + "…" if cut else value


def record_names(entity_ids: Collection[UUID], *, actor: Actor) -> dict[str, str]:
    """What these records are called today. One query."""
    if not entity_ids:
        return {}
    rows = db.session.execute(
        select(Entity.id, Entity.name).where(Entity.tenant_id == actor.tenant_id, Entity.id.in_(entity_ids))
    )
    return {str(entity_id): name for entity_id, name in rows}


class RecordNames:
    """What the records whose ids are in some texts are called. One query for all of them."""

    def __init__(self, texts: Iterable[str | None], *, actor: Actor) -> None:
        ids = dict.fromkeys(found for text in texts if text for found in RECORD_ID.findall(text))
        self.names = record_names([UUID(found) for found in list(ids)[:MAX_NAMES]], actor=actor)

    def replace_ids(self, text: str | None) -> str:
        """The text with names where it had ids; an id without a name stays."""
        names = {found: f"“{name}”" for found, name in self.names.items()}
        return RECORD_ID.sub(lambda found: names.get(found[1], found[0]), text or "")


def load_knowledge(row_ids: Collection[UUID], *, actor: Actor) -> Sequence[Any]:
    """The knowledge rows with these ids as they are today, by type. One query."""
    if not row_ids:
        return []
    return db.session.execute(
        select(SharedContext.id, SharedContext.type, SharedContext.content, SharedContext.state)
        .where(SharedContext.tenant_id == actor.tenant_id, SharedContext.id.in_(row_ids))
        .order_by(SharedContext.type, SharedContext.id)
    ).all()


def read_turn_logs(conversation: Conversation, turn_ids: Sequence[str], *, actor: Actor) -> dict[str, list[LogEntry]]:
    """What happened in the last 50 of these turns, by turn, in order of time. Three queries."""
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
            SessionEvent.event_type.in_(LOG_EVENTS),
            # A message may name a session of another conversation, whose work is not shown here.
            or_(AgentSession.chat_id.is_(None), AgentSession.chat_id == conversation.id),
        )
        .subquery()
    )
    return db.session.execute(select(sized).where(sized.c.used <= LOG_BUDGET).order_by(sized.c.place)).all()


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
