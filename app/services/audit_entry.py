"""How one row of the audit trail is written. Plain SQL: short commands write it without loading SQLAlchemy."""

import json
from collections.abc import Sequence
from datetime import date
from enum import Enum
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.db.connect import Run

# Members write rows that only admins may read, so nothing is read back from the insert.
INSERT = """
insert into audit_log (tenant_id, actor_user_id, actor_agent_id, action, subject_type, subject_id, details, request_id)
values (%(tenant_id)s, %(user_id)s, %(agent_id)s, %(action)s, %(subject_type)s, %(subject_id)s, %(details)s,
        %(request_id)s)
"""
INSERT_EACH = """
insert into audit_log (tenant_id, actor_user_id, actor_agent_id, action, subject_type, subject_id, details, request_id)
select %(tenant_id)s, %(user_id)s, %(agent_id)s, %(action)s, %(subject_type)s, w.subject_id, w.details::jsonb,
       %(request_id)s
  from unnest(%(subject_ids)s::uuid[], %(details)s::text[]) as w (subject_id, details)
"""


def record(run: Run, actor: Actor, action: str, subject_type: str, subject_id: UUID | None, **details: Any) -> None:
    """Note what the actor did, from what to what."""
    values = {"subject_id": subject_id, "details": json.dumps(details_of(actor, **details))}
    run(INSERT, _common(actor, action, subject_type) | values)


def record_each(
    run: Run, actor: Actor, action: str, subject_type: str, entries: Sequence[tuple[UUID, dict[str, Any]]]
) -> None:
    """The same for many subjects, each with its details, in one statement."""
    if entries:
        ids, details = zip(*entries, strict=True)
        told = [json.dumps(details_of(actor, **one)) for one in details]
        run(INSERT_EACH, _common(actor, action, subject_type) | {"subject_ids": list(ids), "details": told})


def _common(actor: Actor, action: str, subject_type: str) -> dict[str, Any]:
    return {
        "tenant_id": actor.tenant_id,
        "user_id": actor.id,
        "agent_id": actor.agent_id,
        "action": action,
        "subject_type": subject_type,
        "request_id": actor.request_id,
    }


def details_of(actor: Actor, **details: Any) -> dict[str, Any]:
    """What an entry says beside who did what, for those who write it in a statement of their own as well."""
    found: dict[str, Any] = _to_json(details | ({"key_id": actor.key_id} if actor.key_id else {}))
    return found


def _to_json(value: Any) -> Any:
    """The same in JSON's types."""
    if type(value) is str:
        return value
    if isinstance(value, dict):
        return {str(name): _to_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_to_json(item) for item in value]
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    return value.value if isinstance(value, Enum) else value
