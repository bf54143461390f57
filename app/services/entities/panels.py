"""What the page of a record shows beside the record: what waits for a decision and who worked on it."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import func, select

from app.actor import Actor
from app.db import db
from app.errors import NotFound
from app.models import Agent, AgentSession, EntityResponse

MAX_SESSIONS = 20


@dataclass(frozen=True)
class EntityWork:
    """A session about a record."""

    id: UUID
    title: str
    status: str
    agent: str
    created_at: datetime


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


def list_work(entity_id: UUID, *, actor: Actor) -> list[EntityWork]:
    """The latest sessions about a record, without those of other people's conversations. One query."""
    rows = db.session.execute(
        select(AgentSession.id, AgentSession.title, AgentSession.status, Agent.slug, AgentSession.created_at)
        .join(Agent, Agent.id == AgentSession.agent_id)
        .where(
            AgentSession.tenant_id == actor.tenant_id,
            AgentSession.entity_id == entity_id,
        )
        .order_by(AgentSession.created_at.desc(), AgentSession.id.desc())
        .limit(MAX_SESSIONS)
    )
    return [EntityWork(*row) for row in rows]


def get_response(entity_id: UUID, response_id: UUID, *, actor: Actor) -> EntityResponse:
    """A response about this record. One query."""
    row = db.session.scalar(
        select(EntityResponse).where(
            EntityResponse.tenant_id == actor.tenant_id,
            EntityResponse.entity_id == entity_id,
            EntityResponse.id == response_id,
        )
    )
    if row is None:
        raise NotFound("There is no such response about this record.")
    return row
