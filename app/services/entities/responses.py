"""Responses: values that a person or an agent submitted about a record, and whether they were accepted."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from app.actor import Actor
from app.db import db, get_own
from app.errors import Invalid, NotFound, Refused
from app.formats.response_values import find_value_errors, wrap_value
from app.models import Agent, AgentSession, CriteriaSet, Entity, EntityResponse, User
from app.services import audit
from app.services.agents import versions
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.privacy import name_of
from app.services.sessions.events import NewEvent
from app.services.sessions.store import NewSession, create_session, find_links, runs_here

DECISIONS = ("accepted", "rejected")
EXTRACTIONS = ("field", "fields")


@dataclass(frozen=True, kw_only=True)
class NewResponse:
    """`values` maps a field to `{value, source, confidence}` or a bare value. Without an agent it is the person's."""

    entity_id: UUID
    values: dict[str, Any]
    criteria_set_id: UUID | None = None
    session_id: UUID | None = None
    agent_id: UUID | None = None
    created_at: datetime | None = None


def submit_response(new: NewResponse, *, actor: Actor) -> EntityResponse:
    """Store values about a record, for a person to accept or reject. It is an extraction when the session was."""
    if not new.values:
        raise Invalid.of({"values": "Submit at least one field."})
    links = {
        "entity_id": (Entity, new.entity_id),
        "criteria_set_id": (CriteriaSet, new.criteria_set_id),
        "agent_id": (Agent, new.agent_id),
        "session_id": (AgentSession, new.session_id),
    }
    found = find_links(links, actor=actor)
    values = {name: wrap_value(given) for name, given in new.values.items()}
    _check_values(values, found.get("criteria_set_id"))
    session: AgentSession | None = found.get("session_id")
    row = EntityResponse(
        **{name: given for name, given in vars(new).items() if given is not None} | {"values": values},
        tenant_id=actor.tenant_id,
        extracted=session is not None and session.output_type in EXTRACTIONS,
        created_by=None if new.agent_id else actor.id,
    )
    db.session.add(row)
    db.session.flush()
    audit.record(actor, "response.submitted", "response", row.id, entity_id=new.entity_id, fields=list(new.values))
    return row


def report_response(new: NewResponse, *, actor: Actor) -> EntityResponse:
    """Store what is sent. With a key and a session it is the answer of that session's agent, else the person's own."""
    if new.session_id is None or actor.scopes is None:
        return submit_response(new, actor=actor)
    session = find_links({"session_id": (AgentSession, new.session_id)}, actor=actor)["session_id"]
    if runs_here(session.id, actor=actor):
        raise Refused("This session runs in Upshot, so only its agent can submit responses.")
    return submit_response(replace(new, agent_id=session.agent_id), actor=actor)


def _check_values(values: dict[str, dict[str, Any]], criteria: CriteriaSet | None) -> None:
    """Raise Invalid for a value that is of no field of the criteria set, or of another kind."""
    wrong = find_value_errors(values, criteria.dimensions, criteria.name) if criteria else {}
    if wrong:
        raise Invalid.of({f"values.{name}": sentence for name, sentence in wrong.items()})


def decide_response(
    response_id: UUID,
    status: str,
    *,
    actor: Actor,
    reason: str | None = None,
    field_name: str | None = None,
    at: datetime | None = None,
) -> EntityResponse:
    """Accept or reject what was submitted. It is decided once; a rejection says why and becomes feedback."""
    if status not in DECISIONS:
        raise Invalid.of({"status": f"Use one of {', '.join(DECISIONS)}."})
    why = (reason or "").strip()
    if status == "rejected" and not why:
        raise Invalid.of({"rejection_reason": "Enter what is wrong."})
    row = get_own(EntityResponse, response_id, "response", actor=actor, lock=True)
    if row.status != "submitted":
        raise Refused(f"This response is already {row.status}.", current=row.status)
    if field_name is not None and field_name not in row.values:
        known = ", ".join(row.values)
        raise Invalid(f"field_name: This response has {known}.", {"field_name": "Not in this response."})
    row.status, row.decided_by, row.decided_at = status, actor.id, at or datetime.now(UTC)
    row.rejection_reason = why if status == "rejected" else None
    db.session.flush()
    audit.record(actor, f"response.{status}", "response", row.id, before="submitted", after=status, reason=why or None)
    if status == "rejected":
        _write_feedback(row, why, field_name, actor, at)
    return row


def _write_feedback(row: EntityResponse, why: str, field_name: str | None, actor: Actor, at: datetime | None) -> None:
    """Exactly one row of feedback. What an agent extracted is tried again, once, and that is its application."""
    field = field_name or (next(iter(row.values)) if len(row.values) == 1 else None)
    entity = db.session.get_one(Entity, row.entity_id)
    context: dict[str, Any] = {"response_id": str(row.id), "field_name": field}
    if row.extracted:
        retry = _start_retry(row, entity, why, field, actor, at)
        context |= {
            "entity_type_id": str(entity.entity_type_id),
            "rejected_value": _value(row.values[field]) if field else row.values,
            "retry_ref": str(retry.id) if retry else None,
        }
    elif row.criteria_set_id:
        context["criteria_set_id"] = str(row.criteria_set_id)
    record_feedback(
        NewFeedback(
            source_type="extraction" if row.extracted else "response",
            kind="extraction_rejection" if row.extracted else "response_rejection",
            rating="negative",
            comment=why,
            session_id=row.session_id,
            entity_id=row.entity_id,
            agent_id=row.agent_id,
            context={name: value for name, value in context.items() if value is not None},
            status="applied" if context.get("retry_ref") else "pending",
            created_at=at,
        ),
        actor=actor,
    )


def _start_retry(
    row: EntityResponse, entity: Entity, why: str, field: str | None, actor: Actor, at: datetime | None
) -> AgentSession | None:
    """A pending session with the rejection as its instruction; none for a retry or for an archived agent."""
    if row.agent_id is None:
        return None
    first = db.session.get_one(AgentSession, row.session_id) if row.session_id is not None else None
    if first is not None and "retry_of" in first.meta:
        return None
    agent = versions.ensure_agent(db.session.get_one(Agent, row.agent_id).slug, actor=actor)
    if agent.archived_at is not None:
        return None
    what = f"{field.replace('_', ' ') if field else 'the values'} of {entity.name} again"
    last = _value(row.values[field]) if field else None
    shown = f", {last}," if isinstance(last, int | float) else ""
    # One sentence: what to extract and what the person says about it belong together.
    instruction = f"Extract {what}, because the last answer{shown} was rejected: {why}"
    marks: dict[str, Any] = {"retry_of": str(row.id), "instruction": instruction}
    if row.criteria_set_id:
        marks["criteria_set_id"] = str(row.criteria_set_id)
    elsewhere = agent.kind == "external"
    new = NewSession(
        agent=agent.slug,
        title=f"Extract {what}",
        output_type="field" if field else "fields",
        entity_id=entity.id,
        owner_id=row.owner_id,
        marks=marks if elsewhere else marks | {"turns": [instruction]},
        created_at=at,
        events=[NewEvent("user.message", {"text": instruction}, at)] if elsewhere else [],
    )
    # A retry has no more permissions than the first run, no matter who rejected the response.
    return create_session(new, actor=actor.limited_to(first.key_scopes if first is not None else None))[0]


def _value(given: Any) -> Any:
    return given.get("value") if isinstance(given, dict) and "value" in given else given


def list_responses(entity_id: UUID, *, actor: Actor) -> Sequence[Any]:
    """What was submitted about a record, newest first. `retries` says whether a rejection lets its agent try again."""
    is_retry = func.coalesce(AgentSession.meta.has_key("retry_of"), False)
    retries = EntityResponse.extracted & EntityResponse.agent_id.is_not(None) & ~is_retry
    author = name_of(EntityResponse.created_by, actor, EntityResponse.session_id.is_not(None))
    return db.session.execute(
        select(
            EntityResponse.id, EntityResponse.values, EntityResponse.extracted, EntityResponse.status,
            EntityResponse.rejection_reason, CriteriaSet.slug.label("criteria_set"), Agent.slug.label("agent"),
            EntityResponse.session_id, author.label("author"), EntityResponse.created_at, EntityResponse.decided_at,
            EntityResponse.owner_id, retries.label("retries"),
        )
        .outerjoin(AgentSession, AgentSession.id == EntityResponse.session_id)
        .outerjoin(CriteriaSet, CriteriaSet.id == EntityResponse.criteria_set_id)
        .outerjoin(Agent, Agent.id == EntityResponse.agent_id)
        .outerjoin(User, User.id == EntityResponse.created_by)
        .where(EntityResponse.tenant_id == actor.tenant_id, EntityResponse.entity_id == entity_id)
        .order_by(EntityResponse.created_at.desc(), EntityResponse.id)
        .limit(100)
    ).all()  # fmt: skip


def get_response(entity_id: UUID, response_id: UUID, *, actor: Actor) -> EntityResponse:
    """A response about this record. One query."""
    row = get_own(EntityResponse, response_id, "response", actor=actor)
    if row.entity_id != entity_id:
        raise NotFound("This record has no response with that ID.")
    return row


def count_waiting(entity_ids: Collection[UUID], *, actor: Actor) -> dict[UUID, int]:
    """How many responses of each record wait for a decision. One query."""
    if not entity_ids:
        return {}
    rows = db.session.execute(
        select(EntityResponse.entity_id, func.count())
        .where(
            EntityResponse.tenant_id == actor.tenant_id,
            EntityResponse.entity_id.in_(entity_ids),
            EntityResponse.status == "submitted",
        )
        .group_by(EntityResponse.entity_id)
    )
    return {row[0]: row[1] for row in rows}
