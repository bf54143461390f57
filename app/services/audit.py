"""Who did what: one row in the same transaction as each change."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import insert, select
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db import db
from app.models.agents import Agent
from app.models.people import AuditEntry, Tenant, User
from app.services.pages import Page, Slice, read_page

Subject = aliased(User)
# Who did these is who said something.
SAID = ("feedback.created", "feedback.changed", "feedback.retracted")


@dataclass(frozen=True)
class Line:
    """One entry as the page of the audit trail shows it."""

    id: UUID
    at: datetime
    who: str
    action: str
    subject_type: str
    subject_id: UUID | None
    subject_name: str | None
    details: dict[str, Any]


def record(actor: Actor, action: str, subject_type: str, subject_id: UUID | None, **details: Any) -> None:
    """Note what the actor did, from what to what. Members write rows that only admins may read, so nothing is read
    back from the insert."""
    db.session.flush()
    db.session.execute(
        insert(AuditEntry.__table__).inline(),  # type: ignore[arg-type]
        line(actor, action, subject_type, subject_id, **details),
    )


def line(actor: Actor, action: str, subject_type: str, subject_id: UUID | None, **details: Any) -> dict[str, Any]:
    """The values of an entry, for those who write it in a statement of their own."""
    return {
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


def list_entries(page: Page, *, actor: Actor) -> Slice[Line]:
    """What happened in the workspace, the newest first. Where authors are hidden, they are hidden here too."""
    statement: Any = (
        select(
            AuditEntry.id,
            AuditEntry.created_at,
            User.name,
            AuditEntry.action,
            AuditEntry.subject_type,
            AuditEntry.subject_id,
            Subject.name,
            AuditEntry.details,
            Agent.name,
            AuditEntry.actor_user_id,
        )
        .outerjoin(User, User.id == AuditEntry.actor_user_id)
        .outerjoin(Subject, (Subject.id == AuditEntry.subject_id) & (AuditEntry.subject_type == "user"))
        .outerjoin(Agent, (Agent.tenant_id == AuditEntry.tenant_id) & (Agent.id == AuditEntry.actor_agent_id))
    )
    where = [AuditEntry.tenant_id == actor.tenant_id]
    found = read_page(statement, page, at=AuditEntry.created_at, id=AuditEntry.id, where=where)
    hides = _hides_authors(actor)
    return found.map(lambda row: _line(row, hidden=hides and row[9] != actor.id))


def _hides_authors(actor: Actor) -> bool:
    return bool(
        db.session.scalar(select(Tenant.settings["author_private"].as_boolean()).where(Tenant.id == actor.tenant_id))
    )


def _line(row: Any, *, hidden: bool) -> Line:
    entry_id, at, person, action, subject_type, subject_id, subject_name, details, agent = row[:9]
    who = "a member" if hidden and action in SAID else agent or person or "somebody who left"
    return Line(entry_id, at, who, action, subject_type, subject_id, subject_name, details)


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
