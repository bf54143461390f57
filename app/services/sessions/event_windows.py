"""Events of a session in windows, each bounded in number and in bytes: nobody holds a whole session at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.db import run
from app.db.paging import join_cursor, split_cursor
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
    """An event as it is read. Its payload is a dict, or JSON text where that was asked for: parsed, some payloads take
    twenty times as much memory."""

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
    def read(cls, text: str) -> EventCursor:
        try:
            at, sequence = split_cursor(text)
            moment = datetime.fromisoformat(at)
            if moment.tzinfo is None or not -1 <= int(sequence) < 2**31:
                raise ValueError
            return cls(moment, int(sequence))
        except ValueError:
            raise Invalid(
                "This place in the session does not exist; leave it out to begin at the first event."
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
