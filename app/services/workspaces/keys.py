"""API keys: made for a person, shown once, stored as a hash, revoked; and when each key and login was last used."""

import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Row, func, select, update

from app import tokens
from app.actor import Actor
from app.db import db, run
from app.errors import NotFound
from app.models.people import ApiKey, LoginSession, User
from app.services import audit
from app.services.workspaces import credentials

create_key = partial(credentials.create_key, run)


def actor_of(key: str) -> Actor | None:
    """Whom a key acts as, or None for one that is unknown, revoked or expired. What was open ends."""
    db.session.rollback()
    rows = run(credentials.BIND_CREDENTIAL, {"hash": tokens.digest(key)})
    db.session.rollback()
    found = credentials.Credential(*rows[0]) if rows else None
    return found.actor() if found and found.kind != "login" else None


def list_keys(*, actor: Actor) -> Sequence[Row[ApiKey, str]]:
    """The keys of the workspace that were not revoked with whose they are, the newest first."""
    return db.session.execute(
        select(ApiKey, User.name)
        .join(User, User.id == ApiKey.user_id)
        .where(ApiKey.tenant_id == actor.tenant_id, ApiKey.revoked_at.is_(None))
        .order_by(ApiKey.created_at.desc(), ApiKey.id)
        .limit(500)
    ).all()


def revoke_key(key_id: UUID, *, actor: Actor) -> ApiKey:
    """End a key; the next request with it is refused."""
    actor.check_admin("Only admins can revoke keys.")
    row = db.session.scalars(
        update(ApiKey)
        .where(ApiKey.tenant_id == actor.tenant_id, ApiKey.id == key_id, ApiKey.revoked_at.is_(None))
        .values(revoked_at=func.now())
        .returning(ApiKey)
    ).one_or_none()
    if row is None:
        raise NotFound("No such key.")
    audit.record(actor, "key.revoked", "api_key", row.id, name=row.name)
    return row


# Reading a page must not write, so uses are noted in memory and written in batches, at most once a minute.

EVERY_SECONDS = 60.0


class Use(NamedTuple):
    tenant_id: UUID
    by_key: bool
    at: datetime


Batch = dict[UUID, Use]
# Taken from reading a batch until it is written and forgotten.
writing = threading.Lock()
_lock = threading.Lock()
_noted: Batch = {}
_written_at = time.monotonic()


def note_use(actor: Actor, login_id: UUID | None) -> bool:
    """Remember that the actor's credential was used now; true when it is time to write."""
    global _written_at
    credential_id = actor.key_id or login_id
    with _lock:
        if credential_id is not None:
            _noted[credential_id] = Use(actor.tenant_id, actor.key_id is not None, datetime.now(UTC))
        due = time.monotonic() - _written_at >= EVERY_SECONDS
        if due:
            _written_at = time.monotonic()
        return due


def last_used(credential_id: UUID, stored: datetime | None) -> datetime | None:
    """The last use of a key or a login, whether it is written already or not."""
    noted = _noted.get(credential_id)
    return max(filter(None, (stored, noted.at if noted else None)), default=None)


def take_batches() -> dict[UUID, Batch]:
    """What was noted and is not written yet, by workspace."""
    batches: dict[UUID, Batch] = defaultdict(dict)
    with _lock:
        for credential_id, use in _noted.items():
            batches[use.tenant_id][credential_id] = use
    return batches


def write_batch(batch: Batch) -> None:
    """Write the uses of the workspace that the transaction is bound to, in order of their ids, so that two processes
    that write at once wait for each other instead of deadlocking."""
    for credential_id, use in sorted(batch.items()):
        if use.by_key:
            at = func.greatest(ApiKey.last_used_at, use.at)
            db.session.execute(update(ApiKey).where(ApiKey.id == credential_id).values(last_used_at=at))
        else:
            at = func.greatest(LoginSession.seen_at, use.at)
            db.session.execute(update(LoginSession).where(LoginSession.id == credential_id).values(seen_at=at))


def forget_batch(batch: Batch) -> None:
    """It is written. What was used again meanwhile stays."""
    with _lock:
        for credential_id, use in batch.items():
            if _noted.get(credential_id) == use:
                del _noted[credential_id]
