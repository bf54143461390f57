"""Feedback tokens for people on other sites. Their team's own server asks for one; for an hour at most it lets their
browser give feedback, and nothing else."""

import time
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from itsdangerous import BadData, URLSafeSerializer
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from app.actor import Actor
from app.db import db

PREFIX = "fbt_"
PURPOSE = "visitor"
LONGEST_LIFE = 3600
# The key that asked for the token must still be good, and its person still be a member: revoking it ends its tokens.
FIND = text(
    "select u.name as person, k.user_id as vouched_by, t.name, t.slug,"
    " coalesce(t.settings -> 'feedback_origins', '[]'::jsonb) as origins"
    " from tenants as t"
    " join users as u on u.id = :user and u.external_tenant_id = t.id and u.erased_at is null"
    " join api_keys as k on k.tenant_id = t.id and k.id = :key and k.revoked_at is null"
    " and (k.expires_at is null or k.expires_at > now()) and k.scopes && array['feedback-token', 'admin']"
    " join memberships as m on m.tenant_id = t.id and m.user_id = k.user_id"
    " where t.id = :tenant"
)


@dataclass(frozen=True)
class Visitor:
    """The person a token is for, the key that asked for it, and the second at which it runs out."""

    tenant_id: UUID
    user_id: UUID
    key_id: UUID
    expires_at: int


def make_token(secret: str, visitor: Visitor) -> str:
    ids = [str(visitor.tenant_id), str(visitor.user_id), str(visitor.key_id)]
    return PREFIX + str(URLSafeSerializer(secret, salt=PURPOSE).dumps([*ids, visitor.expires_at]))


def read_token(secret: str, token: str) -> Visitor | None:
    """The person the token is for; None when it is forged, changed or expired."""
    try:
        *ids, expires_at = URLSafeSerializer(secret, salt=PURPOSE).loads(token.removeprefix(PREFIX))
        tenant_id, user_id, key_id = map(UUID, ids)
    except (BadData, ValueError):
        return None
    return Visitor(tenant_id, user_id, key_id, expires_at) if time.time() < expires_at else None


def find(visitor: Visitor, request_id: str) -> tuple[Actor, Any] | None:
    """Load the visitor and their workspace (name, slug, origins) and work for them in this transaction; None when the
    key or its person is no longer valid."""
    actor = Actor(visitor.user_id, visitor.tenant_id, "member", "", frozenset({"feedback"}), visitor.key_id)
    db.session().info["actor"] = actor
    parameters = {"user": visitor.user_id, "key": visitor.key_id, "tenant": visitor.tenant_id}
    try:
        row = db.session.execute(FIND, parameters).one_or_none()
    except OperationalError:
        # The pooled connection had died meanwhile; once more on another.
        db.session.rollback()
        row = db.session.execute(FIND, parameters).one_or_none()
    if row is None:
        db.session.rollback()
        db.session().info["actor"] = None
        return None
    actor = replace(actor, name=row.person, request_id=request_id, vouched_by=row.vouched_by)
    db.session().info["actor"] = actor
    return actor, row
