"""API keys: made for a person, shown once, stored as a hash, revoked for good."""

from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import func, select, text, update

from app import tokens
from app.actor import SCOPES, Actor
from app.db import db
from app.errors import Forbidden, Invalid, NotFound
from app.formats.names import clean_name
from app.models.people import ApiKey, User
from app.services import audit
from app.services.workspaces import people

PREFIX_LENGTH = 10
BIND = text("select * from bind_credential(:hash)")


def create_key(
    *,
    name: str,
    scopes: list[str],
    actor: Actor,
    user_id: UUID | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """A key that acts as its person, and the key itself, which nobody can read again."""
    owner_id = user_id or actor.id
    if owner_id != actor.id and actor.role != "system":
        raise Forbidden("A key acts as its person, so only they can make it.")
    people.get_person(owner_id, actor=actor)
    key = tokens.new_key()
    row = ApiKey(
        tenant_id=actor.tenant_id,
        user_id=owner_id,
        name=clean_name(name),
        prefix=key[:PREFIX_LENGTH],
        key_hash=tokens.digest(key),
        scopes=_check_scopes(scopes),
        expires_at=_check_expiry(expires_at),
    )
    db.session.add(row)
    db.session.flush()
    audit.record(actor, "key.created", "api_key", row.id, name=row.name, scopes=row.scopes, user_id=owner_id)
    return row, key


def actor_of(key: str) -> Actor | None:
    """Whom a key acts as, or None for one that is unknown, revoked or expired. What was open ends."""
    db.session.rollback()
    found = db.session.execute(BIND, {"hash": tokens.digest(key)}).one_or_none()
    db.session.rollback()
    if found is None or found.kind == "login":
        return None
    return Actor(
        id=found.user_id,
        tenant_id=found.tenant_id,
        role=found.role,
        name=found.name,
        scopes=frozenset(found.scopes),
        key_id=found.credential_id,
    )


def list_keys(*, actor: Actor) -> list[tuple[ApiKey, str]]:
    """The keys of the workspace that were not revoked with whose they are, the newest first."""
    rows = db.session.execute(
        select(ApiKey, User.name)
        .join(User, User.id == ApiKey.user_id)
        .where(ApiKey.tenant_id == actor.tenant_id, ApiKey.revoked_at.is_(None))
        .order_by(ApiKey.created_at.desc(), ApiKey.id)
        .limit(500)
    )
    return [(key, name) for key, name in rows]


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


def _check_scopes(scopes: list[str]) -> list[str]:
    """The scopes in the order in which they are always named."""
    if not scopes or not set(scopes) <= set(SCOPES):
        raise Invalid("Choose scopes.", {"scopes": f"Choose at least one of {', '.join(SCOPES)}."})
    return [scope for scope in SCOPES if scope in scopes]


def _check_expiry(expires_at: datetime | None) -> datetime | None:
    if expires_at is not None and expires_at <= datetime.now(UTC):
        raise Invalid("The end lies in the past.", {"expires": "Choose a day that is still to come."})
    return expires_at
