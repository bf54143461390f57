"""Running a session under a lease: whoever holds it writes, and nobody else.

Every write names the holder and the attempt. A worker that was given up for dead and comes back finds that neither is
its own any more and writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import delete, func, select, text, update
from sqlalchemy.orm import undefer

from app.actor import Actor
from app.db import db
from app.models import AgentSession, SessionDraft
from app.services.chats import NewMessage, append_messages
from app.services.session_events import NewEvent, write_events
from app.services.sessions import add_events, finish_session

MOST_ATTEMPTS = 3
CLAIM = text("SELECT session_id, tenant_id, attempt FROM door_claim(:owner, :most, :lease)")
DRAFT = text("""
    INSERT INTO session_drafts (tenant_id, session_id, text)
    SELECT s.tenant_id, s.id, :text FROM sessions AS s
     WHERE s.tenant_id = :tenant AND s.id = :session AND s.lease_owner = :owner AND s.attempt = :attempt
       AND s.status = 'running'
    ON CONFLICT (tenant_id, session_id) DO UPDATE SET text = excluded.text, updated_at = clock_timestamp()
    RETURNING session_id
""")


class LeaseLost(Exception):
    """The session is not ours any more: it ended, it is gone, or somebody else runs it."""


@dataclass(frozen=True)
class Lease:
    """The right to run one session, for one attempt."""

    session_id: UUID
    tenant_id: UUID
    owner: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended, and what it took. `answer` joins the chat that the session belongs to."""

    status: str
    events: Sequence[NewEvent] = ()
    error: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None
    answer: str | None = None
    turn_id: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


def claim(owner: str, most: int, lease: timedelta) -> list[Lease]:
    """Take up to so many sessions that wait, in any workspace."""
    rows = db.session.execute(CLAIM, {"owner": owner, "most": most, "lease": lease})
    return [Lease(row.session_id, row.tenant_id, owner, row.attempt) for row in rows]


def hold(lease: Lease) -> AgentSession:
    """The session, locked, if it is still ours."""
    session = db.session.scalar(
        select(AgentSession)
        .options(undefer(AgentSession.meta))
        .where(*_ours(lease))
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    if session is None:
        raise LeaseLost
    return session


def _ours(lease: Lease) -> list[Any]:
    return [
        AgentSession.tenant_id == lease.tenant_id,
        AgentSession.id == lease.session_id,
        AgentSession.lease_owner == lease.owner,
        AgentSession.attempt == lease.attempt,
        AgentSession.status == "running",
    ]


def record(lease: Lease, events: Sequence[NewEvent], *, actor: Actor) -> bool:
    """Add what happened; whether somebody wants the run to stop."""
    session = hold(lease)
    write_events(session, events, actor=actor)
    return session.cancel_requested_at is not None


def write_draft(lease: Lease, so_far: str) -> None:
    """Show the answer so far."""
    given = {
        "text": so_far, "tenant": lease.tenant_id, "session": lease.session_id, "owner": lease.owner,
        "attempt": lease.attempt,
    }  # fmt: skip
    if db.session.scalar(DRAFT, given) is None:
        raise LeaseLost


def end(lease: Lease, ending: Ending, *, actor: Actor) -> None:
    """End the run: its last events, its figures, its answer in the chat and its status, all or nothing."""
    session = hold(lease)
    for name in ("model", "input_tokens", "output_tokens", "cost"):
        if getattr(ending, name) is not None:
            setattr(session, name, getattr(ending, name))
    session.lease_owner = session.lease_until = None
    _say(session, ending, actor)
    db.session.execute(
        delete(SessionDraft).where(
            SessionDraft.tenant_id == lease.tenant_id, SessionDraft.session_id == lease.session_id
        )
    )
    if ending.events:
        add_events(session.id, ending.events, actor=actor)
    else:
        finish_session(session.id, ending.status, actor=actor, error=ending.error)


def _say(session: AgentSession, ending: Ending, actor: Actor) -> None:
    """The answer joins the chat. Of a run that was stopped, what it had written so far is kept, marked."""
    text, details = ending.answer, dict(ending.details)
    if ending.status == "cancelled":
        mine = [SessionDraft.tenant_id == session.tenant_id, SessionDraft.session_id == session.id]
        text, details = db.session.scalar(select(SessionDraft.text).where(*mine)), {"stopped": True}
        if text:
            write_events(session, [NewEvent("agent.message", {"text": text, **details})], actor=actor)
    if not text or session.chat_id is None:
        return
    if "instead_of" in session.meta:
        details["instead_of"] = session.meta["instead_of"]
    answer = NewMessage(
        role="agent",
        content=text,
        turn_id=ending.turn_id or session.meta.get("turn_id"),
        session_id=session.id,
        trace_id=session.trace_id,
        details=details,
    )
    append_messages(session.chat_id, [answer], actor=actor)


def renew(leases: Sequence[Lease], lease: timedelta) -> tuple[set[UUID], set[UUID]]:
    """Keep leases of one workspace: the sessions that are still ours, and those that somebody wants to stop."""
    rows = db.session.execute(
        update(AgentSession)
        .where(*_some(leases))
        .values(lease_until=func.clock_timestamp() + lease)
        .returning(AgentSession.id, AgentSession.attempt, AgentSession.cancel_requested_at)
    ).all()
    attempts = {lease.session_id: lease.attempt for lease in leases}
    kept = [row for row in rows if attempts[row.id] == row.attempt]
    return {row.id for row in kept}, {row.id for row in kept if row.cancel_requested_at is not None}


def to_stop(leases: Sequence[Lease]) -> set[UUID]:
    """Which sessions of one workspace somebody wants to stop."""
    wanted = select(AgentSession.id).where(*_some(leases), AgentSession.cancel_requested_at.is_not(None))
    return set(db.session.scalars(wanted))


def release(leases: Sequence[Lease]) -> None:
    """Give sessions of one workspace back, as if they had not been claimed."""
    for lease in leases:
        db.session.execute(
            update(AgentSession)
            .where(*_ours(lease))
            .values(status="pending", lease_owner=None, lease_until=None, attempt=AgentSession.attempt - 1)
        )


def _some(leases: Sequence[Lease]) -> list[Any]:
    return [
        AgentSession.tenant_id == leases[0].tenant_id,
        AgentSession.id.in_([lease.session_id for lease in leases]),
        AgentSession.lease_owner == leases[0].owner,
        AgentSession.status == "running",
    ]
