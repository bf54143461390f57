"""What happened in a session: appended in order of arrival, read in order of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import select

from app.actor import Actor
from app.db import db, run
from app.errors import Invalid, NotFound, Refused
from app.learning import session_limits as limits
from app.learning.masking import Masking
from app.learning.tool_calls import with_error_mark
from app.models import AgentSession
from app.models.sessions import EVENT_TYPES
from app.services.bulk_events import EventRow, add_rows, as_json
from app.services.masks import masking_for

MOST_AT_ONCE = limits.EVENTS_AT_ONCE
EVENTS = """
SELECT id, sequence, event_type, payload, occurred_at FROM session_events
 WHERE tenant_id = %(tenant)s AND session_id = %(session)s
 ORDER BY occurred_at, sequence
 LIMIT %(limit)s::bigint
"""
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
    """Number and store events of a locked session, without the secrets in them."""
    if len(events) > MOST_AT_ONCE:
        raise Invalid(f"At most {MOST_AT_ONCE:,} events at once; send the rest in a second request.")
    if not events:
        return []
    rows = rows_of(events, masking_for(actor), before=session.event_count)
    add_rows(rows, tenant_id=actor.tenant_id, session_id=session.id, before=session.event_count)
    session.event_count += len(rows)
    db.session.flush()
    return [row.id for row in rows]


def rows_of(events: Sequence[NewEvent], masking: Masking, *, before: int = 0) -> list[EventRow]:
    """Events as they are stored: checked, masked, each with its id and its time."""
    if before + len(events) > limits.EVENTS_IN_SESSION:
        raise Refused(f"A session holds at most {limits.EVENTS_IN_SESSION:,} events; begin another for what follows.")
    now = datetime.now(UTC)
    return [
        EventRow(uuid4(), event.event_type, _stored(event, index, masking), _moment(event.occurred_at, now, index))
        for index, event in enumerate(events)
    ]


def check_event(event: NewEvent, index: int) -> None:
    """Raise Invalid for an event that could not be stored."""
    _sized(_payload(event, index), index)


def _stored(event: NewEvent, index: int, masking: Masking) -> str:
    return _sized(masking.value(_payload(event, index)), index)


def _sized(payload: dict[str, Any], index: int) -> str:
    text = as_json(payload)
    if len(text) > limits.PAYLOAD_BYTES or len(text.encode()) > limits.PAYLOAD_BYTES:
        raise _invalid(index, "payload", f"Send at most {limits.PAYLOAD_BYTES:,} bytes of JSON.")
    return text


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
    rows = run(EVENTS, {"tenant": actor.tenant_id, "session": session_id, "limit": limit})
    return [Event(*row) for row in rows]
