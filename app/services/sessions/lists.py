"""Sessions in a list: one row each with what the list shows, never the metadata or a payload."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.db.paging import Page, Slice, empty, read_page
from app.db.scan import Stretch, walk_page
from app.models import Agent, AgentSession, AgentVersion, Feedback
from app.services.feedback.lists import counted_ratings
from app.services.lists import text_search
from app.services.lists.filters import SessionFilters
from app.services.privacy import is_hidden

LOOKED_AT = 5000


@dataclass(frozen=True)
class SessionRow:
    id: UUID
    external_id: str | None
    trace_id: str | None
    title: str
    session_type: str
    output_type: str | None
    status: str
    error: str | None
    agent_id: UUID
    agent: str
    agent_version: int | None
    chat_id: UUID | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost: Decimal | None
    duration_ms: int | None
    environment: str | None
    tags: list[str]
    event_count: int
    truncated: bool
    golden_set: str | None
    eval_source: str | None
    created_at: datetime
    finished_at: datetime | None
    positive: int
    negative: int
    neutral: int


COLUMNS: tuple[Any, ...] = (
    AgentSession.id, AgentSession.external_id, AgentSession.trace_id, AgentSession.title, AgentSession.session_type,
    AgentSession.output_type, AgentSession.status, AgentSession.error, AgentSession.agent_id, Agent.slug,
    AgentVersion.version, AgentSession.chat_id, AgentSession.model,
    AgentSession.input_tokens, AgentSession.output_tokens, AgentSession.cost, AgentSession.duration_ms,
    AgentSession.environment, AgentSession.tags, AgentSession.event_count, AgentSession.truncated,
    AgentSession.golden_set,
    AgentSession.eval_source, AgentSession.created_at, AgentSession.finished_at,
)  # fmt: skip


def list_sessions(filters: SessionFilters, page: Page, *, actor: Actor) -> Slice[SessionRow]:
    """One page of the workspace's sessions. At most five queries."""
    where, count = _indexed(filters, actor), None
    if filters.q:
        matches = text_search.matching("sessions", filters, page)
        if not matches.ids:
            return empty()
        where.append(matches.are(AgentSession.id))
        count = matches.count
    statement = (
        select(*COLUMNS)
        .join(Agent, Agent.id == AgentSession.agent_id)
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
    )
    found = (
        walk_page(statement, page, stretch_of(filters, where))
        if filters.sieves
        else read_page(
            statement,
            page,
            at=AgentSession.created_at,
            id=AgentSession.id,
            where=where,
            oldest_first=filters.oldest_first,
            count=count,
        )
    )
    received = ratings_of([row[0] for row in found.items])
    return found.map(lambda row: SessionRow(*(row + received.get(row[0], (0, 0, 0)))))


def conditions_of(filters: SessionFilters, actor: Actor) -> list[Any] | None:
    """What indexes narrow the list by, or None when the words that are searched for are nowhere."""
    where = _indexed(filters, actor)
    if filters.q:
        ids = text_search.matching_ids("sessions", filters.q)
        if not ids:
            return None
        where.append(text_search.Matches(ids).are(AgentSession.id))
    return where


def _indexed(filters: SessionFilters, actor: Actor) -> list[Any]:
    where = [AgentSession.tenant_id == actor.tenant_id, *filters.conditions()]
    return [*where, ~is_hidden(AgentSession.created_by, actor)] if filters.person_id else where


def stretch_of(filters: SessionFilters, where: list[Any], looked_at: int = LOOKED_AT) -> Stretch:
    """The part of the list that is looked at for what no index knows."""
    carried: dict[str, Any] = {name: getattr(AgentSession, name) for name in filters.columns}
    carried["has_error"] = AgentSession.error.is_not(None)
    return Stretch(
        AgentSession.created_at,
        AgentSession.id,
        where,
        carried,
        filters.sieve,
        looked_at,
        oldest_first=filters.oldest_first,
    )


def ratings_of(session_ids: list[UUID]) -> dict[UUID, tuple[int, int, int]]:
    """How each session was received: positive, negative, neutral; only what the reader may see."""
    if not session_ids:
        return {}
    rows = db.session.execute(
        select(Feedback.session_id, *counted_ratings())
        .where(Feedback.session_id.in_(session_ids))
        .group_by(Feedback.session_id)
    )
    return {row[0]: (row[1], row[2], row[3]) for row in rows}
