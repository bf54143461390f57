"""Run a session under a lease. Every write names holder and attempt, so a worker that lost its lease writes nothing."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import func, select, text, tuple_, update

from app.actor import Actor
from app.db import db, run
from app.models import AgentSession, SessionDraft
from app.services import audit_entry
from app.services.chats.store import NewMessage, append_messages
from app.services.sessions.events import (
    ADDED,
    FOR_THE_END,
    EventRow,
    NewEvent,
    add_rows,
    check_sizes,
    row_parameters,
    rows_of,
)
from app.services.sessions.store import after_end, milliseconds_between
from app.text.masking import Masking

MAX_ATTEMPTS = 3
# A replay changes nothing outside itself, so losing its process is no reason to give up on it early.
MAX_LOST = 10
GIVEN_UP = "This session failed three times without an answer."
PROCESSES_LOST = "This replay failed ten times because its process was lost."
CLAIM = text("SELECT session_id, tenant_id, attempt FROM door_claim(:owner, :most, :lease)")
DRAFT = text("""
    INSERT INTO session_drafts (tenant_id, session_id, text)
    SELECT s.tenant_id, s.id, :text FROM sessions AS s
     WHERE s.tenant_id = :tenant AND s.id = :session AND s.lease_owner = :owner AND s.attempt = :attempt
       AND s.status = 'running'
    ON CONFLICT (tenant_id, session_id) DO UPDATE SET text = excluded.text, updated_at = clock_timestamp()
    RETURNING session_id
""")
END = f"""{ADDED},
sized AS (SELECT count(*) AS number, coalesce(sum(payload_bytes), 0) AS bytes,
                 coalesce(max(payload_bytes), 0) AS largest
            FROM added),
gone AS (DELETE FROM session_drafts WHERE tenant_id = %(tenant)s AND session_id = %(session)s),
noted AS (INSERT INTO audit_log (tenant_id, actor_user_id, actor_agent_id, action, subject_type, subject_id, details)
    VALUES (%(tenant)s, %(user)s, %(agent)s, 'session.finished', 'session', %(session)s, %(details)s::jsonb))
UPDATE sessions
   SET status = %(status)s, error = %(error)s, finished_at = %(at)s, duration_ms = %(duration)s,
       event_count = event_count + sized.number, event_bytes = event_bytes + sized.bytes,
       truncated = truncated OR id = ANY (%(truncated)s::uuid[]),
       full_at = CASE WHEN %(full)s::boolean THEN coalesce(full_at, %(at)s) ELSE full_at END,
       model = coalesce(%(model)s, model), input_tokens = coalesce(%(input_tokens)s, input_tokens),
       output_tokens = coalesce(%(output_tokens)s, output_tokens),
       cost = coalesce(%(cost)s, cost), lease_owner = NULL, lease_until = NULL,
       metadata = CASE WHEN %(marks)s::jsonb IS NULL THEN metadata ELSE metadata || %(marks)s::jsonb END
  FROM sized
 WHERE tenant_id = %(tenant)s AND id = %(session)s
RETURNING event_bytes, sized.largest
"""


class LeaseLost(Exception):
    """The lease is lost: the session ended, was deleted, or another worker runs it."""


@dataclass(frozen=True)
class Lease:
    """The right to run one session, for one attempt."""

    session_id: UUID
    tenant_id: UUID
    owner: str
    attempt: int

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(zip(("session", "tenant", "owner", "attempt"), astuple(self), strict=True))


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """How a run ended, and what it took. `answer` joins the session's chat; `full` says that its budget was used up."""

    status: str
    events: Sequence[NewEvent] = ()
    error: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None
    answer: str | None = None
    turn_id: str | None = None
    full: bool = False
    details: dict[str, Any] = field(default_factory=dict)


def claim(owner: str, most: int, lease: timedelta) -> list[Lease]:
    """Take up to so many sessions that wait, in any workspace."""
    rows = db.session.execute(CLAIM, {"owner": owner, "most": most, "lease": lease})
    return [Lease(row.session_id, row.tenant_id, owner, row.attempt) for row in rows]


class LeasedSession(NamedTuple):
    """A session of ours, locked until the transaction ends, and what writing to it needs to know."""

    lease: Lease
    id: UUID
    tenant_id: UUID
    agent_id: UUID
    agent_version_id: UUID | None
    chat_id: UUID | None
    entity_id: UUID | None
    created_by: UUID
    session_type: str
    output_type: str | None
    trace_id: str | None
    eval_source: str | None
    event_count: int
    event_bytes: int
    duration_ms: int | None
    created_at: datetime
    started_at: datetime | None
    cancel_requested_at: datetime | None
    lost_count: int
    key_scopes: list[str] | None
    meta: dict[str, Any]
    mask_emails: bool | None
    mask_phones: bool | None
    product_id: UUID
    product_name: str

    @property
    def product(self) -> Actor:
        """The product itself, which runs the session."""
        return Actor(self.product_id, self.tenant_id, "system", self.product_name)

    @property
    def masking(self) -> Masking:
        return Masking(bool(self.mask_emails), bool(self.mask_phones))


# Many runs share one process, so each of their transactions reads and writes with as few statements as it can. What is
# masked and who the product is come with the session: they are never older than the transaction.
HOLD = f"""
SELECT {", ".join(f"s.{name}" for name in LeasedSession._fields[1:-5])}, s.metadata,
       (t.settings ->> 'mask_emails')::boolean, (t.settings ->> 'mask_phones')::boolean, p.id, p.name
  FROM sessions AS s
  JOIN tenants AS t ON t.id = s.tenant_id
 CROSS JOIN LATERAL (SELECT u.id, u.name FROM memberships AS m JOIN users AS u ON u.id = m.user_id
                      WHERE m.tenant_id = s.tenant_id AND m.role = 'system' LIMIT 1) AS p
 WHERE s.tenant_id = %(tenant)s AND s.id = %(session)s AND s.lease_owner = %(owner)s AND s.attempt = %(attempt)s
   AND s.status = 'running'
   FOR UPDATE OF s
"""


def hold(lease: Lease) -> LeasedSession:
    """The session, locked, if it is still ours."""
    found = run(HOLD, lease.parameters)
    if not found:
        raise LeaseLost
    return LeasedSession(lease, *found[0])


def why_given_up(held: LeasedSession) -> str | None:
    """Why this attempt is one too many, if it is. Of a replay, lost processes are counted apart."""
    if held.eval_source is None:
        return GIVEN_UP if held.lease.attempt > MAX_ATTEMPTS else None
    if held.lost_count > MAX_LOST:
        return PROCESSES_LOST
    return GIVEN_UP if held.lease.attempt - held.lost_count > MAX_ATTEMPTS else None


def record(lease: Lease, events: Sequence[NewEvent]) -> bool:
    """Append events; return whether the run was asked to stop."""
    held = hold(lease)
    write(held, events)
    return held.cancel_requested_at is not None


def write(held: LeasedSession, events: Sequence[NewEvent]) -> None:
    """Add what happened to a session that is held, once in a transaction."""
    add_rows(_rows(held, events), tenant_id=held.tenant_id)


def _rows(held: LeasedSession, events: Sequence[NewEvent]) -> list[EventRow]:
    return rows_of(held.id, events, held.masking, before=held.event_count)


def write_draft(lease: Lease, so_far: str) -> None:
    """Show the answer so far."""
    if db.session.scalar(DRAFT, lease.parameters | {"text": so_far}) is None:
        raise LeaseLost


def end(held: LeasedSession, ending: RunOutcome, *, actor: Actor, marks: Mapping[str, Any] | None = None) -> None:
    """End the run: last events, figures, answer in the chat and status, all or nothing. `marks` join its metadata."""
    answer, events = _answer_message(held, ending), list(ending.events)
    if answer is not None and ending.status == "cancelled":
        events.insert(0, NewEvent("agent.message", {"text": answer.content, **answer.details}))
    at = datetime.now(UTC)
    lasted = milliseconds_between(held.started_at or held.created_at, at)
    as_given = ("status", "full", "model", "input_tokens", "output_tokens", "cost")
    more = {
        "session": held.id,
        "error": held.masking.text(ending.error) if ending.error else None,
        "at": at,
        "duration": lasted if held.duration_ms is None else held.duration_ms,
        "marks": None if marks is None else json.dumps(marks),
        "user": actor.id,
        "agent": actor.agent_id,
        "details": json.dumps(audit_entry.details_of(actor, before="running", after=ending.status)),
    }
    rows = row_parameters(_rows(held, events), held.tenant_id)
    sizes = run(END, rows | more | {name: getattr(ending, name) for name in as_given})
    check_sizes(sizes, spare=0 if ending.status == "completed" else FOR_THE_END)
    if answer is not None and held.chat_id is not None:
        instead = {"instead_of": held.meta["instead_of"]} if "instead_of" in held.meta else {}
        append_messages(held.chat_id, [replace(answer, details=answer.details | instead)], actor=actor)
    if ending.status == "failed" or "task_id" in held.meta:
        after_end(db.session.get_one(AgentSession, held.id, populate_existing=True), actor)


def _answer_message(held: LeasedSession, ending: RunOutcome) -> NewMessage | None:
    """What the agent says in the end. Of a run that was stopped, what it had written so far is kept, marked."""
    text, details = ending.answer, dict(ending.details)
    if ending.status == "cancelled":
        mine = [SessionDraft.tenant_id == held.tenant_id, SessionDraft.session_id == held.id]
        text, details = db.session.scalar(select(SessionDraft.text).where(*mine)), {"stopped": True}
    if not text:
        return None
    return NewMessage(
        role="agent",
        content=text,
        turn_id=ending.turn_id or held.meta.get("turn_id"),
        session_id=held.id,
        trace_id=held.trace_id,
        details=details,
    )


def renew(leases: Sequence[Lease], lease: timedelta) -> tuple[set[UUID], set[UUID]]:
    """Renew leases of one workspace; return the sessions still held and those that were asked to stop."""
    rows = db.session.execute(
        update(AgentSession)
        .where(*_still_held(leases))
        .values(lease_until=func.clock_timestamp() + lease)
        .returning(AgentSession.id, AgentSession.cancel_requested_at)
    ).all()
    return {row.id for row in rows}, {row.id for row in rows if row.cancel_requested_at is not None}


def to_stop(leases: Sequence[Lease]) -> set[UUID]:
    """Return the sessions of one workspace that were asked to stop."""
    wanted = select(AgentSession.id).where(*_still_held(leases), AgentSession.cancel_requested_at.is_not(None))
    return set(db.session.scalars(wanted))


def release(leases: Sequence[Lease]) -> None:
    """Give sessions of one workspace back, as if they had not been claimed."""
    unclaimed = {"status": "pending", "lease_owner": None, "lease_until": None, "attempt": AgentSession.attempt - 1}
    db.session.execute(update(AgentSession).where(*_still_held(leases)).values(unclaimed))


def give_back(lease: Lease) -> None:
    """Let another attempt begin when the lease has run out. The broken one counts as the session's own failure."""
    db.session.execute(update(AgentSession).where(*_still_held([lease])).values(status="pending", lease_owner=None))


def _still_held(leases: Sequence[Lease]) -> list[Any]:
    """Which sessions of one workspace the worker still holds, each in the attempt of its lease."""
    return [
        AgentSession.tenant_id == leases[0].tenant_id,
        tuple_(AgentSession.id, AgentSession.attempt).in_([(lease.session_id, lease.attempt) for lease in leases]),
        AgentSession.lease_owner == leases[0].owner,
        AgentSession.status == "running",
    ]
