"""Events of a session in windows, each bounded in number and in bytes: nobody holds a whole session at once."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.db import run
from app.errors import Invalid

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


@dataclass(frozen=True)
class Event:
    """An event as it is read."""

    id: UUID
    sequence: int
    event_type: str
    payload: dict[str, Any]
    occurred_at: datetime


@dataclass(frozen=True)
class EventCursor:
    """Right behind an event, in the order in which events are read."""

    at: datetime
    sequence: int

    def text(self) -> str:
        return base64.urlsafe_b64encode(f"{self.at.isoformat()}|{self.sequence}".encode()).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> EventCursor:
        try:
            if len(text) > 120:
                raise ValueError
            plain = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
            at, sequence = plain.decode("ascii").split("|")
            moment = datetime.fromisoformat(at)
            if moment.tzinfo is None or not -1 <= int(sequence) < 2**31:
                raise ValueError
            return cls(moment, int(sequence))
        except (ValueError, binascii.Error):
            raise Invalid(
                "This place in the session does not exist; leave it out to begin at the first event."
            ) from None


@dataclass(frozen=True)
class RawEvent:
    """An event whose payload is JSON text. Parsed, some payloads take twenty times as much memory."""

    id: UUID
    sequence: int
    event_type: str
    payload: str
    occurred_at: datetime


def read_window(
    session_id: UUID,
    after: EventCursor | None = None,
    *,
    actor: Actor,
    most: int = WINDOW_EVENTS,
    most_bytes: int = WINDOW_BYTES,
    kinds: Sequence[str] | None = None,
) -> tuple[list[Event], bool]:
    """The events behind a place, in order of time, and whether more follow. One query."""
    rows, more = _read(READ, session_id, after, actor, most, most_bytes, kinds)
    return [Event(*row) for row in rows], more


def read_raw_window(
    session_id: UUID, after: EventCursor | None = None, *, actor: Actor, most: int, most_bytes: int
) -> tuple[list[RawEvent], str | None]:
    """The same with payloads as text, and the cursor of what follows."""
    rows, more = _read(AS_TEXT, session_id, after, actor, most, most_bytes, None)
    events = [RawEvent(*row) for row in rows]
    return events, cursor_after(events[-1]) if more else None


def _read(
    statement: str,
    session_id: UUID,
    after: EventCursor | None,
    actor: Actor,
    most: int,
    most_bytes: int,
    kinds: Sequence[str] | None,
) -> tuple[list[tuple[Any, ...]], bool]:
    rows = run(
        statement,
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
    return [row[:5] for row in found], bool(rows) and rows[0][5] > len(found)


def cursor_after(event: Event | RawEvent) -> str:
    """The place behind an event, as addresses and cursors write it."""
    return EventCursor(event.occurred_at, event.sequence).text()


def iterate_events(session_id: UUID, *, actor: Actor, kinds: Sequence[str] | None = None) -> Iterator[Event]:
    """All events in order of time, read window by window. Late ones find their place."""
    for event in _iterate(READ, session_id, actor, kinds):
        yield Event(*event)


def iterate_raw_events(session_id: UUID, *, actor: Actor) -> Iterator[RawEvent]:
    """The same with payloads as text."""
    for event in _iterate(AS_TEXT, session_id, actor, None):
        yield RawEvent(*event)


def _iterate(statement: str, session_id: UUID, actor: Actor, kinds: Sequence[str] | None) -> Iterator[tuple[Any, ...]]:
    place, more = None, True
    while more:
        rows, more = _read(statement, session_id, place, actor, WINDOW_EVENTS, WINDOW_BYTES, kinds)
        if rows:
            place = EventCursor(rows[-1][4], rows[-1][1])
        yield from rows


def payloads_at(session_id: UUID, places: Sequence[int], *, actor: Actor) -> dict[int, dict[str, Any]]:
    """The payloads of a few events by their numbers."""
    given = {"tenant": actor.tenant_id, "session": session_id, "places": f"{{{','.join(map(str, places))}}}"}
    return dict(run(AT, given))
