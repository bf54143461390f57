"""What happened around a piece of feedback, short enough for an agent to read."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.models import AgentSession, SessionEvent

MOST_EVENTS = 40
LONGEST = 600
TOLD = ("user.message", "agent.message", "tool.call", "tool.result", "session.failed")


def excerpt_of(session_id: UUID, *, actor: Actor) -> dict[str, Any] | None:
    """A session's title, state and last events in order of time, each cut. Two queries."""
    row = db.session.execute(
        select(AgentSession.id, AgentSession.title, AgentSession.status, AgentSession.error).where(
            AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id
        )
    ).one_or_none()
    if row is None:
        return None
    events = db.session.execute(
        select(SessionEvent.event_type, SessionEvent.payload)
        .where(
            SessionEvent.tenant_id == actor.tenant_id,
            SessionEvent.session_id == session_id,
            SessionEvent.event_type.in_(TOLD),
        )
        .order_by(SessionEvent.occurred_at.desc(), SessionEvent.sequence.desc())
        .limit(MOST_EVENTS)
    )
    told = [{"type": kind, **_cut(payload)} for kind, payload in events]
    return {"id": row.id, "title": row.title, "status": row.status, "error": row.error, "events": told[::-1]}


def _cut(payload: dict[str, Any]) -> dict[str, Any]:
    kept = {name: payload[name] for name in ("name", "text", "arguments", "output", "is_error") if name in payload}
    return {name: value if isinstance(value, bool) else _short(value) for name, value in kept.items()}


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
