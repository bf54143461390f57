"""Events of a session in windows, each bounded in number and in bytes: nobody holds a whole session at once.

Pages show a session in parts. A part ends where as few calls as possible wait for their result; what is still split is
brought together here, so that every call is shown once, with its result.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Text, case, cast, exists, func, select

from app.actor import Actor
from app.db import db, run
from app.db.paging import join_cursor, split_cursor
from app.errors import Invalid, NotFound
from app.models import AgentSession, SessionEvent

WINDOW_EVENTS = 500
WINDOW_BYTES = 1_000_000
# The database knows how large each payload is, so what does not fit is neither unpacked nor sent. The first event of a
# window always is.
WINDOW = """
SELECT w.id, w.sequence, w.event_type, w.payload{cast}, w.occurred_at, w.number
  FROM (SELECT e.*, sum(e.payload_bytes) OVER (ORDER BY e.occurred_at, e.sequence) AS so_far,
               row_number() OVER (ORDER BY e.occurred_at, e.sequence) AS place, count(*) OVER () AS number
          FROM (SELECT id, sequence, event_type, payload, payload_bytes, occurred_at FROM session_events
                 WHERE tenant_id = %(tenant)s AND session_id = %(session)s
                   AND (occurred_at, sequence) > (%(at)s::timestamptz, %(after)s::integer)
                   AND (%(kinds)s::text[] IS NULL OR event_type = ANY (%(kinds)s::text[]))
                 ORDER BY occurred_at, sequence
                 LIMIT %(most)s::bigint) AS e) AS w
 WHERE w.so_far <= %(bytes)s::bigint OR w.place = 1
 ORDER BY w.occurred_at, w.sequence
"""
READ, AS_TEXT = WINDOW.format(cast=""), WINDOW.format(cast="::text")
AT = """
SELECT sequence, payload FROM session_events
 WHERE tenant_id = %(tenant)s AND session_id = %(session)s AND sequence = ANY (%(places)s::integer[])
"""
# One part of a page.
PART_EVENTS = 100
PART_BYTES = 60_000
MAX_OUTLINE = 5000
NAMES = ("id", "call_id", "message_id", "turn_id")
MAX_NAME_LENGTH = 300
# A larger payload is shown by its beginning, beside a link to all of it.
LARGE_PAYLOAD = 20_000
MAX_SHOWN = 8000
KEPT_KEYS = ("name", "is_error", "duration_ms", "row_ids", "entity_id", "entity_type")
TRUNCATED_KEYS = ("text", "arguments", "output")
NO_EVENT = "There is no such event in this session."


@dataclass(frozen=True)
class Event:
    """An event as it is read. Its payload is a dict, or JSON text, which takes up to twenty times less memory."""

    id: UUID
    sequence: int
    event_type: str
    payload: Any
    occurred_at: datetime


@dataclass(frozen=True)
class EventCursor:
    """Right behind an event, in the order in which events are read."""

    at: datetime
    sequence: int

    def text(self) -> str:
        return join_cursor(self.at.isoformat(), self.sequence)

    @classmethod
    def parse(cls, text: str) -> EventCursor:
        try:
            at, sequence = split_cursor(text)
            moment = datetime.fromisoformat(at)
            if moment.tzinfo is None or not -1 <= int(sequence) < 2**31:
                raise ValueError
            return cls(moment, int(sequence))
        except ValueError:
            raise Invalid(
                "This place in the session does not exist. Leave it out to begin at the first event."
            ) from None


def read_window(
    session_id: UUID,
    after: EventCursor | None = None,
    *,
    actor: Actor,
    most: int = WINDOW_EVENTS,
    most_bytes: int = WINDOW_BYTES,
    kinds: Sequence[str] | None = None,
    as_text: bool = False,
) -> tuple[list[Event], bool]:
    """The events behind a place, in order of time, and whether more follow. One query."""
    rows = run(
        AS_TEXT if as_text else READ,
        {
            "tenant": actor.tenant_id,
            "session": session_id,
            "at": after.at.isoformat() if after else "-infinity",
            "after": after.sequence if after else 0,
            "kinds": f"{{{','.join(kinds)}}}" if kinds is not None else None,
            "most": most + 1,
            "bytes": most_bytes,
        },
    )
    found = rows[:most]
    return [Event(*row[:5]) for row in found], bool(rows) and rows[0][5] > len(found)


def cursor_after(event: Event) -> EventCursor:
    """The place behind an event."""
    return EventCursor(event.occurred_at, event.sequence)


def iterate_events(
    session_id: UUID, *, actor: Actor, kinds: Sequence[str] | None = None, as_text: bool = False
) -> Iterator[Event]:
    """All events in order of time, read window by window. Late ones find their place."""
    place, more = None, True
    while more:
        events, more = read_window(session_id, place, actor=actor, kinds=kinds, as_text=as_text)
        place = cursor_after(events[-1]) if events else None
        yield from events


def events_of(session_id: UUID, *, actor: Actor) -> list[Event]:
    """Return all events in order of time, for a run that continues. Pages and comparisons read a part of them."""
    return list(iterate_events(session_id, actor=actor))


def payloads_at(session_id: UUID, places: Sequence[int], *, actor: Actor) -> dict[int, dict[str, Any]]:
    """The payloads of a few events by their numbers."""
    given = {"tenant": actor.tenant_id, "session": session_id, "places": f"{{{','.join(map(str, places))}}}"}
    return dict(run(AT, given))


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
    events, more = read_window(session_id, actor=actor, most=PART_EVENTS, most_bytes=PART_BYTES)
    if not more:
        return SessionPart(events), events
    events = events[: _cut(events)]
    waiting = _names("tool.call", events) - _names("tool.result", events)
    outline = read_outline(session_id, actor=actor, whole=waiting)
    late = [event for event in outline if event.event_type == "tool.result" and _name(event) in waiting]
    return SessionPart(events, late, cursor_after(events[-1]).text()), outline


def read_part(session_id: UUID, after: str, *, actor: Actor) -> SessionPart:
    """The part that follows a place. One query, two when a call and its result are far apart."""
    events, more = read_window(
        session_id, EventCursor.parse(after), actor=actor, most=PART_EVENTS, most_bytes=PART_BYTES
    )
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


def _in_session(session_id: UUID, actor: Actor) -> list[ColumnElement[bool]]:
    return [SessionEvent.tenant_id == actor.tenant_id, SessionEvent.session_id == session_id]


def _name(event: Event) -> str:
    """What a call and its result have in common."""
    payload = event.payload
    name = payload.get("id") if event.event_type == "tool.call" else payload.get("call_id") or payload.get("id")
    return str(name or event.id)


def _cut(events: Sequence[Event]) -> int:
    """How many events to show: at least two thirds, ending where the fewest calls wait, best before a user message."""
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
            *_in_session(session_id, actor),
            ((kind == "tool.call") & call.in_(names))
            | ((kind == "tool.result") & func.coalesce(result, call).in_(names)),
        )
    )
    return [Event(*row) for row in rows]


def read_outline(session_id: UUID, *, actor: Actor, whole: Collection[str] = ()) -> list[Event]:
    """The first 5,000 events with only names in their payloads; results of the calls in `whole` have all they show."""
    names = [part for name in NAMES for part in (name, func.left(SessionEvent.payload[name].astext, MAX_NAME_LENGTH))]
    short = func.jsonb_strip_nulls(func.jsonb_build_object(*names))
    asked_for = (SessionEvent.event_type == "tool.result") & SessionEvent.payload["call_id"].astext.in_(whole)
    rows = db.session.execute(
        select(*_columns(case((asked_for, shorten_payload()), else_=short) if whole else short))
        .where(*_in_session(session_id, actor))
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
    wanted = (
        select(*_columns()).where(*_in_session(session_id, actor), condition).order_by(SessionEvent.sequence).limit(1)
    )
    row = db.session.execute(wanted).one_or_none()
    if row is None:
        raise NotFound(NO_EVENT)
    return Event(*row)


def cursor_before(event: Event) -> str:
    """Where a part begins that has this event first."""
    return EventCursor(event.occurred_at, event.sequence - 1).text()


def cursor_of(session_id: UUID, event_id: UUID, *, actor: Actor) -> str | None:
    """Where to begin to read at an event; None when one part holds the session, or there is no event. One query."""
    long = exists().where(AgentSession.id == SessionEvent.session_id, AgentSession.event_count > PART_EVENTS)
    with suppress(NotFound):
        return cursor_before(_find(session_id, actor, (SessionEvent.id == event_id) & long))
    return None
