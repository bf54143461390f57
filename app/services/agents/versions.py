"""Agents and their versions. An agent is archived, never deleted; a version is never changed."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db, get_own
from app.errors import Invalid, NotFound, Refused
from app.formats.session_limits import AGENT_SLUG, SLUG_FORM
from app.models import Agent, AgentVersion, User
from app.models.agents import AGENT_KINDS
from app.services import audit
from app.services.privacy import name_of


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
    """The agent of that name, or the one it was merged into; an unknown one is made, with version 1. Two who ask at
    once get the same one."""
    found = find_agent(slug, actor=actor)
    if found is not None:
        return _follow_merge(found, actor)
    if not AGENT_SLUG.fullmatch(slug):
        raise Invalid.of({"agent": SLUG_FORM})
    if kind not in AGENT_KINDS:
        raise Invalid.of({"kind": f"Use one of {', '.join(AGENT_KINDS)}."})
    name = name or slug.replace("-", " ").replace("_", " ").capitalize()
    values = {"tenant_id": actor.tenant_id, "slug": slug, "name": name, "kind": kind, "description": description}
    if created_at:
        values |= {"created_at": created_at, "updated_at": created_at}
    made = db.session.scalar(
        insert(Agent).values(values).on_conflict_do_nothing(index_elements=["tenant_id", "slug"]).returning(Agent.id)
    )
    if made is not None:
        add_version(made, 1, config or {}, actor, created_at)
        audit.record(actor, "agent.created", "agent", made, slug=slug, kind=kind)
    return resolve_agent(slug, actor=actor)


def find_agent(slug: str, *, actor: Actor) -> Agent | None:
    return db.session.scalar(select(Agent).where(Agent.tenant_id == actor.tenant_id, Agent.slug == slug))


def resolve_agent(slug: str, *, actor: Actor) -> Agent:
    """The agent of that slug, or the one it was merged into."""
    agent = find_agent(slug, actor=actor)
    if agent is None:
        raise NotFound(f"There is no agent “{slug}” in this workspace.")
    return _follow_merge(agent, actor)


def _follow_merge(agent: Agent, actor: Actor) -> Agent:
    return get_agent(agent.merged_into, actor=actor) if agent.merged_into else agent


def get_agent(agent_id: UUID, *, actor: Actor) -> Agent:
    return get_own(Agent, agent_id, "agent", actor=actor)


def save_version(
    agent_id: UUID, config: dict[str, Any], *, actor: Actor, created_at: datetime | None = None, note: str | None = None
) -> AgentVersion:
    """Write what the agent is from now on. Earlier versions stay as they were."""
    actor.check_admin("Only admins can change agents.")
    agent = get_own(Agent, agent_id, "agent", actor=actor, lock=True)
    if agent.archived_at:
        raise Refused(f"{agent.slug} is archived. Restore it before changing it.")
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


def add_trial_version(agent_id: UUID, config: dict[str, Any], *, actor: Actor) -> AgentVersion:
    """Write a draft so that goldens can be replayed with it. It is in no list of versions and never becomes current."""
    actor.check_admin("Only admins can change agents.")
    agent = get_own(Agent, agent_id, "agent", actor=actor, lock=True)
    lowest = db.session.scalar(select(func.min(AgentVersion.version)).where(*versions_of(agent))) or 0
    return add_version(agent_id, min(lowest, 0) - 1, config, actor, note="Draft")


def version_id(agent: Agent, number: int | None = None, *, field: str = "agent_version") -> UUID:
    """The id of one version of an agent; the current one by default. `field` is the name that an error uses."""
    wanted = number or agent.current_version
    found = db.session.scalar(select(AgentVersion.id).where(*versions_of(agent), AgentVersion.version == wanted))
    if found is None:
        raise Invalid.of({field: f"{agent.slug} has no version {wanted}; its latest is {agent.current_version}."})
    return found


def versions_of(agent: Agent) -> tuple[Any, ...]:
    return AgentVersion.tenant_id == agent.tenant_id, AgentVersion.agent_id == agent.id


def list_versions(agent_id: UUID, *, actor: Actor, before: int | None = None, limit: int = 50) -> Sequence[Any]:
    """Versions, newest first, as `id, version, author, created_at, note`; what they hold is read one by one."""
    version = AgentVersion
    where = [version.tenant_id == actor.tenant_id, version.agent_id == agent_id, version.version > 0]
    if before is not None:
        where.append(version.version < before)
    # An external agent is created by the first person who talks with it, so its author may have to be hidden.
    author = name_of(version.created_by, actor, version.version == 1, Agent.kind == "external").label("author")
    return db.session.execute(
        select(version.id, version.version, author, version.created_at, version.note)
        .join(Agent, (Agent.tenant_id == version.tenant_id) & (Agent.id == version.agent_id))
        .outerjoin(User, User.id == version.created_by)
        .where(*where)
        .order_by(version.version.desc())
        .limit(limit)
    ).all()


def read_contents(agent_id: UUID, numbers: Collection[int], *, actor: Actor) -> dict[int, dict[str, Any]]:
    """What versions of an agent hold, by number; those that do not exist are missing. One query."""
    version = AgentVersion
    mine = version.tenant_id == actor.tenant_id, version.agent_id == agent_id, version.version.in_(numbers)
    return dict(db.session.execute(select(version.version, version.config).where(*mine)).all())


def list_agents(*, actor: Actor) -> Sequence[Agent]:
    """The workspace's agents that are not archived, by name."""
    at_work = Agent.tenant_id == actor.tenant_id, Agent.archived_at.is_(None)
    return db.session.scalars(select(Agent).where(*at_work).order_by(Agent.is_system, Agent.slug)).all()


def archive_agent(agent_id: UUID, *, actor: Actor) -> None:
    """Retire an agent. What was learned for it alone no longer reaches a prompt; nothing is deleted."""
    from app.services.knowledge import rows as knowledge_rows

    actor.check_admin("Only admins can archive agents.")
    agent = get_own(Agent, agent_id, "agent", actor=actor, lock=True)
    if agent.is_system or agent.archived_at:
        raise Refused(f"{agent.slug} {'is built in' if agent.is_system else 'is already archived'}.")
    agent.archived_at = agent.updated_at = datetime.now(UTC)
    db.session.flush()
    knowledge_rows.deactivate_all(actor=actor, agent_id=agent_id, reason=f"The agent {agent.slug} was archived.")
    audit.record(actor, "agent.archived", "agent", agent_id, slug=agent.slug)


def restore_agent(agent_id: UUID, *, actor: Actor) -> None:
    """Restore an archived agent. Its knowledge stays inactive until it is activated again."""
    actor.check_admin("Only admins can restore agents.")
    agent = get_own(Agent, agent_id, "agent", actor=actor, lock=True)
    if agent.merged_into or not agent.archived_at:
        raise Refused(f"{agent.slug} {'was merged into another agent' if agent.merged_into else 'is already active'}.")
    agent.archived_at, agent.updated_at = None, datetime.now(UTC)
    db.session.flush()
    audit.record(actor, "agent.restored", "agent", agent_id, slug=agent.slug)
