"""Agents and their versions. An agent is archived, never deleted; a version is never changed."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db
from app.db.lookup import get_own
from app.errors import Invalid, NotFound, Refused
from app.formats.session_limits import AGENT_SLUG, SLUG_FORM
from app.models import Agent, AgentVersion, User
from app.models.agents import AGENT_KINDS
from app.services import audit
from app.services.privacy import name_of

SLUG = AGENT_SLUG


@dataclass(frozen=True)
class AgentRow:
    """An agent in a list."""

    id: UUID
    slug: str
    name: str
    description: str | None
    kind: str
    is_system: bool
    current_version: int
    archived_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class VersionRow:
    """What an agent was at one time, and who wrote it."""

    id: UUID
    version: int
    author: str | None
    created_at: datetime
    note: str | None


def ensure_agent(
    slug: str,
    *,
    actor: Actor,
    name: str | None = None,
    kind: str = "external",
    description: str | None = None,
    config: dict[str, Any] | None = None,
    created_at: datetime | None = None,
) -> Agent:
    """The agent of that name, or the one it was merged into; an unknown one is made, with version 1.

    Two who ask at once get the same one.
    """
    found = find_agent(slug, actor=actor)
    if found is not None:
        return get_agent(found.merged_into, actor=actor) if found.merged_into else found
    _check_new(slug, kind)
    values: dict[str, Any] = {
        "tenant_id": actor.tenant_id,
        "slug": slug,
        "name": name or slug.replace("-", " ").replace("_", " ").capitalize(),
        "kind": kind,
        "description": description,
    }
    if created_at:
        values |= {"created_at": created_at, "updated_at": created_at}
    made = db.session.scalar(
        insert(Agent).values(values).on_conflict_do_nothing(index_elements=["tenant_id", "slug"]).returning(Agent.id)
    )
    if made is not None:
        add_version(made, 1, config or {}, actor, created_at)
        audit.record(actor, "agent.created", "agent", made, slug=slug, kind=kind)
    agent = find_agent(slug, actor=actor)
    if agent is None:
        raise NotFound(f"There is no agent {slug}.")
    return agent


def _check_new(slug: str, kind: str) -> None:
    if not SLUG.fullmatch(slug):
        raise Invalid.of({"agent": SLUG_FORM})
    if kind not in AGENT_KINDS:
        raise Invalid.of({"kind": f"Use one of {', '.join(AGENT_KINDS)}."})


def find_agent(slug: str, *, actor: Actor) -> Agent | None:
    return db.session.scalar(select(Agent).where(Agent.tenant_id == actor.tenant_id, Agent.slug == slug))


def resolve_agent(slug: str, *, actor: Actor) -> Agent:
    """The agent of that slug, or the one it was merged into."""
    agent = find_agent(slug, actor=actor)
    if agent is None:
        raise NotFound(f"There is no agent “{slug}” in this workspace.")
    return get_agent(agent.merged_into, actor=actor) if agent.merged_into else agent


def get_agent(agent_id: UUID, *, actor: Actor) -> Agent:
    return get_own(Agent, agent_id, "agent", actor=actor)


def save_version(
    agent_id: UUID, config: dict[str, Any], *, actor: Actor, created_at: datetime | None = None, note: str | None = None
) -> AgentVersion:
    """Write what the agent is from now on. Earlier versions stay as they were."""
    actor.check_admin("Only an admin changes agents.")
    agent = get_own(Agent, agent_id, "agent", actor=actor, lock=True)
    if agent.archived_at:
        raise Refused(f"{agent.slug} is archived; restore it before changing it.")
    agent.current_version += 1
    agent.updated_at = created_at or datetime.now(UTC)
    version = add_version(agent.id, agent.current_version, config, actor, created_at, note)
    audit.record(actor, "agent.version_saved", "agent", agent.id, version=version.version)
    return version


def add_version(
    agent_id: UUID,
    number: int,
    config: dict[str, Any],
    actor: Actor,
    created_at: datetime | None = None,
    note: str | None = None,
) -> AgentVersion:
    """Write a version. The caller has locked the agent and records the change in the audit trail."""
    version = AgentVersion(
        tenant_id=actor.tenant_id, agent_id=agent_id, version=number, config=config, created_by=actor.id, note=note
    )
    if created_at:
        version.created_at = created_at
    db.session.add(version)
    db.session.flush()
    return version


def version_id(agent: Agent, number: int | None = None, *, field: str = "agent_version") -> UUID:
    """The id of one version of an agent; the current one by default. `field` is the name that an error uses."""
    wanted = number or agent.current_version
    found = db.session.scalar(
        select(AgentVersion.id).where(
            AgentVersion.tenant_id == agent.tenant_id,
            AgentVersion.agent_id == agent.id,
            AgentVersion.version == wanted,
        )
    )
    if found is None:
        sentence = f"{agent.slug} has no version {wanted}; its latest is {agent.current_version}."
        raise Invalid.of({field: sentence})
    return found


def list_versions(agent_id: UUID, *, actor: Actor, before: int | None = None, limit: int = 50) -> list[VersionRow]:
    """Versions, newest first, without what they hold: that is read one by one. One query."""
    where = [AgentVersion.tenant_id == actor.tenant_id, AgentVersion.agent_id == agent_id]
    if before is not None:
        where.append(AgentVersion.version < before)
    # An external agent is created by the first person who talks with it, so its author may have to be hidden.
    by = name_of(AgentVersion.created_by, actor, AgentVersion.version == 1, Agent.kind == "external")
    rows: Any = db.session.execute(
        select(AgentVersion.id, AgentVersion.version, by, AgentVersion.created_at, AgentVersion.note)
        .join(Agent, (Agent.tenant_id == AgentVersion.tenant_id) & (Agent.id == AgentVersion.agent_id))
        .outerjoin(User, User.id == AgentVersion.created_by)
        .where(*where)
        .order_by(AgentVersion.version.desc())
        .limit(limit)
    )
    return [VersionRow(*row) for row in rows]


def read_contents(agent_id: UUID, numbers: Collection[int], *, actor: Actor) -> dict[int, dict[str, Any]]:
    """What versions of an agent hold, by number; those that do not exist are missing. One query."""
    rows = db.session.execute(
        select(AgentVersion.version, AgentVersion.config).where(
            AgentVersion.tenant_id == actor.tenant_id,
            AgentVersion.agent_id == agent_id,
            AgentVersion.version.in_(numbers),
        )
    )
    return {row.version: row.config for row in rows}


def list_agents(*, actor: Actor, archived: bool = False) -> list[AgentRow]:
    """The workspace's agents by name; archived ones only when asked for."""
    columns: tuple[Any, ...] = (
        Agent.id, Agent.slug, Agent.name, Agent.description, Agent.kind, Agent.is_system, Agent.current_version,
        Agent.archived_at, Agent.created_at, Agent.updated_at,
    )  # fmt: skip
    wanted = Agent.archived_at.is_not(None) if archived else Agent.archived_at.is_(None)
    rows = db.session.execute(
        select(*columns).where(Agent.tenant_id == actor.tenant_id, wanted).order_by(Agent.is_system, Agent.slug)
    )
    return [AgentRow(*row) for row in rows]


def archive_agent(agent_id: UUID, *, actor: Actor) -> None:
    """Retire an agent. What was learned for it alone no longer reaches a prompt; nothing is deleted."""
    from app.services.knowledge import rows as knowledge_rows

    actor.check_admin("Only an admin archives agents.")
    moved = db.session.scalar(
        update(Agent)
        .where(
            Agent.tenant_id == actor.tenant_id,
            Agent.id == agent_id,
            Agent.archived_at.is_(None),
            Agent.is_system.is_(False),
        )
        .values(archived_at=datetime.now(UTC), updated_at=datetime.now(UTC))
        .returning(Agent.slug)
    )
    if moved is None:
        agent = get_agent(agent_id, actor=actor)
        raise Refused(f"{agent.slug} {'belongs to the workspace' if agent.is_system else 'is archived already'}.")
    knowledge_rows.deactivate_all(actor=actor, agent_id=agent_id, reason=f"The agent {moved} was archived.")
    audit.record(actor, "agent.archived", "agent", agent_id, slug=moved)


def restore_agent(agent_id: UUID, *, actor: Actor) -> None:
    """Restore an archived agent. Its knowledge stays inactive until it is activated again."""
    actor.check_admin("Only an admin restores agents.")
    now = datetime.now(UTC)
    moved = db.session.scalar(
        update(Agent)
        .where(
            Agent.tenant_id == actor.tenant_id,
            Agent.id == agent_id,
            Agent.archived_at.is_not(None),
            Agent.merged_into.is_(None),
        )
        .values(archived_at=None, updated_at=now)
        .returning(Agent.slug)
    )
    if moved is None:
        agent = get_agent(agent_id, actor=actor)
        raise Refused(f"{agent.slug} {'was merged into another agent' if agent.merged_into else 'is at work already'}.")
    audit.record(actor, "agent.restored", "agent", agent_id, slug=moved)
