"""Candidates: requests that people complained about, to be promoted to goldens or dismissed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import distinct_on

from app.actor import Actor
from app.db import db
from app.errors import Forbidden, Invalid
from app.evals.grouping import Candidate, Complaint, group_complaints
from app.models import Agent, AgentSession, Feedback, SessionEvent
from app.services import feedback

__all__ = ["ACTIONS", "Candidate", "list_candidates", "resolve_group", "undo_group"]

ACTIONS = ("applied", "dismissed")
MOST_GROUPS = 100
MOST_IDS = 200
# The newest complaints that are looked at. A workspace with more open ones has other worries than their order.
MOST_COMPLAINTS = 5000
LONGEST_PROMPT = 4000


def list_candidates(*, actor: Actor, limit: int = 20) -> tuple[list[Candidate], int]:
    """The candidates that most people complained about, and how many there are. Two queries, whatever their number."""
    if not actor.is_admin:
        raise Forbidden("Only an admin sees what could become golden.")
    found = group_complaints(_complaints(actor))
    return found[: min(max(limit, 1), MOST_GROUPS)], len(found)


def _complaints(actor: Actor) -> list[Complaint]:
    rows = db.session.execute(
        select(Feedback.id, Feedback.session_id, Feedback.agent_id, Agent.slug, Feedback.created_at)
        .join(Agent, (Agent.tenant_id == Feedback.tenant_id) & (Agent.id == Feedback.agent_id))
        .join(AgentSession, (AgentSession.tenant_id == Feedback.tenant_id) & (AgentSession.id == Feedback.session_id))
        .where(
            Feedback.tenant_id == actor.tenant_id,
            Feedback.status == "pending",
            Feedback.rating == "negative",
            Feedback.source_type.in_(("response", "session")),
            Feedback.replay_session_id.is_(None),
            ~Feedback.details.has_key("retracted_at"),
            AgentSession.eval_source.is_(None),
        )
        .order_by(Feedback.created_at.desc(), Feedback.id)
        .limit(MOST_COMPLAINTS)
    ).all()
    prompts = _prompts(sorted({row.session_id for row in rows}), actor)
    return [
        Complaint(row.id, row.session_id, row.agent_id, row.slug, row.created_at, prompts[row.session_id])
        for row in rows
        if row.session_id in prompts
    ]


def _prompts(session_ids: list[UUID], actor: Actor) -> dict[UUID, str]:
    """What was first said in each session that somebody said something in."""
    if not session_ids:
        return {}
    rows = db.session.execute(
        select(SessionEvent.session_id, SessionEvent.payload["text"].astext)
        .ext(distinct_on(SessionEvent.session_id))
        .where(
            SessionEvent.tenant_id == actor.tenant_id,
            SessionEvent.session_id.in_(session_ids),
            SessionEvent.event_type == "user.message",
        )
        .order_by(SessionEvent.session_id, SessionEvent.sequence)
    )
    return {session_id: text[:LONGEST_PROMPT] for session_id, text in rows if isinstance(text, str) and text.strip()}


def resolve_group(
    feedback_ids: Sequence[UUID], action: str, *, actor: Actor, notes: str | None = None, most: int | None = MOST_IDS
) -> list[UUID]:
    """Apply or dismiss what is still pending of a group; which rows moved. Of two who decide, one wins."""
    if not actor.is_admin:
        raise Forbidden("Only an admin decides about candidates.")
    if action not in ACTIONS:
        raise Invalid("action: Use applied or dismissed.", {"action": "Use applied or dismissed."})
    if most is not None and len(feedback_ids) > most:
        raise Invalid(f"feedbackIds: At most {most} at once.", {"feedbackIds": f"At most {most} at once."})
    if not feedback_ids:
        return []
    outcome = _golden_behind(feedback_ids, actor) if action == "applied" else None
    return feedback.settle_pending(feedback_ids, action, actor=actor, outcome=outcome, notes=notes)


def undo_group(feedback_ids: Sequence[UUID], *, actor: Actor) -> int:
    """Put a dismissed group back; how many rows that were."""
    ids, moved = list(feedback_ids), 0
    for start in range(0, len(ids), MOST_IDS):
        moved += feedback.review(ids[start : start + MOST_IDS], "reopen", actor=actor)
    return moved


def _golden_behind(feedback_ids: Sequence[UUID], actor: Actor) -> dict[str, Any] | None:
    """The golden that one of these sessions has become, as the outcome of the complaint."""
    row = db.session.execute(
        select(AgentSession.id, AgentSession.golden_set)
        .join(Feedback, (Feedback.tenant_id == AgentSession.tenant_id) & (Feedback.session_id == AgentSession.id))
        .where(
            Feedback.tenant_id == actor.tenant_id,
            Feedback.id.in_(feedback_ids),
            AgentSession.golden_set.is_not(None),
        )
        .order_by(AgentSession.created_at.desc())
        .limit(1)
    ).one_or_none()
    return {"kind": "golden", "id": str(row[0]), "text": f"promoted to {row[1]}"} if row else None
