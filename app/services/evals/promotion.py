"""What an admin sees before a session becomes golden: what would be frozen, and what it could be held to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import case, func, select

from app.actor import Actor
from app.db import db
from app.errors import NotFound
from app.evals.expected.mentions import suggest
from app.models import Agent, AgentSession, AgentVersion, SessionEvent
from app.services.evals import golden
from app.services.evals.expected import recorded_changes
from app.services.evals.snapshot import recorded_run
from app.services.feedback import negative


@dataclass(frozen=True)
class Offer:
    """A session that can be golden. `facts` of its answer can be asked for; `preferred` is what somebody would rather
    have read; `tools` are those that it called, `changes` what it changed in plain words; `truncated` says that an
    answer was cut off."""

    session_id: UUID
    title: str
    agent_id: UUID
    agent: str
    version: int | None
    turns: int
    knowledge_rows: int
    recordings: int
    complained: bool
    facts: list[str]
    preferred: str | None
    tools: list[str]
    changes: list[str]
    truncated: bool


@dataclass(frozen=True)
class Choice:
    """One of several sessions that were picked: why it cannot be golden with the others, or None."""

    id: UUID
    title: str
    agent_id: UUID
    refusal: str | None


def offer(session_id: UUID, *, actor: Actor) -> Offer:
    """What a promotion would keep, or the reason why there can be none."""
    row = db.session.execute(
        select(AgentSession, Agent.slug, AgentVersion.version)
        .join(Agent, (Agent.tenant_id == AgentSession.tenant_id) & (Agent.id == AgentSession.agent_id))
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id)
    ).one_or_none()
    if row is None:
        raise NotFound("There is no such session in this workspace.")
    session, slug, version = row
    golden.check_promotable(session, actor)
    run = recorded_run(session, actor=actor)
    turns, recordings, rows = _counts(session_id, actor)
    called = [str(event.payload.get("name")) for event in run.events if event.event_type == "tool.call"]
    return Offer(
        session_id=session.id,
        title=session.title,
        agent_id=session.agent_id,
        agent=slug,
        version=version,
        turns=turns,
        knowledge_rows=rows,
        recordings=recordings,
        complained=negative.has_open_complaint(session_id, actor=actor),
        facts=suggest(run),
        preferred=negative.preferred_answer(session_id, actor=actor),
        tools=sorted(set(called)),
        changes=recorded_changes(run, actor=actor),
        truncated=session.truncated,
    )


def _counts(session_id: UUID, actor: Actor) -> tuple[int, int, int]:
    """How many messages and results a golden would keep, and how many knowledge rows it had in its prompt."""
    event = SessionEvent
    of_session = [event.tenant_id == actor.tenant_id, event.session_id == session_id]
    loaded = (
        select(case((func.jsonb_typeof(event.payload["row_ids"]) == "array", event.payload["row_ids"])))
        .where(*of_session, event.event_type == "context.loaded")
        .order_by(event.occurred_at, event.sequence)
        .limit(1)
        .scalar_subquery()
    )
    said = func.btrim(func.coalesce(event.payload["text"].astext, "")) != ""
    row = db.session.execute(
        select(
            func.count().filter(event.event_type == "user.message", said),
            func.count().filter(event.event_type == "tool.result"),
            func.coalesce(func.jsonb_array_length(loaded), 0),
        ).where(*of_session, event.event_type.in_(("user.message", "tool.result")))
    ).one()
    return row[0], row[1], row[2]


def choices(session_ids: Sequence[UUID], *, actor: Actor) -> list[Choice]:
    """Which of several sessions can be golden without a further word. Three queries."""
    rows = db.session.execute(
        select(
            AgentSession.id, AgentSession.title, AgentSession.agent_id, AgentSession.status, AgentSession.golden_set,
            AgentSession.eval_source, AgentSession.truncated,
        )
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(session_ids))
        .order_by(AgentSession.created_at.desc())
    ).all()  # fmt: skip
    asked = _with_message(session_ids, actor)
    unhappy = negative.complained_of(session_ids, actor=actor)
    return [Choice(row.id, row.title, row.agent_id, _refusal(row, row.id in asked, row.id in unhappy)) for row in rows]


def _with_message(session_ids: Sequence[UUID], actor: Actor) -> set[UUID]:
    event = SessionEvent
    found = select(event.session_id).distinct().where(event.tenant_id == actor.tenant_id)
    return set(db.session.scalars(found.where(event.session_id.in_(session_ids), event.event_type == "user.message")))


def _refusal(row: Any, asked: bool, unhappy: bool) -> str | None:
    if row.golden_set is not None:
        return f"is golden already, in {row.golden_set}"
    if row.eval_source is not None:
        return "is a replay"
    if row.status != "completed":
        return f"is {row.status}, not completed"
    if not asked:
        return "has no message of a person"
    if row.truncated:
        return "has an answer that was cut off; promote it by itself"
    return "was complained about; say what should have happened" if unhappy else None
