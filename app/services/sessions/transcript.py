"""What a transcript shows beside its own rows: the work behind a chat's messages, what an agent knew, and excerpts."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import and_, exists, func, select

from app.actor import Actor
from app.db import db
from app.models import AgentSession, AgentVersion, Entity, SessionEvent, SharedContext
from app.services.sessions.event_windows import Event
from app.services.sessions.paging import LARGE_PAYLOAD, shorten_payload

MAX_EVENTS = 2000
MAX_BYTES = 4_000_000
RECORD_ID = re.compile(r"(?:entity )?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
MAX_NAMES = 500
MAX_SESSIONS = 100
WORK = ("context.loaded", "tool.call", "tool.result", "entity.created", "entity.updated", "response.submitted")
# Of an excerpt.
EXCERPT_EVENTS = 40
EXCERPT_LENGTH = 600
EXCERPT_KEYS = ("name", "text", "arguments", "output")
EXCERPT_TYPES = ("user.message", "agent.message", "tool.call", "tool.result", "session.failed")


@dataclass(frozen=True)
class KnownRow:
    """A knowledge row that a prompt held, as it is today."""

    id: UUID
    type: str
    content: str
    state: str


def sessions_behind(chat_id: UUID, *, actor: Actor) -> Sequence[Any]:
    """The sessions of a conversation, the newest 100. One query."""
    asked = exists().where(
        SessionEvent.tenant_id == AgentSession.tenant_id, SessionEvent.session_id == AgentSession.id,
        SessionEvent.event_type == "user.message",
    )  # fmt: skip
    promotable = and_(
        AgentSession.status == "completed", AgentSession.golden_set.is_(None), AgentSession.eval_source.is_(None), asked
    )
    return db.session.execute(
        select(
            AgentSession.id, AgentSession.title, AgentSession.status, AgentSession.duration_ms, AgentSession.golden_set,
            AgentVersion.version.label("agent_version"), promotable.label("promotable"),
        )
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.chat_id == chat_id)
        .order_by(AgentSession.created_at.desc(), AgentSession.id.desc())
        .limit(MAX_SESSIONS)
    ).all()  # fmt: skip


def load_work_events(session_ids: Collection[UUID], *, actor: Actor) -> dict[UUID, list[Event]]:
    """What the agents did in these sessions, in order of time, as far as a page can show it. One query."""
    if not session_ids:
        return {}
    some = (
        select(
            SessionEvent.session_id, SessionEvent.id, SessionEvent.sequence, SessionEvent.event_type,
            SessionEvent.payload, SessionEvent.occurred_at, SessionEvent.payload_bytes,
        )
        .where(
            SessionEvent.tenant_id == actor.tenant_id,
            SessionEvent.session_id.in_(session_ids),
            SessionEvent.event_type.in_(WORK),
        )
        .order_by(SessionEvent.session_id, SessionEvent.occurred_at, SessionEvent.sequence)
        .limit(MAX_EVENTS)
        .subquery()
    ).c  # fmt: skip
    order = (some.session_id, some.occurred_at, some.sequence)
    so_far = func.sum(func.least(some.payload_bytes, LARGE_PAYLOAD)).over(order_by=order)
    sized = select(*some, so_far.label("so_far")).subquery().c
    rows = db.session.execute(
        select(sized.session_id, sized.id, sized.sequence, sized.event_type, shorten_payload(sized), sized.occurred_at)
        .where(sized.so_far <= MAX_BYTES)
        .order_by(sized.session_id, sized.occurred_at, sized.sequence)
    )
    found: dict[UUID, list[Event]] = {}
    for session_id, *event in rows:
        found.setdefault(session_id, []).append(Event(*event))
    return found


def excerpt_of(session_id: UUID, *, actor: Actor) -> dict[str, Any] | None:
    """A session's title, state and last events in order of time, each cut, for an agent to read. Two queries."""
    row = db.session.execute(
        select(AgentSession.id, AgentSession.title, AgentSession.status, AgentSession.error).where(
            AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id
        )
    ).one_or_none()
    if row is None:
        return None
    # One character longer than what is shown, so that a cut can be seen.
    texts = [func.left(SessionEvent.payload[name].astext, EXCERPT_LENGTH + 1).label(name) for name in EXCERPT_KEYS]
    failed = SessionEvent.payload["is_error"].astext == "true"
    events = db.session.execute(
        select(SessionEvent.event_type.label("type"), *texts, failed.label("is_error"))
        .where(
            SessionEvent.tenant_id == actor.tenant_id,
            SessionEvent.session_id == session_id,
            SessionEvent.event_type.in_(EXCERPT_TYPES),
        )
        .order_by(SessionEvent.occurred_at.desc(), SessionEvent.sequence.desc())
        .limit(EXCERPT_EVENTS)
    )
    shown = [{name: _short(value) for name, value in event._mapping.items() if value is not None} for event in events]
    return {**row._mapping, "events": shown[::-1]}


def _short(value: Any) -> Any:
    cut = isinstance(value, str) and len(value) > EXCERPT_LENGTH
    return value[: EXCERPT_LENGTH - 1] + "…" if cut else value


def record_names(entity_ids: Collection[UUID], *, actor: Actor) -> dict[str, str]:
    """What these records are called today. One query."""
    if not entity_ids:
        return {}
    rows = db.session.execute(
        select(Entity.id, Entity.name).where(Entity.tenant_id == actor.tenant_id, Entity.id.in_(entity_ids))
    )
    return {str(entity_id): name for entity_id, name in rows}


class RecordNames:
    """What the records whose ids are in some texts are called. One query for all of them."""

    def __init__(self, texts: Iterable[str | None], *, actor: Actor) -> None:
        ids = dict.fromkeys(found for text in texts if text for found in RECORD_ID.findall(text))
        self.names = record_names([UUID(found) for found in list(ids)[:MAX_NAMES]], actor=actor)

    def told(self, text: str | None) -> str:
        """The text with names where it had ids; an id without a name stays."""
        names = {found: f"“{name}”" for found, name in self.names.items()}
        return RECORD_ID.sub(lambda found: names.get(found[1], found[0]), text or "")


def load_knowledge(row_ids: Collection[UUID], *, actor: Actor) -> list[KnownRow]:
    """The knowledge rows with these ids, by type. One query."""
    if not row_ids:
        return []
    rows = db.session.execute(
        select(SharedContext.id, SharedContext.type, SharedContext.content, SharedContext.state)
        .where(SharedContext.tenant_id == actor.tenant_id, SharedContext.id.in_(row_ids))
        .order_by(SharedContext.type, SharedContext.id)
    )
    return [KnownRow(*row) for row in rows]
