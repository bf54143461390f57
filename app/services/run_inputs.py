"""What a run needs to know before it begins: the agent as it is, for whom it works, and what was said so far."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.errors import NotFound, Refused
from app.learning.agent_config import AgentConfig, read_config
from app.learning.prompt import Prompt
from app.models import Agent, AgentSession, AgentVersion, Entity, EntityType, Membership, Message, User
from app.services.intake_links import AN_ID
from app.services.leases import Lease, hold
from app.services.memories import Section, memory_section, remembered
from app.services.replays import Replay, load_replay
from app.services.session_events import Event, events_of
from app.services.shared_prompt import load_shared_context_prompt

MOST_MESSAGES = 60


@dataclass(frozen=True)
class Record:
    """The record that a session is about."""

    id: UUID
    name: str
    type_id: UUID
    type_slug: str


@dataclass(frozen=True)
class Work:
    """A session that is about to run, or to go on after an attempt that died."""

    lease: Lease
    kind: str
    agent_slug: str
    agent_name: str
    version: int
    config: AgentConfig
    actor: Actor
    session_type: str
    output_type: str | None
    trace_id: str
    chat_id: UUID | None
    turn_id: str | None
    turns: list[str]
    earlier: list[tuple[str, str]]
    events: list[Event]
    record: Record | None
    prompt: Prompt
    memories: Section
    live: bool
    replay: Replay | None = None
    criteria_set_id: UUID | None = None


def load_work(lease: Lease, *, actor: Actor) -> Work:
    """Read everything at once. `actor` is the product; the agent acts for whoever asked."""
    session = hold(lease)
    agent, version = _agent(session)
    person = _acting_for(session, agent, actor)
    if session.eval_source is not None:
        return _replayed(lease, session, agent, version, person, actor)
    record = _record(session)
    meta = session.meta
    turn_id = meta.get("turn_id") if isinstance(meta.get("turn_id"), str) else None
    return Work(
        lease=lease,
        kind=agent.kind,
        agent_slug=agent.slug,
        agent_name=agent.name,
        version=version.version,
        config=read_config(version.config),
        actor=person,
        session_type=session.session_type,
        output_type=session.output_type,
        trace_id=session.trace_id or "",
        chat_id=session.chat_id,
        turn_id=turn_id,
        turns=[text for text in meta.get("turns") or [] if isinstance(text, str)],
        earlier=earlier_messages(session, turn_id),
        events=events_of(session.id, actor=actor),
        record=record,
        criteria_set_id=_id(meta.get("criteria_set_id")),
        prompt=load_shared_context_prompt(lease.tenant_id, agent.id, record.type_id if record else None),
        memories=memory_section(None if person.role == "system" else person.id, actor=actor),
        live=session.chat_id is not None or bool(meta.get("live")),
    )


def _replayed(
    lease: Lease, session: AgentSession, agent: Agent, version: AgentVersion, person: Actor, actor: Actor
) -> Work:
    """A replay has the inputs of its golden, and the agent in question. Live context is the knowledge of today."""
    replay, frozen = load_replay(session, actor=actor)
    snapshot = replay.snapshot
    entity = snapshot.get("entity")
    record = Record(UUID(entity["id"]), entity["name"], UUID(entity["type_id"]), entity["type"]) if entity else None
    prompt = frozen or load_shared_context_prompt(lease.tenant_id, agent.id, record.type_id if record else None)
    return Work(
        lease=lease,
        kind=agent.kind,
        agent_slug=agent.slug,
        agent_name=agent.name,
        version=version.version,
        config=read_config(version.config),
        actor=replace(person, hermetic=True),
        session_type=session.session_type,
        output_type=session.output_type,
        trace_id=session.trace_id or "",
        chat_id=None,
        turn_id=None,
        turns=list(snapshot["turns"]),
        earlier=[(role, said) for role, said in snapshot.get("earlier") or []],
        events=events_of(session.id, actor=actor),
        record=record,
        prompt=prompt,
        memories=remembered(snapshot["memories"].get("texts") or [], actor=actor),
        live=False,
        replay=replay,
    )


def _id(text: Any) -> UUID | None:
    return UUID(text) if isinstance(text, str) and AN_ID.fullmatch(text) else None


def _agent(session: AgentSession) -> tuple[Agent, AgentVersion]:
    row = db.session.execute(
        select(Agent, AgentVersion)
        .join(AgentVersion, (AgentVersion.tenant_id == Agent.tenant_id) & (AgentVersion.agent_id == Agent.id))
        .where(
            Agent.tenant_id == session.tenant_id,
            Agent.id == session.agent_id,
            AgentVersion.id == session.agent_version_id
            if session.agent_version_id
            else AgentVersion.version == Agent.current_version,
        )
    ).one_or_none()
    if row is None:
        raise NotFound("The agent has no such version.")
    agent, version = row
    if agent.archived_at is not None:
        raise Refused(f"{agent.name} is archived; restore it first.")
    return agent, version


def _acting_for(session: AgentSession, agent: Agent, product: Actor) -> Actor:
    """An agent may do what the person may who asked it, and the product's own agents what the product may."""
    row = db.session.execute(
        select(User.name, User.is_system, User.external_tenant_id, Membership.role)
        .outerjoin(Membership, (Membership.user_id == User.id) & (Membership.tenant_id == session.tenant_id))
        .where(User.id == session.created_by)
    ).one_or_none()
    if row is not None and row.is_system:
        return Actor(session.created_by, product.tenant_id, "system", row.name, agent_id=agent.id)
    if row is not None and row.external_tenant_id == session.tenant_id:
        return Actor(session.created_by, product.tenant_id, "member", row.name, agent_id=agent.id)
    if row is None or row.role is None:
        raise Refused("Who asked for this is no member of the workspace any more.")
    return Actor(session.created_by, product.tenant_id, row.role, row.name, agent_id=agent.id)


def _record(session: AgentSession) -> Record | None:
    if session.entity_id is None:
        return None
    row = db.session.execute(
        select(Entity.id, Entity.name, EntityType.id, EntityType.slug)
        .join(EntityType, EntityType.id == Entity.entity_type_id)
        .where(Entity.tenant_id == session.tenant_id, Entity.id == session.entity_id)
    ).one_or_none()
    return Record(*row) if row else None


def earlier_messages(session: AgentSession, turn_id: str | None) -> list[tuple[str, str]]:
    """What was said in the chat before the turn that is answered now, the latest of it."""
    if session.chat_id is None or turn_id is None:
        return []
    mine = [Message.tenant_id == session.tenant_id, Message.chat_id == session.chat_id]
    asked = select(Message.message_index).where(*mine, Message.turn_id == turn_id, Message.role == "user")
    place = db.session.scalar(asked.order_by(Message.message_index).limit(1))
    if place is None:
        return []
    rows = db.session.execute(
        select(Message.message_index, Message.role, Message.content, Message.details)
        .where(*mine, Message.message_index < place, Message.role.in_(("user", "agent")))
        .order_by(Message.message_index.desc())
        .limit(MOST_MESSAGES)
    ).all()
    # An answer that was asked for again is no longer what the person goes on from.
    replaced = {row.details.get("instead_of") for row in rows}
    return [(row.role, row.content) for row in reversed(rows) if row.message_index not in replaced]
