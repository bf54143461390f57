"""Goldens as they are listed. Of their metadata only what a list shows is read, never the snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import DateTime, Uuid, cast, select
from sqlalchemy.orm import aliased
from sqlalchemy.sql import Select

from app.actor import Actor
from app.db import db
from app.db.paging import Page, Slice, read_page
from app.errors import NotFound
from app.models import Agent, AgentSession, AgentVersion, User
from app.models.agents import REPLAYABLE_KINDS


@dataclass(frozen=True)
class GoldenRow:
    """A golden in a list: whether its own agent can replay it here, and whether another could; `elsewhere` says that
    its own runs there."""

    id: UUID
    title: str
    session_type: str
    created_at: datetime
    set_name: str
    note: str | None
    criteria_set_id: UUID | None
    agent_id: UUID
    agent: str
    agent_name: str
    replayable: bool
    another: bool
    elsewhere: bool
    agent_version: int | None
    promoted_at: datetime | None
    promoted_by: UUID | None
    sha256: str | None
    baseline_rejected: bool
    recorded_is_right: bool
    expected: dict[str, Any] | None
    person: str | None = None


def list_goldens(
    page: Page, *, actor: Actor, set_name: str | None = None, count: int | None = None
) -> Slice[GoldenRow]:
    """One page of the goldens, newest session first. Whoever knows how many there are saves a query."""
    where = [AgentSession.tenant_id == actor.tenant_id, AgentSession.golden_set.is_not(None)]
    if set_name is not None:
        where.append(AgentSession.golden_set == set_name)
    found = read_page(_statement(actor), page, at=AgentSession.created_at, id=AgentSession.id, where=where, count=count)
    return found.map(_row)


def get_golden(session_id: UUID, *, actor: Actor) -> GoldenRow:
    row = db.session.execute(
        _statement(actor).where(
            AgentSession.tenant_id == actor.tenant_id,
            AgentSession.id == session_id,
            AgentSession.golden_set.is_not(None),
        )
    ).one_or_none()
    if row is None:
        raise NotFound("There is no such golden in this workspace.")
    return _row(tuple(row))


def can_replay(agent: Any = Agent) -> Any:
    """Whether an agent can replay anything: it runs in Upshot, and is not archived."""
    return agent.kind.in_(REPLAYABLE_KINDS) & agent.archived_at.is_(None)


def another_can_replay(actor: Actor) -> Any:
    """Whether there is an agent that can be chosen to replay with."""
    other = aliased(Agent)
    return select(other.id).where(other.tenant_id == actor.tenant_id, can_replay(other), ~other.is_system).exists()


def _statement(actor: Actor) -> Select[*tuple[Any, ...]]:
    golden: Any = AgentSession.meta["golden"]
    return (
        select(
            AgentSession.id, AgentSession.title, AgentSession.session_type, AgentSession.created_at,
            AgentSession.golden_set, golden["note"].astext, cast(golden["criteriaSetId"].astext, Uuid),
            AgentSession.agent_id, Agent.slug, Agent.name,
            can_replay(), another_can_replay(actor), Agent.kind.not_in(REPLAYABLE_KINDS), AgentVersion.version,
            cast(golden["promoted_at"].astext, DateTime(timezone=True)), cast(golden["promoted_by"].astext, Uuid),
            golden["sha256"].astext, golden["baseline_rejected"].astext, golden["recorded_is_right"].astext,
            golden["expected"], User.name,
        )
        .join(Agent, (Agent.tenant_id == AgentSession.tenant_id) & (Agent.id == AgentSession.agent_id))
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .outerjoin(User, User.id == cast(golden["promoted_by"].astext, Uuid))
    )  # fmt: skip


def _row(row: tuple[Any, ...]) -> GoldenRow:
    values = [*row]
    values[-4:-2] = [flag == "true" for flag in row[-4:-2]]
    return GoldenRow(*values)


def titles_of(session_ids: list[str], *, actor: Actor) -> dict[str, str]:
    """What sessions are called, by their id as text."""
    rows = db.session.execute(
        select(AgentSession.id, AgentSession.title).where(
            AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_([UUID(found) for found in session_ids])
        )
    )
    return {str(session_id): title for session_id, title in rows}
