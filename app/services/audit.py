"""Who did what: one row in the same transaction as each change."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import insert

from app.actor import Actor
from app.db import db
from app.models.people import AuditEntry


def record(actor: Actor, action: str, subject_type: str, subject_id: UUID | None, **details: Any) -> None:
    """Note what the actor did, from what to what. Members write rows that only admins may read, so nothing is read
    back from the insert."""
    values = {
        "id": uuid4(),
        "tenant_id": actor.tenant_id,
        "actor_user_id": actor.id,
        "actor_agent_id": actor.agent_id,
        "action": action,
        "subject_type": subject_type,
        "subject_id": subject_id,
        "details": _plain(details | ({"key_id": actor.key_id} if actor.key_id else {})),
        "request_id": actor.request_id,
    }
    db.session.flush()
    db.session.execute(insert(AuditEntry.__table__).inline(), values)  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    """The same in JSON's types."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    return value.value if isinstance(value, Enum) else value
