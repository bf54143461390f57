"""When a key or a login was last used. Reading a page must not write, so uses are kept in memory and written in
batches, at most once a minute."""

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import func, update

from app.actor import Actor
from app.db import db
from app.models.people import ApiKey, LoginSession

EVERY_SECONDS = 60.0
Uses = list[tuple[UUID, datetime]]


@dataclass(frozen=True)
class Batch:
    """What was noted of one workspace."""

    tenant_id: UUID
    keys: Uses
    logins: Uses


# Held from taking a batch until it is written and forgotten.
writing = threading.Lock()
_lock = threading.Lock()
_keys: dict[UUID, tuple[UUID, datetime]] = {}
_logins: dict[UUID, tuple[UUID, datetime]] = {}
_written_at = time.monotonic()


def note_use(actor: Actor, login_id: UUID | None) -> bool:
    """Remember that the actor's credential was used now; true when it is time to write."""
    global _written_at
    at = datetime.now(UTC)
    with _lock:
        if actor.key_id is not None:
            _keys[actor.key_id] = (actor.tenant_id, at)
        elif login_id is not None:
            _logins[login_id] = (actor.tenant_id, at)
        due = time.monotonic() - _written_at >= EVERY_SECONDS
        if due:
            _written_at = time.monotonic()
        return due


def last_used(credential_id: UUID, stored: datetime | None) -> datetime | None:
    """The last use of a key or a login, whether it is written already or not."""
    with _lock:
        noted = _keys.get(credential_id) or _logins.get(credential_id)
    return max(filter(None, (stored, noted[1] if noted else None)), default=None)


def take_batches() -> list[Batch]:
    """What was noted and is not written yet, workspace by workspace."""
    with _lock:
        keys, logins = dict(_keys), dict(_logins)
    tenants = {tenant for tenant, _ in (*keys.values(), *logins.values())}
    return [Batch(tenant, _uses_in(keys, tenant), _uses_in(logins, tenant)) for tenant in tenants]


def write_batch(batch: Batch) -> None:
    """Write what was noted of the workspace that the transaction is bound to."""
    for key_id, at in batch.keys:
        later = func.greatest(ApiKey.last_used_at, at)
        db.session.execute(update(ApiKey).where(ApiKey.id == key_id).values(last_used_at=later))
    for login_id, at in batch.logins:
        later = func.greatest(LoginSession.seen_at, at)
        db.session.execute(update(LoginSession).where(LoginSession.id == login_id).values(seen_at=later))


def forget_batch(batch: Batch) -> None:
    """It is written. What was used again meanwhile stays."""
    with _lock:
        for noted, uses in ((_keys, batch.keys), (_logins, batch.logins)):
            for used, at in uses:
                if noted.get(used) == (batch.tenant_id, at):
                    del noted[used]


def _uses_in(noted: dict[UUID, tuple[UUID, datetime]], tenant_id: UUID) -> Uses:
    """In order of their ids, so that two who write at once wait for each other instead of blocking each other."""
    return [(used, at) for used, (tenant, at) in sorted(noted.items()) if tenant == tenant_id]
