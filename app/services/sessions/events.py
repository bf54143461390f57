"""What happened in a session: appended in order of arrival, read in order of time."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import select
from sqlalchemy.orm.attributes import set_committed_value

from app.actor import Actor
from app.db import db
from app.errors import Invalid, NotFound, Refused
from app.formats import session_limits as limits
from app.formats.tool_results import with_error_mark
from app.formats.truncation import is_truncated
from app.models import AgentSession
from app.models.sessions import EVENT_TYPES
from app.services.sessions.bulk_events import EventRow, add_rows, as_json
from app.services.sessions.event_windows import Event, iterate_events
from app.services.workspaces.masking import masking_for
from app.text.masking import Masking

__all__ = [
    "Event", "NewEvent", "check_event", "events_of", "lock_for_events", "rows_of", "times_of", "write_events",
]  # fmt: skip
MAX_AT_ONCE = limits.EVENTS_AT_ONCE
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


def lock_for_events(session_id: UUID, *, actor: Actor) -> AgentSession:
    """Lock the session until the transaction ends; the holder of the lock numbers the next events."""
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
    if len(events) > MAX_AT_ONCE:
        raise Invalid(f"At most {MAX_AT_ONCE:,} events at once; send the rest in a second request.")
    if not events:
        return []
    rows = rows_of(reported(events, actor), masking_for(actor), before=session.event_count)
    total = add_rows(rows, tenant_id=actor.tenant_id, session_id=session.id, before=session.event_count)
    set_committed_value(session, "event_bytes", total)
    session.event_count += len(rows)
    session.truncated = session.truncated or any(is_truncated(event.event_type, event.payload) for event in events)
    db.session.flush()
    return [row.id for row in rows]


def reported(events: Sequence[NewEvent], actor: Actor) -> Sequence[NewEvent]:
    """The events as a sender reports them. That something was in a prompt is then their word, and marked as such; our
    own runtime writes its events another way."""
    if actor.role == "system":
        return events
    return [
        replace(event, payload={**event.payload, "reported": True}) if event.event_type == "context.loaded" else event
        for event in events
    ]


def rows_of(events: Sequence[NewEvent], masking: Masking, *, before: int = 0) -> list[EventRow]:
    """Events as they are stored: checked, masked, each with its id and its time."""
    if before + len(events) > limits.EVENTS_IN_SESSION:
        raise Refused(f"A session holds at most {limits.EVENTS_IN_SESSION:,} events; begin another for what follows.")
    return [
        EventRow(uuid4(), event.event_type, _stored(event, index, masking), at)
        for index, (event, at) in enumerate(zip(events, times_of(events), strict=True))
    ]


def times_of(events: Sequence[NewEvent]) -> list[datetime]:
    """When each event happened. One without a time has that of the event before it, or of the first with a time, so
    that it keeps its place in the batch; where no event has a time, all of them happen now."""
    given = [_read_time(event.occurred_at, index) for index, event in enumerate(events)]
    at = next((time for time in given if time is not None), None) or datetime.now(UTC)
    found = []
    for time in given:
        at = time or at
        found.append(at)
    return found


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


def _read_time(given: datetime | None, index: int) -> datetime | None:
    if given is not None and given.tzinfo is None:
        raise _invalid(index, "occurred_at", "Say the offset, as in 2026-03-31T09:30:00+02:00.")
    return given


def _invalid(index: int, name: str, sentence: str) -> Invalid:
    return Invalid.of({f"events.{index}.{name}": sentence})


def events_of(session_id: UUID, *, actor: Actor) -> list[Event]:
    """Return all events in order of time, for a run that continues. Pages and comparisons read a part of them."""
    return list(iterate_events(session_id, actor=actor))
