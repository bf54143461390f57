"""A session in parts: as many events as one answer should hold, and what the rest of the session is, in outline.

A part ends where as few calls as possible wait for their result; what is still split is brought together here, so that
every call is shown once, with its result.
"""

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Text, case, cast, exists, func, select

from app.actor import Actor
from app.db import db
from app.errors import NotFound
from app.models import AgentSession, SessionEvent
from app.services.sessions.event_windows import Event, EventCursor, cursor_after, read_window

EVENTS = 100
BYTES = 60_000
MAX_OUTLINE = 5000
NAMES = ("id", "call_id", "message_id", "turn_id")
MAX_NAME_LENGTH = 300
# A larger payload is shown by its beginning, beside a link to all of it.
LARGE_PAYLOAD = 20_000
MAX_SHOWN = 8000
KEPT_KEYS = ("name", "is_error", "duration_ms", "row_ids", "entity_id", "entity_type")
TRUNCATED_KEYS = ("text", "arguments", "output")
NO_EVENT = "There is no such event in this session."


def _columns(payload: Any = SessionEvent.payload) -> tuple[Any, ...]:
    return SessionEvent.id, SessionEvent.sequence, SessionEvent.event_type, payload, SessionEvent.occurred_at


def shorten_payload(event: Any = SessionEvent) -> Any:
    """A payload for a transcript: whole, or where it is large, what a call and its result begin with."""
    kept = [part for name in (*NAMES, *KEPT_KEYS) for part in (name, event.payload[name])]
    cut = [part for name in TRUNCATED_KEYS for part in (name, func.left(event.payload[name].astext, MAX_SHOWN))]
    short = func.jsonb_strip_nulls(func.jsonb_build_object(*kept, *cut))
    return case((event.payload_bytes <= LARGE_PAYLOAD, event.payload), else_=short)


@dataclass(frozen=True)
class SessionPart:
    """Some events in a row, without results that an earlier part has shown with their calls. `answers` are results that
    come later than the part; `following` is where the next part begins, `first` whether this is the first."""

    events: list[Event]
    answers: list[Event] = field(default_factory=list)
    following: str | None = None
    first: bool = True


def read_first(session_id: UUID, *, actor: Actor) -> tuple[SessionPart, list[Event]]:
    """The first part, and the whole session in outline: the same events when they are all there are. Two queries."""
    events, more = read_window(session_id, actor=actor, most=EVENTS, most_bytes=BYTES)
    if not more:
        return SessionPart(events), events
    events = events[: _cut(events)]
    waiting = _names("tool.call", events) - _names("tool.result", events)
    outline = read_outline(session_id, actor=actor, whole=waiting)
    late = [event for event in outline if event.event_type == "tool.result" and _name(event) in waiting]
    return SessionPart(events, late, cursor_after(events[-1]).text()), outline


def read_part(session_id: UUID, after: str, *, actor: Actor) -> SessionPart:
    """The part that follows a place. One query, two when a call and its result are far apart."""
    events, more = read_window(session_id, EventCursor.read(after), actor=actor, most=EVENTS, most_bytes=BYTES)
    events = events[: _cut(events)] if more else events
    calls, results = _names("tool.call", events), _names("tool.result", events)
    waiting = calls - results if more else set()
    others = _counterparts(session_id, waiting | (results - calls), actor)
    known = _names("tool.call", others)
    kept = [event for event in events if event.event_type != "tool.result" or _name(event) not in known]
    late = [event for event in others if event.event_type == "tool.result" and _name(event) in waiting]
    return SessionPart(kept, late, cursor_after(events[-1]).text() if more else None, first=False)


def _names(kind: str, events: Sequence[Event]) -> set[str]:
    return {_name(event) for event in events if event.event_type == kind}


def _of(session_id: UUID, actor: Actor) -> list[ColumnElement[bool]]:
    return [SessionEvent.tenant_id == actor.tenant_id, SessionEvent.session_id == session_id]


def _name(event: Event) -> str:
    """What a call and its result have in common."""
    payload = event.payload
    name = payload.get("id") if event.event_type == "tool.call" else payload.get("call_id") or payload.get("id")
    return str(name or event.id)


def _cut(events: Sequence[Event]) -> int:
    """How many of the events to show: all but at most the last third, ending where the fewest calls wait, best before
    somebody speaks."""
    waiting: set[str] = set()
    best, at = (len(events) + 1, 1), len(events)
    for place, event in enumerate(events, start=1):
        if event.event_type == "tool.call":
            waiting.add(_name(event))
        elif event.event_type == "tool.result":
            waiting.discard(_name(event))
        if place * 3 < len(events) * 2:
            continue
        speaks = place < len(events) and events[place].event_type == "user.message"
        cost = (len(waiting), 0 if speaks else 1)
        if cost <= best:
            best, at = cost, place
    return at


def _counterparts(session_id: UUID, names: set[str], actor: Actor) -> list[Event]:
    """The calls without results, or results without calls, of these names, wherever else in the session they are."""
    if not names:
        return []
    call, result = SessionEvent.payload["id"].astext, SessionEvent.payload["call_id"].astext
    kind = SessionEvent.event_type
    rows = db.session.execute(
        select(*_columns(shorten_payload())).where(
            *_of(session_id, actor),
            ((kind == "tool.call") & call.in_(names))
            | ((kind == "tool.result") & func.coalesce(result, call).in_(names)),
        )
    )
    return [Event(*row) for row in rows]


def read_outline(session_id: UUID, *, actor: Actor, whole: Collection[str] = ()) -> list[Event]:
    """What happened when, of the first 5,000 events: their payloads hold only the names that others know them by. Those
    of the results of the calls in `whole` are as transcripts show them."""
    names = [part for name in NAMES for part in (name, func.left(SessionEvent.payload[name].astext, MAX_NAME_LENGTH))]
    short = func.jsonb_strip_nulls(func.jsonb_build_object(*names))
    asked_for = (SessionEvent.event_type == "tool.result") & SessionEvent.payload["call_id"].astext.in_(whole)
    rows = db.session.execute(
        select(*_columns(case((asked_for, shorten_payload()), else_=short) if whole else short))
        .where(*_of(session_id, actor))
        .order_by(SessionEvent.occurred_at, SessionEvent.sequence)
        .limit(MAX_OUTLINE)
    )
    return [Event(*row) for row in rows]


def find_event(session_id: UUID, *, actor: Actor, ending: str) -> Event:
    """The event whose id ends like this: the short form that anchors on a page carry."""
    if not re.fullmatch(r"[0-9a-f]{8,32}", ending, re.ASCII):
        raise NotFound(NO_EVENT)
    return _find(session_id, actor, func.replace(cast(SessionEvent.id, Text), "-", "").endswith(ending))


def get_event(session_id: UUID, event_id: UUID, *, actor: Actor) -> Event:
    """One event with all that it holds."""
    return _find(session_id, actor, SessionEvent.id == event_id)


def _find(session_id: UUID, actor: Actor, condition: ColumnElement[bool]) -> Event:
    wanted = select(*_columns()).where(*_of(session_id, actor), condition).order_by(SessionEvent.sequence).limit(1)
    row = db.session.execute(wanted).one_or_none()
    if row is None:
        raise NotFound(NO_EVENT)
    return Event(*row)


def cursor_before(event: Event) -> str:
    """Where a part begins that has this event first."""
    return EventCursor(event.occurred_at, event.sequence - 1).text()


def cursor_of(session_id: UUID, event_id: UUID, *, actor: Actor) -> str | None:
    """Where to begin to read at an event: at the beginning (None) when one part holds the session, or the event is not
    there. One query."""
    long = exists().where(AgentSession.id == SessionEvent.session_id, AgentSession.event_count > EVENTS)
    with suppress(NotFound):
        return cursor_before(_find(session_id, actor, (SessionEvent.id == event_id) & long))
    return None
