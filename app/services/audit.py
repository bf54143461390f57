"""Who did what: one row in the same transaction as each change."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Text, and_, cast, func, or_, select, union_all
from sqlalchemy.orm import aliased
from sqlalchemy.sql.elements import ColumnElement

from app.actor import Actor
from app.db import db, run
from app.db.paging import Page, Slice, read_page
from app.models.agents import Agent
from app.models.people import ApiKey, AuditEntry, User
from app.services import audit_entry
from app.services.privacy import A_MEMBER, is_hidden, name_of

Subject = aliased(User)
# Who did these is who said something.
BY_AUTHORS = ("feedback.created", "feedback.changed", "feedback.retracted")
# Who did these is whose conversation it is, or who judged an answer, which is feedback too.
REVEALING = (
    *BY_AUTHORS, "session.began", "session.finished", "session.stop_requested", "response.submitted",
    "response.accepted", "response.rejected",
)  # fmt: skip
# Details that hold the id of a person or a key, and what they are called beside a name.
ID_DETAILS = {"user_id": "person", "key_id": "key"}
ASSIGNMENTS = ("feedback.assigned", "feedback.unassigned")


@dataclass(frozen=True)
class AuditLine:
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
    """Note what the actor did, from what to what, in the transaction of the session."""
    audit_entry.record(run, actor, action, subject_type, subject_id, **details)


def list_entries(page: Page, *, actor: Actor) -> Slice[AuditLine]:
    """What happened in the workspace, the newest first. Where authors are hidden, so is whoever did what
    tells them."""
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
            and_(is_hidden(AuditEntry.actor_user_id, actor), User.is_system.is_(False), _is_revealing()),
        )
        .outerjoin(User, User.id == AuditEntry.actor_user_id)
        .outerjoin(Subject, (Subject.id == AuditEntry.subject_id) & (AuditEntry.subject_type == "user"))
        .outerjoin(Agent, (Agent.tenant_id == AuditEntry.tenant_id) & (Agent.id == AuditEntry.actor_agent_id))
    )
    where = [AuditEntry.tenant_id == actor.tenant_id]
    found = read_page(statement, page, at=AuditEntry.created_at, id=AuditEntry.id, where=where)
    lines = found.map(_audit_line)
    names = _names_in(lines.items, actor)
    return lines.map(lambda entry: replace(entry, details=_with_names(entry, names)))


def _names_in(lines: Sequence[AuditLine], actor: Actor) -> dict[str, str]:
    """The names of people and keys whose ids are in the details. One query, none without ids."""
    ids = {value for line in lines for value in _ids_in(line).values()}
    if not ids:
        return {}
    people = select(cast(User.id, Text), User.name).where(User.id.in_(ids))
    keys = select(cast(ApiKey.id, Text), ApiKey.name).where(ApiKey.tenant_id == actor.tenant_id, ApiKey.id.in_(ids))
    return {row[0]: row[1] for row in db.session.execute(union_all(people, keys))}


def _ids_in(line: AuditLine) -> dict[str, UUID]:
    names = (*ID_DETAILS, *(("before", "after") if line.action in ASSIGNMENTS else ()))
    found = {}
    for name in names:
        with suppress(ValueError):
            found[name] = UUID(str(line.details.get(name) or ""))
    return found


def _with_names(line: AuditLine, names: dict[str, str]) -> dict[str, Any]:
    """The details with names in place of ids."""
    named = {name: names.get(str(value), "somebody who left") for name, value in _ids_in(line).items()}
    if line.action in ASSIGNMENTS:
        named = {name: named.get(name, "nobody") for name in ("before", "after")} | named
    details = line.details | named
    return {ID_DETAILS.get(name, name): value for name, value in details.items()}


def _is_revealing() -> ColumnElement[bool]:
    """Whether the actor reveals an author. The first person who talks with an external agent creates it."""
    met = and_(AuditEntry.action == "agent.created", AuditEntry.details["kind"].astext == "external")
    return or_(AuditEntry.action.in_(REVEALING), met)


def _audit_line(row: Any) -> AuditLine:
    entry_id, at, person, action, subject_type, subject_id, subject_name, details, agent, hidden = row
    if hidden:
        # The key would tell whose it is.
        person, details = A_MEMBER, {name: value for name, value in details.items() if name != "key_id"}
    who = agent or person or "somebody who left"
    return AuditLine(entry_id, at, who, action, subject_type, subject_id, subject_name, details)


# The history of one record

MAX_STEPS = 50


@dataclass(frozen=True)
class Step:
    """One thing that was done, by whom."""

    action: str
    who: str | None
    details: dict[str, Any]
    created_at: datetime


def history_of(subject_type: str, subject_id: UUID, *, actor: Actor) -> list[Step]:
    """The changes of a record, oldest first. Reads are left out."""
    by = name_of(AuditEntry.actor_user_id, actor, AuditEntry.action.in_(BY_AUTHORS))
    rows = db.session.execute(
        select(AuditEntry.action, func.coalesce(Agent.slug, by), AuditEntry.details, AuditEntry.created_at)
        .outerjoin(User, User.id == AuditEntry.actor_user_id)
        .outerjoin(Agent, (Agent.tenant_id == AuditEntry.tenant_id) & (Agent.id == AuditEntry.actor_agent_id))
        .where(
            AuditEntry.tenant_id == actor.tenant_id,
            AuditEntry.subject_type == subject_type,
            AuditEntry.subject_id == subject_id,
            AuditEntry.action != f"{subject_type}.read",
        )
        .order_by(AuditEntry.created_at.desc(), AuditEntry.id)
        .limit(MAX_STEPS)
    )
    return [Step(*row) for row in rows][::-1]
