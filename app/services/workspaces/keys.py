"""API keys: made for a person, shown once, stored as a hash, revoked for good."""

from collections.abc import Sequence
from functools import partial
from uuid import UUID

from sqlalchemy import Row, func, select, update

from app import tokens
from app.actor import Actor
from app.db import db, run
from app.errors import NotFound
from app.models.people import ApiKey, User
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
    actor.check_admin("Only an admin revokes keys.")
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
