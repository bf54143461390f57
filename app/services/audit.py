"""Who did what: one row in the same transaction as each change."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sqlalchemy import Row, Text, and_, case, cast, func, or_, select, union_all
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db import db, run
from app.db.paging import Page, Slice, read_page
from app.formats.ids import parse_id
from app.models.agents import Agent
from app.models.people import ApiKey, AuditEntry, User
from app.services import audit_entry
from app.services.privacy import is_hidden, name_of

Subject = aliased(User)
SOMEONE = "someone who left"
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
MAX_STEPS = 50
LINE = ("id", "at", "who", "action", "subject_id", "subject_name", "details")
# Of a record's history: action, who, details, created_at.
Step = Row[Any]


def record(actor: Actor, action: str, subject_type: str, subject_id: UUID | None, **details: Any) -> None:
    """Note what the actor did, from what to what, in the transaction of the session."""
    audit_entry.record(run, actor, action, subject_type, subject_id, **details)


def record_each(actor: Actor, action: str, subject_type: str, entries: Sequence[tuple[UUID, dict[str, Any]]]) -> None:
    """Note the same action on many subjects, each with its details. One statement."""
    audit_entry.record_each(run, actor, action, subject_type, entries)


def list_entries(page: Page, *, actor: Actor) -> Slice[Any]:
    """What happened in the workspace as `LINE`, newest first. Where authors are hidden, so is the person whose action
    reveals one, and their key."""
    # The first person who talks with an external agent creates it.
    met = and_(AuditEntry.action == "agent.created", AuditEntry.details["kind"].astext == "external")
    reveals = or_(AuditEntry.action.in_(REVEALING), met)
    hidden = and_(is_hidden(AuditEntry.actor_user_id, actor), User.is_system.is_(False), reveals)
    statement: Any = _with_actors(
        select(
            AuditEntry.id,
            AuditEntry.created_at,
            func.coalesce(Agent.name, name_of(AuditEntry.actor_user_id, actor, reveals), SOMEONE),
            AuditEntry.action,
            AuditEntry.subject_id,
            Subject.name,
            case((hidden, AuditEntry.details.op("-")("key_id")), else_=AuditEntry.details),
        )
    ).outerjoin(Subject, (Subject.id == AuditEntry.subject_id) & (AuditEntry.subject_type == "user"))
    where = [AuditEntry.tenant_id == actor.tenant_id]
    found = read_page(statement, page, at=AuditEntry.created_at, id=AuditEntry.id, where=where)
    lines = found.map(lambda row: SimpleNamespace(**dict(zip(LINE, row, strict=True))))
    names = _names_in(lines.items, actor)
    for line in lines.items:
        line.details = _with_names(line, names)
    return lines


def _with_actors(statement: Any) -> Any:
    return (
        statement.select_from(AuditEntry)
        .outerjoin(User, User.id == AuditEntry.actor_user_id)
        .outerjoin(Agent, (Agent.tenant_id == AuditEntry.tenant_id) & (Agent.id == AuditEntry.actor_agent_id))
    )


def _names_in(lines: Sequence[Any], actor: Actor) -> dict[str, str]:
    """The names of people and keys whose ids are in the details. One query, none without ids."""
    ids = {value for line in lines for value in _ids_in(line).values()}
    if not ids:
        return {}
    people = select(cast(User.id, Text), User.name).where(User.id.in_(ids))
    keys = select(cast(ApiKey.id, Text), ApiKey.name).where(ApiKey.tenant_id == actor.tenant_id, ApiKey.id.in_(ids))
    return {row[0]: row[1] for row in db.session.execute(union_all(people, keys))}


def _ids_in(line: Any) -> dict[str, UUID]:
    names = (*ID_DETAILS, *(("before", "after") if line.action in ASSIGNMENTS else ()))
    return {name: found for name in names if (found := parse_id(line.details.get(name)))}


def _with_names(line: Any, names: dict[str, str]) -> dict[str, Any]:
    """The details with names in place of ids."""
    named = {name: names.get(str(value), SOMEONE) for name, value in _ids_in(line).items()}
    if line.action in ASSIGNMENTS:
        named = {"before": "nobody", "after": "nobody"} | named
    return {ID_DETAILS.get(name, name): value for name, value in (line.details | named).items()}


def history_of(subject_type: str, subject_id: UUID, *, actor: Actor) -> list[Step]:
    """The changes of a record, oldest first. Reads are left out."""
    by = name_of(AuditEntry.actor_user_id, actor, AuditEntry.action.in_(BY_AUTHORS))
    who = func.coalesce(Agent.slug, by).label("who")
    rows = db.session.execute(
        _with_actors(select(AuditEntry.action, who, AuditEntry.details, AuditEntry.created_at))
        .where(
            AuditEntry.tenant_id == actor.tenant_id,
            AuditEntry.subject_type == subject_type,
            AuditEntry.subject_id == subject_id,
            AuditEntry.action != f"{subject_type}.read",
        )
        .order_by(AuditEntry.created_at.desc(), AuditEntry.id)
        .limit(MAX_STEPS)
    )
    return list(rows)[::-1]
