"""What a transcript shows beside its own rows: the work behind a chat's messages, and what an agent knew."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
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
MAX_SESSIONS = 100
WORK = ("context.loaded", "tool.call", "tool.result", "entity.created", "entity.updated", "response.submitted")


@dataclass(frozen=True)
class KnownRow:
    """A knowledge row that a prompt held, as it is today."""

    id: UUID
    type: str
    content: str
    state: str


@dataclass(frozen=True)
class SessionBehind:
    """A session that answered in a conversation."""

    id: UUID
    title: str
    status: str
    duration_ms: int | None
    agent_version: int | None
    golden_set: str | None
    promotable: bool


def sessions_behind(chat_id: UUID, *, actor: Actor) -> list[SessionBehind]:
    """The sessions of a conversation, the newest 100. One query."""
    rows = db.session.execute(
        select(
            AgentSession.id, AgentSession.title, AgentSession.status, AgentSession.duration_ms, AgentVersion.version,
            AgentSession.golden_set,
            and_(
                AgentSession.status == "completed", AgentSession.golden_set.is_(None),
                AgentSession.eval_source.is_(None),
                exists().where(
                    SessionEvent.tenant_id == AgentSession.tenant_id, SessionEvent.session_id == AgentSession.id,
                    SessionEvent.event_type == "user.message",
                ),
            ),
        )
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.chat_id == chat_id)
        .order_by(AgentSession.created_at.desc(), AgentSession.id.desc())
        .limit(MAX_SESSIONS)
    )  # fmt: skip
    return [SessionBehind(*row) for row in rows]


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
    for row in rows:
        found.setdefault(row[0], []).append(Event(*row[1:]))
    return found


def record_names(entity_ids: Collection[UUID], *, actor: Actor) -> dict[str, str]:
    """What these records are called today. One query."""
    if not entity_ids:
        return {}
    rows = db.session.execute(
        select(Entity.id, Entity.name).where(Entity.tenant_id == actor.tenant_id, Entity.id.in_(entity_ids))
    )
    return {str(entity_id): name for entity_id, name in rows}


def replace_ids(text: str, names: Mapping[str, str]) -> str:
    """The text with the names of records where it had their ids; an id without a name stays."""
    return RECORD_ID.sub(lambda found: f"“{names[found[1]]}”" if found[1] in names else found[0], text)


def name_records_in(text: str, *, actor: Actor) -> str:
    """The same for one text whose records are not looked up yet."""
    return replace_ids(text, record_names({UUID(found) for found in RECORD_ID.findall(text)}, actor=actor))


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
