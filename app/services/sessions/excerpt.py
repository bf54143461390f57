"""What happened around a piece of feedback, short enough for an agent to read."""

from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from app.actor import Actor
from app.db import db
from app.models import AgentSession, SessionEvent

MAX_EVENTS = 40
MAX_LENGTH = 600
PAYLOAD_KEYS = ("name", "text", "arguments", "output")
EVENT_TYPES = ("user.message", "agent.message", "tool.call", "tool.result", "session.failed")


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
        select(SessionEvent.event_type, *(_cut(name) for name in PAYLOAD_KEYS), SessionEvent.payload["is_error"].astext)
        .where(
            SessionEvent.tenant_id == actor.tenant_id,
            SessionEvent.session_id == session_id,
            SessionEvent.event_type.in_(EVENT_TYPES),
        )
        .order_by(SessionEvent.occurred_at.desc(), SessionEvent.sequence.desc())
        .limit(MAX_EVENTS)
    )
    told = [{"type": kind, **_payload(cut, is_error)} for kind, *cut, is_error in events]
    return {"id": row.id, "title": row.title, "status": row.status, "error": row.error, "events": told[::-1]}


def _cut(name: str) -> Any:
    """A text of a payload, one character longer than what is shown of it. The database cuts what is large."""
    return func.left(SessionEvent.payload[name].astext, MAX_LENGTH + 1)


def _payload(cut: list[str | None], is_error: str | None) -> dict[str, Any]:
    told: dict[str, Any] = {
        name: _short(text) for name, text in zip(PAYLOAD_KEYS, cut, strict=True) if text is not None
    }
    return told | ({} if is_error is None else {"is_error": is_error == "true"})


def _short(text: str) -> str:
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"
