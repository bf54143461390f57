"""Read what a session had, for the snapshot that is frozen when it is promoted."""

from typing import Any
from uuid import UUID

from sqlalchemy import func, select, tuple_

from app.actor import Actor
from app.db import db
from app.errors import Unprocessable
from app.evals.snapshot import INPUT_EVENTS, SHAPE, SNAPSHOT_BYTES, gather_inputs, text_hash
from app.evals.trace import Run
from app.formats.ids import parse_id
from app.ingest.messages import size_of
from app.learning.prompt import scope_of
from app.models import (
    Agent,
    AgentSession,
    AgentVersion,
    CriteriaSet,
    Entity,
    EntityType,
    SharedContext,
    SharedContextHistory,
    UserMemory,
)  # fmt: skip
from app.services.chats.store import earlier_messages
from app.services.evals.compare import load_events
from app.services.sessions.event_windows import iterate_events
from app.services.sessions.events import format_bytes


class TooMuchInput(Unprocessable):
    """More went into a session than a golden keeps."""

    def __init__(self) -> None:
        shown = format_bytes(SNAPSHOT_BYTES)
        super().__init__(f"This session has more than {shown} of input, the most a golden can hold.")


def take_snapshot(session: AgentSession, *, actor: Actor, criteria_set_id: UUID | None = None) -> dict[str, Any]:
    """Everything that went into the session, as it was then. Its events are the recording and are not copied."""
    events = iterate_events(session.id, actor=actor, kinds=INPUT_EVENTS)
    found = gather_inputs(((event.event_type, event.payload) for event in events), _entity(session))
    meta, agent = session.meta, _agent(session)
    rows = _prompt_rows(found.loaded, actor)
    seen = meta.get("view_context")
    snapshot = {
        "shape": SHAPE,
        "session_type": session.session_type,
        "output_type": session.output_type,
        "agent": agent,
        "model": session.model,
        "initial_message": found.turns[0] if found.turns else None,
        "turns": found.turns,
        "earlier": [list(one) for one in earlier_messages(session.tenant_id, session.chat_id, meta.get("turn_id"))],
        "entity": found.entity,
        "view_context": seen if isinstance(seen, dict) else {},
        "tool_grants": list(agent["config"].get("tool_groups") or []),
        "tools": _tools(meta.get("tools"), agent["config"]),
        "shared_context": {
            "row_ids": [row["id"] for row in rows],
            "sha256": found.loaded.get("sha256"),
            "rows": [row | {"sha256": text_hash(row)} for row in rows],
        },
        "memories": _memories(session, found.loaded, actor),
        "skills": list(agent["config"].get("skills") or []),
        "entity_types": _entity_types(actor),
        "criteria": _criteria(criteria_set_id or parse_id(found.criteria_set_id), actor),
    }
    if size_of(snapshot) > SNAPSHOT_BYTES:
        raise TooMuchInput
    return snapshot


def recorded_run(session: AgentSession, *, actor: Actor) -> Run:
    """The session as the comparer reads it, with the tools that it could use."""
    found = load_events({session.id: session.event_bytes}, actor=actor)[session.id]
    tools = _tools(session.meta.get("tools"), _agent(session)["config"])
    return found.as_run(session.session_type, session.output_type, tools)


def _tools(given: Any, config: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools that the run could use, as far as they are not ours: an importer says them, and so does an agent."""
    listed = given if isinstance(given, list) else config.get("http_tools") or []
    return [tool for tool in listed if isinstance(tool, dict)]


def _agent(session: AgentSession) -> dict[str, Any]:
    row = db.session.execute(
        select(Agent.id, Agent.slug, Agent.name, Agent.kind, AgentVersion.id, AgentVersion.version, AgentVersion.config)
        .outerjoin(AgentVersion, AgentVersion.id == session.agent_version_id)
        .where(Agent.tenant_id == session.tenant_id, Agent.id == session.agent_id)
    ).one()
    agent_id, slug, name, kind, version_id, version, config = row
    ids = {"id": str(agent_id), "version_id": str(version_id) if version_id else None}
    return ids | {"slug": slug, "name": name, "kind": kind, "version": version, "config": config or {}}


def _prompt_rows(loaded: dict[str, Any], actor: Actor) -> list[dict[str, Any]]:
    """The knowledge rows of a prompt, in its order, as they were at that version."""
    versions = loaded.get("versions") or []
    wanted = [
        (row_id, versions[at] if at < len(versions) else 1)
        for at, text in enumerate(loaded.get("row_ids") or [])
        if (row_id := parse_id(text)) is not None
    ]
    if not wanted:
        return []
    history = SharedContextHistory
    past = db.session.execute(
        select(history.shared_context_id, history.version, history.after).where(
            history.tenant_id == actor.tenant_id, tuple_(history.shared_context_id, history.version).in_(wanted)
        )
    )
    texts = {(row_id, version): after for row_id, version, after in past}
    now = db.session.execute(
        select(
            SharedContext.id, SharedContext.type, SharedContext.content, SharedContext.context,
            SharedContext.agent_id, SharedContext.entity_type_id,
        ).where(SharedContext.tenant_id == actor.tenant_id, SharedContext.id.in_([row_id for row_id, _ in wanted]))
    )  # fmt: skip
    current = {row.id: row._asdict() for row in now}
    return [
        {
            "id": str(row_id),
            "version": version,
            **{name: row[name] for name in ("type", "content", "context")},
            "scope": scope_of(row.get("agent_id"), row.get("entity_type_id")),
        }
        for row_id, version in wanted
        if (row := texts.get((row_id, version)) or current.get(row_id)) is not None
    ]


def _entity(session: AgentSession) -> dict[str, Any] | None:
    if session.entity_id is None:
        return None
    row = db.session.execute(
        select(Entity.id, Entity.name, Entity.fields, EntityType.id, EntityType.slug)
        .join(EntityType, EntityType.id == Entity.entity_type_id)
        .where(Entity.tenant_id == session.tenant_id, Entity.id == session.entity_id)
    ).one_or_none()
    if row is None:
        return None
    return {"id": str(row[0]), "name": row[1], "fields": row[2], "type_id": str(row[3]), "type": row[4]}


def _memories(session: AgentSession, loaded: dict[str, Any], actor: Actor) -> dict[str, Any]:
    """Memories belong to the person they are about: a golden promoted by anyone else keeps only their number."""
    number = loaded.get("memories") or 0
    if not number or session.created_by != actor.id:
        return {"count": number, "texts": []}
    texts = db.session.scalars(
        select(UserMemory.content)
        .where(
            UserMemory.tenant_id == session.tenant_id,
            UserMemory.user_id == actor.id,
            UserMemory.created_at <= func.coalesce(session.started_at, session.created_at),
        )
        .order_by(UserMemory.created_at.desc(), UserMemory.id.desc())
        .limit(number)
    )
    return {"count": number, "texts": list(texts)}


def _entity_types(actor: Actor) -> list[dict[str, Any]]:
    rows = db.session.execute(
        select(EntityType.slug, EntityType.name, EntityType.fields)
        .where(EntityType.tenant_id == actor.tenant_id, EntityType.archived_at.is_(None))
        .order_by(EntityType.slug)
    )
    return [{"slug": slug, "name": name, "fields": fields} for slug, name, fields in rows]


def _criteria(criteria_set_id: UUID | None, actor: Actor) -> dict[str, Any] | None:
    if criteria_set_id is None:
        return None
    own = CriteriaSet.tenant_id == actor.tenant_id, CriteriaSet.id == criteria_set_id
    wanted = select(CriteriaSet.id, CriteriaSet.name, CriteriaSet.dimensions).where(*own)
    row = db.session.execute(wanted).one_or_none()
    return {"id": str(row[0]), "name": row[1], "dimensions": row[2]} if row else None
