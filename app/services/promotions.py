"""What an admin sees before a session becomes golden: what would be frozen, and what it could be held to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.errors import NotFound
from app.evals.mentions import suggest
from app.evals.snapshot import first_loaded, user_turns
from app.models import Agent, AgentSession, AgentVersion, SessionEvent
from app.services import complaints, golden
from app.services.expected_effects import recorded_changes
from app.services.snapshots import recorded_run


@dataclass(frozen=True)
class Offer:
    """A session that can be golden. `facts` of its answer can be asked for; `preferred` is what somebody would rather
    have read; `tools` are those that it called, `changes` what it changed in plain words."""

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
    events: list[dict[str, Any]] = [
        {"event_type": event.event_type, "payload": event.payload, "sequence": event.sequence} for event in run.events
    ]
    called = [str(event["payload"].get("name")) for event in events if event["event_type"] == "tool.call"]
    return Offer(
        session_id=session.id,
        title=session.title,
        agent_id=session.agent_id,
        agent=slug,
        version=version,
        turns=len(user_turns(events)),
        knowledge_rows=len(first_loaded(events).get("row_ids") or []),
        recordings=sum(event["event_type"] == "tool.result" for event in events),
        complained=complaints.has_open_complaint(session_id, actor=actor),
        facts=suggest(run),
        preferred=complaints.preferred_answer(session_id, actor=actor),
        tools=sorted(set(called)),
        changes=recorded_changes(run, actor=actor),
    )


def choices(session_ids: Sequence[UUID], *, actor: Actor) -> list[Choice]:
    """Which of several sessions can be golden without a further word. Three queries."""
    rows = db.session.execute(
        select(
            AgentSession.id, AgentSession.title, AgentSession.agent_id, AgentSession.status, AgentSession.golden_set,
            AgentSession.eval_source,
        )
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(session_ids))
        .order_by(AgentSession.created_at.desc())
    ).all()  # fmt: skip
    asked = _with_message(session_ids, actor)
    unhappy = complaints.complained_of(session_ids, actor=actor)
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
    return "was complained about; say what should have happened" if unhappy else None
