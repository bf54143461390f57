"""Judgements that wait, and the leases of those that are worked on. A worker that lost its lease writes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, insert, select, text, tuple_, update

from app.actor import Actor
from app.db import db, run
from app.models import Judgement
from app.models.evals import OPEN_JUDGEMENTS
from app.services.workspaces import store as workspace_store

WAITING = text("SELECT door_judgements()")
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('judgements ' || %(tenant)s, 0))"
# What a workspace works on at once counts over all processes, so one of them claims at a time.
CLAIM = """
WITH picked AS MATERIALIZED (
       SELECT w.id FROM judgements AS w
        WHERE w.tenant_id = %(tenant)s AND w.status IN ('pending', 'running')
          AND (w.status = 'pending' OR w.lease_until < clock_timestamp())
        ORDER BY w.created_at, w.id
        LIMIT greatest(0, least(%(most)s, %(at_once)s - (
              SELECT count(*) FROM judgements AS r
               WHERE r.tenant_id = %(tenant)s AND r.status = 'running' AND r.lease_until >= clock_timestamp())))
          FOR UPDATE SKIP LOCKED)
UPDATE judgements AS j
   SET status = 'running', attempt = j.attempt + 1, lease_owner = %(owner)s, lease_until = clock_timestamp() + %(lease)s
  FROM picked WHERE j.tenant_id = %(tenant)s AND j.id = picked.id
RETURNING j.id, j.attempt
"""
CANCELLED = "The run was cancelled."
NOTHING_LEFT = "Every dimension is compared without a judge."


@dataclass(frozen=True)
class JudgeLease:
    """The right to work on one judgement, for one attempt."""

    judgement_id: UUID
    tenant_id: UUID
    owner: str
    attempt: int


def queue_judgement(session_id: UUID, run_id: UUID, criteria_set_id: UUID, *, actor: Actor) -> None:
    """Let a judge look at a replay that has just ended."""
    row = {"run_id": run_id, "session_id": session_id, "criteria_set_id": criteria_set_id}
    db.session.execute(insert(Judgement).values(tenant_id=actor.tenant_id, **row))


def cancel_judgements(run_id: UUID, *, actor: Actor) -> None:
    """Close what is not judged yet in a run. What is being written down at this moment is left to end by itself."""
    mine = (Judgement.tenant_id == actor.tenant_id, Judgement.run_id == run_id, Judgement.status.in_(OPEN_JUDGEMENTS))
    free = select(Judgement.id).where(*mine).with_for_update(skip_locked=True)
    ended = {"status": "not_judged", "error": CANCELLED, "finished_at": func.now(), **_FREE}
    change = update(Judgement).where(Judgement.tenant_id == actor.tenant_id, Judgement.id.in_(free)).values(ended)
    db.session.execute(change.execution_options(synchronize_session=False))


_FREE: dict[str, Any] = {"lease_owner": None, "lease_until": None}


def waiting_workspaces() -> list[UUID]:
    """The workspaces with judgements that wait, or whose lease ran out."""
    return list(db.session.scalars(WAITING))


def claim_judgements(owner: str, most: int, lease: timedelta, *, actor: Actor) -> list[JudgeLease]:
    """Take up to so many judgements of one workspace, within what it works on at once."""
    run(LOCK, {"tenant": str(actor.tenant_id)})
    at_once = workspace_store.get_settings(actor).judge_concurrency
    asked = {"tenant": actor.tenant_id, "owner": owner, "most": most, "at_once": at_once, "lease": lease}
    return [JudgeLease(found, actor.tenant_id, owner, attempt) for found, attempt in run(CLAIM, asked)]


def renew_judgements(leases: Sequence[JudgeLease], lease: timedelta) -> set[UUID]:
    """Renew leases of one workspace; return the judgements that are still held."""
    change = update(Judgement).where(*_held(leases)).values(lease_until=func.clock_timestamp() + lease)
    return set(db.session.scalars(change.returning(Judgement.id)))


def release_judgements(leases: Sequence[JudgeLease]) -> None:
    """Give judgements of one workspace back, as if they had not been claimed."""
    values = {"status": "pending", "attempt": Judgement.attempt - 1, **_FREE}
    db.session.execute(update(Judgement).where(*_held(leases)).values(values))


def hold_judgement(lease: JudgeLease) -> Judgement | None:
    """The judgement, locked, if it is still ours."""
    wanted = select(Judgement).where(*_held([lease])).with_for_update()
    found: Judgement | None = db.session.scalar(wanted.execution_options(populate_existing=True))
    return found


def _held(leases: Sequence[JudgeLease]) -> list[Any]:
    return [
        Judgement.tenant_id == leases[0].tenant_id,
        tuple_(Judgement.id, Judgement.attempt).in_([(one.judgement_id, one.attempt) for one in leases]),
        Judgement.lease_owner == leases[0].owner,
        Judgement.status == "running",
    ]


def is_waiting(session_id: UUID, *, actor: Actor) -> bool:
    """Whether a judge still has to look at this replay."""
    mine = (Judgement.tenant_id == actor.tenant_id, Judgement.session_id == session_id)
    return db.session.scalar(select(Judgement.status).where(*mine)) in OPEN_JUDGEMENTS
