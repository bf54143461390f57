"""What happened in a session: appended in order of arrival, read in order of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import insert, select

from app.actor import Actor
from app.db import db
from app.errors import Invalid, NotFound, Refused
from app.learning.tool_calls import with_error_mark
from app.models import AgentSession, SessionEvent
from app.models.sessions import EVENT_TYPES

MOST_AT_ONCE = 1000
# What each payload must hold. Other keys may follow.
NEEDED: dict[str, dict[str, type]] = {
    "user.message": {"text": str},
    "agent.message": {"text": str},
    "tool.call": {"id": str, "name": str},
    "tool.result": {"call_id": str},
}


@dataclass(frozen=True)
class NewEvent:
    event_type: str
    payload: dict[str, Any] = field(default_factory=dict)
    occurred_at: datetime | None = None


@dataclass(frozen=True)
class Event:
    """An event as it is read."""

    id: UUID
    sequence: int
    event_type: str
    payload: dict[str, Any]
    occurred_at: datetime


def lock_for_events(session_id: UUID, *, actor: Actor) -> AgentSession:
    """The session, held until the transaction ends: whoever holds it numbers the next events."""
    session = db.session.scalar(
        select(AgentSession)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    if session is None:
        raise NotFound("There is no such session in this workspace.")
    if session.golden_set is not None:
        raise Refused("This session is golden; its events are frozen. Revoke the golden first.")
    return session


def write_events(session: AgentSession, events: Sequence[NewEvent], *, actor: Actor) -> list[UUID]:
    """Number and store events of a locked session."""
    if len(events) > MOST_AT_ONCE:
        raise Invalid(f"At most {MOST_AT_ONCE:,} events at once; send the rest in a second request.")
    now = datetime.now(UTC)
    rows: list[dict[str, Any]] = [
        {
            "id": uuid4(),
            "tenant_id": actor.tenant_id,
            "session_id": session.id,
            "sequence": session.event_count + place,
            "event_type": event.event_type,
            "payload": _payload(event, place - 1),
            "occurred_at": _moment(event.occurred_at, now, place - 1),
        }
        for place, event in enumerate(events, start=1)
    ]
    if rows:
        db.session.execute(insert(SessionEvent), rows)
        session.event_count += len(rows)
        db.session.flush()
    return [row["id"] for row in rows]


def _payload(event: NewEvent, index: int) -> dict[str, Any]:
    if event.event_type not in EVENT_TYPES:
        raise _invalid(index, "event_type", f"Use one of {', '.join(EVENT_TYPES)}.")
    for name, kind in NEEDED.get(event.event_type, {}).items():
        if not isinstance(event.payload.get(name), kind):
            raise _invalid(index, f"payload.{name}", f"A {event.event_type} needs {name} as text.")
    if event.event_type == "tool.result":
        return with_error_mark(event.payload)
    return event.payload


def _moment(given: datetime | None, now: datetime, index: int) -> datetime:
    if given is None:
        return now
    if given.tzinfo is None:
        raise _invalid(index, "occurred_at", "Say the offset, as in 2026-03-31T09:30:00+02:00.")
    return given


def _invalid(index: int, name: str, sentence: str) -> Invalid:
    return Invalid(f"events.{index}.{name}: {sentence}", {f"events.{index}.{name}": sentence})


def events_of(session_id: UUID, *, actor: Actor, limit: int | None = None) -> list[Event]:
    """The events in order of time. Late ones find their place."""
    rows = db.session.execute(
        select(
            SessionEvent.id,
            SessionEvent.sequence,
            SessionEvent.event_type,
            SessionEvent.payload,
            SessionEvent.occurred_at,
        )
        .where(SessionEvent.tenant_id == actor.tenant_id, SessionEvent.session_id == session_id)
        .order_by(SessionEvent.occurred_at, SessionEvent.sequence)
        .limit(limit)
    )
    return [Event(*row) for row in rows]
