"""When a key or a login was last used. Reading a page must not write, so uses are noted in memory and written in
batches, at most once a minute."""

import threading
import time
from collections import defaultdict
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import func, update

from app.actor import Actor
from app.db import db
from app.models.people import ApiKey, LoginSession

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
