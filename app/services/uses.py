"""When a key or a login was last used. Reading a page must not write, so uses are kept in memory and written in
batches, at most once a minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import func, update

from app.actor import Actor
from app.db import acting_as, db, transaction
from app.models.people import ApiKey, LoginSession
from app.services import accounts

EVERY_SECONDS = 60.0

_lock = threading.Lock()
_keys: dict[UUID, tuple[UUID, datetime]] = {}
_logins: dict[UUID, tuple[UUID, datetime]] = {}
_written_at = time.monotonic()


def note(actor: Actor, login_id: UUID | None) -> bool:
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


def write() -> None:
    """Write what was noted, workspace by workspace."""
    with _lock:
        keys, logins = dict(_keys), dict(_logins)
        _keys.clear()
        _logins.clear()
    for tenant_id in {tenant for tenant, _ in (*keys.values(), *logins.values())}:
        with acting_as(accounts.product_in(tenant_id)), transaction():
            for key_id, at in _of(keys, tenant_id):
                later = func.greatest(ApiKey.last_used_at, at)
                db.session.execute(update(ApiKey).where(ApiKey.id == key_id).values(last_used_at=later))
            for login_id, at in _of(logins, tenant_id):
                seen = func.greatest(LoginSession.seen_at, at)
                db.session.execute(update(LoginSession).where(LoginSession.id == login_id).values(seen_at=seen))


def _of(noted: dict[UUID, tuple[UUID, datetime]], tenant_id: UUID) -> Iterable[tuple[UUID, datetime]]:
    """In order of their ids, so that two who write at once wait for each other instead of blocking each other."""
    return [(used, at) for used, (tenant, at) in sorted(noted.items()) if tenant == tenant_id]
