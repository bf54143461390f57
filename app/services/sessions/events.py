"""Store what happened in a session: numbered in order of arrival, many events in one statement."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import update
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.orm.util import identity_key

from app.actor import Actor
from app.db import db, get_own, run
from app.errors import Invalid, NotFound, Problem, Refused
from app.formats import session_limits as limits
from app.formats.tool_results import is_truncated, with_error_mark
from app.models import AgentSession
from app.models.sessions import EVENT_TYPES
from app.services import audit
from app.services.workspaces.store import masking_for
from app.text.masking import Masking

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
# What each payload must hold. Other keys may follow.
NEEDED: dict[str, tuple[str, ...]] = {
    "user.message": ("text",), "agent.message": ("text",), "tool.call": ("id", "name"), "tool.result": ("call_id",),
}  # fmt: skip
# All rows are one JSON text: the driver would write out arrays item by item, which takes longer than the insert.
ADDED = """WITH added AS (
    INSERT INTO session_events (id, tenant_id, session_id, sequence, event_type, payload, occurred_at)
    SELECT e.id, %(tenant)s, e.session_id, e.sequence, e.event_type, e.payload, e.occurred_at
      FROM jsonb_to_recordset(%(rows)s::jsonb) AS e (
           id uuid, session_id uuid, sequence integer, event_type text, payload jsonb, occurred_at timestamptz)
    RETURNING session_id, payload_bytes)"""
ADD = f"""{ADDED},
sized AS (SELECT session_id, count(*) AS number, sum(payload_bytes) AS bytes, max(payload_bytes) AS largest
            FROM added GROUP BY session_id)
UPDATE sessions AS s
   SET event_count = s.event_count + sized.number, event_bytes = s.event_bytes + sized.bytes,
       truncated = s.truncated OR s.id = ANY (%(truncated)s::uuid[])
  FROM sized
 WHERE s.tenant_id = %(tenant)s AND s.id = sized.session_id
RETURNING s.event_bytes, sized.largest, s.event_count, s.truncated
"""
# All that storing events asks of a session, its agent and its workspace, with the lock that numbers the events.
LOCK = """
SELECT s.id, s.status, s.golden_set, s.event_count, s.event_bytes, s.attempt, s.eval_source, a.kind,
       coalesce((t.settings ->> 'mask_emails')::boolean, false),
       coalesce((t.settings ->> 'mask_phones')::boolean, false)
  FROM sessions AS s JOIN agents AS a ON a.tenant_id = s.tenant_id AND a.id = s.agent_id
  JOIN tenants AS t ON t.id = s.tenant_id
 WHERE s.tenant_id = %(tenant)s AND s.id = %(session)s FOR NO KEY UPDATE OF s
"""
# A run that reached the budget still says how it ended.
FOR_THE_END = 1_048_576
GOLDEN = "This session is golden. Its events are frozen. Revoke the golden first."
_budget = [limits.SESSION_BYTES]


@dataclass(frozen=True)
class NewEvent:
    event_type: str
    payload: dict[str, Any] = field(default_factory=dict)
    occurred_at: datetime | None = None


class EventRow(NamedTuple):
    """An event that was checked and numbered; its payload is JSON text already."""

    id: UUID
    session_id: UUID
    sequence: int
    event_type: str
    payload: str
    occurred_at: datetime
    truncated: bool

    @property
    def as_json(self) -> str:
        """The type was checked against a list of plain words, so nothing here needs escaping."""
        return (
            f'{{"id":"{self.id}","session_id":"{self.session_id}","sequence":{self.sequence},'
            f'"event_type":"{self.event_type}","occurred_at":"{_write_moment(self.occurred_at)}","payload":{self.payload}}}'
        )


@lru_cache(maxsize=16)
def _write_moment(at: datetime) -> str:
    return at.isoformat()


class LockedSession(NamedTuple):
    """A session that waits for events, as `LOCK` reads it."""

    id: UUID
    status: str
    golden_set: str | None
    event_count: int
    event_bytes: int
    attempt: int
    eval_source: str | None
    kind: str
    mask_emails: bool
    mask_phones: bool

    @property
    def masking(self) -> Masking:
        return Masking(self.mask_emails, self.mask_phones)


def lock_session(session_id: UUID, *, actor: Actor) -> LockedSession:
    """Lock the session as `lock_for_events` does, and read only what storing events needs. One query."""
    found = run(LOCK, {"tenant": actor.tenant_id, "session": session_id})
    if not found:
        raise NotFound("There is no such session in this workspace.")
    session = LockedSession(*found[0])
    if session.golden_set is not None:
        raise Refused(GOLDEN)
    return session


def lock_for_events(session_id: UUID, *, actor: Actor) -> AgentSession:
    """Lock the session until the transaction ends; the holder of the lock numbers the next events."""
    session = get_own(AgentSession, session_id, "session", actor=actor, lock=True)
    if session.golden_set is not None:
        raise Refused(GOLDEN)
    return session


def write_events(session: AgentSession, events: Sequence[NewEvent], *, actor: Actor) -> list[UUID]:
    """Number and store events of a locked session, without the secrets in them."""
    if not events:
        return []
    rows, (total, _, count, truncated) = _number_and_add(session, events, masking_for(actor), actor)
    for name, value in (("event_bytes", total), ("event_count", count), ("truncated", truncated)):
        set_committed_value(session, name, value)
    return [row.id for row in rows]


def _number_and_add(
    session: AgentSession | LockedSession, events: Sequence[NewEvent], masking: Masking, actor: Actor
) -> tuple[list[EventRow], tuple[Any, ...]]:
    if len(events) > limits.EVENTS_AT_ONCE:
        raise Invalid(f"At most {limits.EVENTS_AT_ONCE:,} events at once. Send the rest in a second request.")
    rows = rows_of(session.id, reported(events, actor), masking, before=session.event_count)
    return rows, add_rows(rows, tenant_id=actor.tenant_id)[0]


def add_events(session: LockedSession, events: Sequence[NewEvent], *, actor: Actor) -> tuple[list[UUID], int, int]:
    """Number and store events of a locked session; their ids, and how many events and bytes it has then."""
    if not events:
        return [], session.event_count, session.event_bytes
    rows, (total, _, count, _) = _number_and_add(session, events, session.masking, actor)
    if loaded := db.session.identity_map.get(identity_key(AgentSession, session.id)):
        db.session.expire(loaded)
    return [row.id for row in rows], count, total


def reported(events: Sequence[NewEvent], actor: Actor) -> Sequence[NewEvent]:
    """The events as a sender reports them: what was in a prompt is their word, and marked as such."""
    if actor.role == "system":
        return events
    return [
        replace(event, payload={**event.payload, "reported": True}) if event.event_type == "context.loaded" else event
        for event in events
    ]


def rows_of(session_id: UUID, events: Sequence[NewEvent], masking: Masking, *, before: int = 0) -> list[EventRow]:
    """Events as they are stored: checked, masked, numbered from `before` + 1 on, each with its id and its time."""
    if before + len(events) > limits.EVENTS_IN_SESSION:
        raise Refused(f"A session holds at most {limits.EVENTS_IN_SESSION:,} events. Begin another for what follows.")
    rows = []
    for index, (event, at) in enumerate(zip(events, times_of(events), strict=True)):
        kind, payload = event.event_type, _masked_text(_payload(event, index), masking, index)
        cut = is_truncated(kind, event.payload)
        rows.append(EventRow(uuid4(), session_id, before + index + 1, kind, payload, at, cut))
    return rows


def add_rows(rows: Sequence[EventRow], *, tenant_id: UUID) -> list[tuple[Any, ...]]:
    """Store rows of sessions that are locked or new, and what each session holds then."""
    # Only the database knows how large they are, so what exceeds a budget is refused after it was written.
    if not rows:
        return []
    sizes = run(ADD, row_parameters(rows, tenant_id))
    check_sizes(sizes)
    return sizes


def row_parameters(rows: Sequence[EventRow], tenant_id: UUID) -> dict[str, Any]:
    truncated = {str(row.session_id) for row in rows if row.truncated}
    return {
        "tenant": tenant_id,
        "rows": f"[{','.join(row.as_json for row in rows)}]",
        "truncated": f"{{{','.join(truncated)}}}",
    }


def times_of(events: Sequence[NewEvent]) -> list[datetime]:
    """When each event happened. One without a time has that of the event before it, or of the first with a time, so
    that it keeps its place in the batch; where no event has a time, all of them happen now."""
    at = next((event.occurred_at for event in events if event.occurred_at), None) or datetime.now(UTC)
    found = []
    for index, event in enumerate(events):
        if event.occurred_at is not None and event.occurred_at.tzinfo is None:
            raise _invalid(index, "occurred_at", "Say the offset, as in 2026-03-31T09:30:00+02:00.")
        at = event.occurred_at or at
        found.append(at)
    return found


def check_event(event: NewEvent, index: int) -> None:
    """Raise Invalid for an event that could not be stored."""
    _as_text(_payload(event, index), index)


def _masked_text(payload: dict[str, Any], masking: Masking, index: int) -> str:
    text = _as_text(payload, index)
    return _as_text(masking.value(payload), index) if masking.may_change(text) else text


def _as_text(payload: dict[str, Any], index: int) -> str:
    text = _encode(payload)
    if len(text) > limits.PAYLOAD_BYTES or len(text.encode()) > limits.PAYLOAD_BYTES:
        raise _invalid(index, "payload", f"Send at most {limits.PAYLOAD_BYTES:,} bytes of JSON.")
    return text


def _payload(event: NewEvent, index: int) -> dict[str, Any]:
    if event.event_type not in EVENT_TYPES:
        raise _invalid(index, "event_type", f"Use one of {', '.join(EVENT_TYPES)}.")
    for name in NEEDED.get(event.event_type, ()):
        if not isinstance(event.payload.get(name), str):
            raise _invalid(index, f"payload.{name}", f"A {event.event_type} needs {name} as text.")
    return with_error_mark(event.payload) if event.event_type == "tool.result" else event.payload


def _invalid(index: int, name: str, sentence: str) -> Invalid:
    return Invalid.of({f"events.{index}.{name}": sentence})


class SessionFull(Problem):
    """The session has no room for these events. None of them was stored."""

    status = 413
    title = "The session is full"

    def __init__(self) -> None:
        most = format_bytes(session_budget())
        sentence = (
            f"This would exceed the session's budget of {most} of events. Nothing was stored. Start a new session."
        )
        super().__init__(sentence, budget_bytes=session_budget())


def full_reason() -> str:
    """Why a run of ours could not continue."""
    return (
        f"The session reached its budget of {format_bytes(session_budget())} of events, so the run could not continue."
    )


def use_budget(most: int) -> None:
    """Apply the operator's setting to this process."""
    _budget[0] = most


def session_budget() -> int:
    return _budget[0]


def check_sizes(sizes: Iterable[tuple[Any, ...]], *, spare: int = 0) -> None:
    """Refuse what was just written where it does not fit: rows with a session's bytes and its largest new payload."""
    for total, largest, *_ in sizes:
        if largest > limits.STORED_PAYLOAD_BYTES:
            raise Invalid(
                f"A payload takes more than {limits.STORED_PAYLOAD_BYTES:,} bytes when it is stored, where numbers such"
                " as 1e300 are written out. Send such numbers as text."
            )
        if total > session_budget() + spare:
            raise SessionFull


def full_size(session: AgentSession) -> str | None:
    """How much of its budget a session uses, where events were refused or would be."""
    if session.full_at is None and session.event_bytes < session_budget():
        return None
    return f"{format_bytes(session.event_bytes)} of {format_bytes(session_budget())}"


def mark_full(session_id: UUID, *, actor: Actor) -> None:
    """Note on a session that events were refused, once."""
    ours = [AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id]
    marked = db.session.scalar(
        update(AgentSession)
        .where(*ours, AgentSession.full_at.is_(None), AgentSession.golden_set.is_(None))
        .values(full_at=datetime.now(UTC))
        .returning(AgentSession.id)
        .execution_options(synchronize_session=False)
    )
    if marked is not None:
        audit.record(actor, "session.filled", "session", session_id, budget=session_budget())


def format_bytes(size: int) -> str:
    """A size as people write it: `64 MB`, `1.5 MB`, `12 KB`."""
    for unit, name in ((1_000_000, "MB"), (1000, "KB")):
        if size >= unit:
            return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{size} bytes"
