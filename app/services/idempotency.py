"""Idempotency keys: the request behind each key and its answer, kept for a day."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db
from app.errors import Refused
from app.models.people import IdempotencyKey

RETENTION = timedelta(hours=24)
PURGE_BATCH = 500


def claim_key(key: str, *, route: str, body_hash: str, actor: Actor) -> tuple[UUID, int | None, Any]:
    """Take the key, or find what was answered to the same request before: id, status and body. The status is None for
    the first request, which has to do the work.

    A second request that comes while the first is still at work waits on the unique index until that has committed, and
    then finds its answer; had it failed, the second goes to work. What is older than a day counts as never seen.
    """
    row = {"tenant_id": actor.tenant_id, "user_id": actor.id, "route": route, "key": key}
    fresh = {"body_hash": body_hash, "status": None, "answer": None, "created_at": func.now()}
    taken = db.session.scalar(
        insert(IdempotencyKey)
        .values(**row, body_hash=body_hash)
        .on_conflict_do_update(
            index_elements=list(row), set_=fresh, where=IdempotencyKey.created_at < func.now() - RETENTION
        )
        .returning(IdempotencyKey.id)
    )
    if taken is not None:
        return taken, None, None
    found = db.session.execute(
        select(IdempotencyKey.id, IdempotencyKey.body_hash, IdempotencyKey.status, IdempotencyKey.answer).filter_by(
            **row
        )
    ).one()
    if found.body_hash != body_hash:
        raise Refused("This idempotency key was used with another body. Take a new key for a new request.")
    return found.id, found.status, found.answer


def save_answer(claim_id: UUID, *, status: int, answer: Any) -> None:
    """Remember what was answered, and let some of what is too old go: never many at once, so nobody waits for it."""
    db.session.execute(
        update(IdempotencyKey)
        .where(IdempotencyKey.id == claim_id)
        .values(status=status, answer=answer)
        .execution_options(synchronize_session=False)
    )
    if claim_id.int % 64 == 0:
        purge_answers()


def purge_answers() -> None:
    """Delete keys older than a day, skipping locked ones."""
    old = (
        select(IdempotencyKey.id)
        .where(IdempotencyKey.created_at < func.now() - RETENTION)
        .limit(PURGE_BATCH)
        .with_for_update(skip_locked=True)
    )
    db.session.execute(
        delete(IdempotencyKey).where(IdempotencyKey.id.in_(old)).execution_options(synchronize_session=False)
    )
