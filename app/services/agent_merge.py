"""Agents put in order: renamed, or one that a typo made merged into the one that was meant.

The old name keeps working. Whatever still arrives under it belongs to the agent that it now stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, text, update

from app.actor import Actor
from app.db import db
from app.errors import Forbidden, Invalid, NotFound, Refused
from app.learning.session_limits import AGENT_SLUG
from app.models import Agent, AgentSession, AgentVersion, Chat, EntityResponse, Feedback, SharedContext
from app.models.agents import Task
from app.services import audit, knowledge
from app.services.pages import COUNTED

LATELY = timedelta(days=30)
# Enough to judge by, and the same effort however much there is.
NEWEST = 20_000
LONGEST_NAME = 120
MOVED: Mapping[str, Any] = {"sessions": AgentSession, "chats": Chat, "feedback": Feedback, "responses": EntityResponse}

STANDING = text("""
    WITH lately AS (
        SELECT r.agent_id, count(*) FILTER (WHERE r.rating = 'positive') AS good, count(*) AS said
          FROM (SELECT f.agent_id, f.rating FROM feedback AS f
                 WHERE f.tenant_id = :tenant AND f.created_at >= :since
                 ORDER BY f.created_at DESC LIMIT :newest) AS r
         WHERE r.agent_id IS NOT NULL AND r.rating <> 'neutral' GROUP BY r.agent_id
    )
    SELECT a.id, a.slug, a.name, a.kind, a.is_system, a.archived_at,
           (SELECT count(*) FROM agent_versions AS v WHERE v.tenant_id = a.tenant_id AND v.agent_id = a.id) AS versions,
           (SELECT count(*) FROM (SELECT 1 FROM sessions AS s WHERE s.tenant_id = a.tenant_id AND s.agent_id = a.id
                                   LIMIT :most) AS few) AS sessions,
           greatest(
               (SELECT max(s.created_at) FROM sessions AS s WHERE s.tenant_id = a.tenant_id AND s.agent_id = a.id),
               (SELECT max(c.last_message_at) FROM chats AS c WHERE c.tenant_id = a.tenant_id AND c.agent_id = a.id)
           ) AS active_at,
           l.good, l.said,
           ARRAY(SELECT o.slug FROM agents AS o
                  WHERE o.tenant_id = a.tenant_id AND o.merged_into = a.id ORDER BY o.slug) AS other_names
      FROM agents AS a LEFT JOIN lately AS l ON l.agent_id = a.id
     WHERE a.tenant_id = :tenant AND a.merged_into IS NULL
     ORDER BY a.archived_at IS NOT NULL, a.is_system, a.slug
""")


@dataclass(frozen=True)
class Standing:
    """An agent on the page of agents. `sessions` stops one past 1,000; `said` are ratings of the last 30 days."""

    id: UUID
    slug: str
    name: str
    kind: str
    is_system: bool
    archived_at: datetime | None
    versions: int
    sessions: int
    active_at: datetime | None
    good: int | None
    said: int | None
    other_names: list[str]

    @property
    def sessions_are_more(self) -> bool:
        return self.sessions > COUNTED

    @property
    def satisfaction(self) -> float | None:
        return (self.good or 0) / self.said if self.said else None


def list_standings(*, actor: Actor) -> list[Standing]:
    """Every agent with how much it did and how that was received. Names that lead to another agent stand beside it."""
    since = datetime.now(UTC) - LATELY
    values = {"tenant": actor.tenant_id, "since": since, "newest": NEWEST, "most": COUNTED + 1}
    return [Standing(*row) for row in db.session.execute(STANDING, values)]


def rename_agent(agent_id: UUID, *, slug: str, name: str, actor: Actor) -> Agent:
    """Give an agent another name, another slug or both. Its old slug goes on leading to it."""
    _check_admin(actor)
    agent = _locked(actor, agent_id)[agent_id]
    if agent.merged_into:
        raise Refused(f"{agent.slug} was merged into another agent; rename that one.")
    if agent.is_system:
        raise Refused(f"{agent.slug} belongs to the workspace and keeps its name.")
    slug, name = slug.strip(), " ".join(name.split())
    _check_names(slug, name)
    before = {"slug": agent.slug, "name": agent.name}
    if slug != agent.slug:
        _take_slug(agent, slug, actor)
    agent.name = name
    changes = {
        key: {"from": before[key], "to": value}
        for key, value in (("slug", slug), ("name", name))
        if before[key] != value
    }
    if changes:
        agent.updated_at = datetime.now(UTC)
        audit.record(actor, "agent.renamed", "agent", agent.id, changes=changes)
    return agent


def _check_names(slug: str, name: str) -> None:
    wrong = {}
    if not AGENT_SLUG.fullmatch(slug):
        wrong["slug"] = "Small letters, digits, dots, dashes and underscores, at most 120; such as deal-analyst."
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        wrong["name"] = f"Give it a name, at most {LONGEST_NAME} characters."
    if wrong:
        first = next(iter(wrong))
        raise Invalid(f"{first}: {wrong[first]}", wrong)


def _take_slug(agent: Agent, slug: str, actor: Actor) -> None:
    """Swap slugs with an earlier name of the agent, or leave the old slug behind as one."""
    taken = db.session.scalar(select(Agent).where(Agent.tenant_id == actor.tenant_id, Agent.slug == slug))
    if taken is not None and taken.merged_into != agent.id:
        sentence = f"There is an agent {slug} already; merge this one into it instead."
        raise Invalid(f"slug: {sentence}", {"slug": sentence})
    old = agent.slug
    if taken is not None:
        taken.slug = f"{taken.id}"
        db.session.flush()
        agent.slug = slug
        db.session.flush()
        taken.slug = old
        db.session.flush()
        return
    agent.slug = slug
    db.session.flush()
    now = datetime.now(UTC)
    earlier = Agent(
        tenant_id=actor.tenant_id, slug=old, name=agent.name, kind=agent.kind, archived_at=now, merged_into=agent.id
    )
    db.session.add(earlier)
    db.session.flush()
    db.session.add(AgentVersion(tenant_id=actor.tenant_id, agent_id=earlier.id, version=1, config={}))
    db.session.flush()


def work_of(agent_id: UUID, *, actor: Actor) -> dict[str, int]:
    """What a merge would move, each counted up to one past 1,000; `golden` is what keeps it from moving. One query."""
    wanted = {
        name: select(model.id).where(model.tenant_id == actor.tenant_id, model.agent_id == agent_id)
        for name, model in MOVED.items()
    }
    wanted["knowledge"] = select(SharedContext.id).where(*_rules(agent_id, actor))
    wanted["golden"] = wanted["sessions"].where(AgentSession.golden_set.is_not(None))
    counts = [
        select(func.count()).select_from(rows.limit(COUNTED + 1).subquery()).scalar_subquery().label(name)
        for name, rows in wanted.items()
    ]
    return dict(db.session.execute(select(*counts)).one()._mapping)


def merge_agent(agent_id: UUID, target_id: UUID, *, actor: Actor) -> dict[str, int]:
    """Give all of one agent's work to another and retire it. Golden sessions never change, so they forbid it."""
    _check_admin(actor)
    found = _locked(actor, agent_id, target_id)
    source, target = found[agent_id], found[target_id]
    _check_merge(source, target, actor)
    moved = {name: _move(model, agent_id, target_id, actor) for name, model in MOVED.items()}
    moved["knowledge"] = _move_rules(source, target, actor)
    db.session.execute(
        update(Task).where(Task.tenant_id == actor.tenant_id, Task.agent_id == agent_id).values(agent_id=target_id)
    )
    # Names that led to it lead to where it went, so that following is always one step.
    db.session.execute(
        update(Agent)
        .where(Agent.tenant_id == actor.tenant_id, Agent.merged_into == agent_id)
        .values(merged_into=target_id)
    )
    now = datetime.now(UTC)
    source.merged_into, source.archived_at, source.updated_at = target_id, source.archived_at or now, now
    db.session.flush()
    audit.record(actor, "agent.merged", "agent", agent_id, slug=source.slug, into=target.slug, **moved)
    return moved


def _check_merge(source: Agent, target: Agent, actor: Actor) -> None:
    if source.id == target.id:
        raise Invalid("into: Choose another agent.", {"into": "Choose another agent than itself."})
    for agent in (source, target):
        if agent.is_system:
            raise Refused(f"{agent.slug} belongs to the workspace and is never merged.")
        if agent.merged_into:
            raise Refused(f"{agent.slug} was merged into another agent already.")
    if target.archived_at:
        raise Refused(f"{target.slug} is archived; choose an agent that is at work.")
    goldens = _goldens(source.id, actor)
    if goldens:
        words = "a golden session" if goldens == 1 else f"{goldens} golden sessions"
        raise Refused(
            f"{source.slug} has {words}, and a golden never changes. Take the mark away first, or rename the agent."
        )


def _goldens(agent_id: UUID, actor: Actor) -> int:
    return (
        db.session.scalar(
            select(func.count())
            .select_from(AgentSession)
            .where(
                AgentSession.tenant_id == actor.tenant_id,
                AgentSession.agent_id == agent_id,
                AgentSession.golden_set.is_not(None),
            )
        )
        or 0
    )


def _move(model: Any, source_id: UUID, target_id: UUID, actor: Actor) -> int:
    moved: Any = db.session.execute(
        update(model)
        .where(model.tenant_id == actor.tenant_id, model.agent_id == source_id)
        .values(agent_id=target_id)
        .execution_options(synchronize_session=False)
    )
    return int(moved.rowcount)


def _rules(agent_id: UUID, actor: Actor) -> list[Any]:
    return [
        SharedContext.tenant_id == actor.tenant_id,
        SharedContext.agent_id == agent_id,
        SharedContext.state != "deleted",
    ]


def _move_rules(source: Agent, target: Agent, actor: Actor) -> int:
    """Each rule moves as an edit, with its history. One that the target has already is replaced by it."""
    rules = db.session.scalars(select(SharedContext).where(*_rules(source.id, actor)).order_by(SharedContext.id)).all()
    reason = f"The agent {source.slug} was merged into {target.slug}."
    for rule in rules:
        twin = _twin(rule, target.id) if rule.state == "active" else None
        if twin is not None:
            rule = knowledge.set_state(rule.id, "superseded", actor=actor, reason=reason, superseded_by=twin)
        knowledge.edit_row(rule.id, {"agent_id": target.id}, rule.version, actor=actor, reason=reason)
    return len(rules)


def _twin(rule: SharedContext, target_id: UUID) -> UUID | None:
    same_type = SharedContext.entity_type_id.is_not_distinct_from(rule.entity_type_id)
    return db.session.scalar(
        select(SharedContext.id).where(
            SharedContext.tenant_id == rule.tenant_id,
            SharedContext.agent_id == target_id,
            SharedContext.type == rule.type,
            SharedContext.content_hash == rule.content_hash,
            SharedContext.state == "active",
            same_type,
        )
    )


def target_called(slug: str, *, actor: Actor) -> Agent:
    """The agent that somebody chose to merge into."""
    found = db.session.scalar(select(Agent).where(Agent.tenant_id == actor.tenant_id, Agent.slug == slug))
    if found is None:
        raise Invalid("into: Choose one of the agents.", {"into": "Choose one of the agents."})
    return found


def _check_admin(actor: Actor) -> None:
    if not actor.is_admin:
        raise Forbidden("Only an admin changes agents.")


def _locked(actor: Actor, *ids: UUID) -> dict[UUID, Agent]:
    """The agents, locked in order of their ids, so that two merges at once wait for each other."""
    rows = db.session.scalars(
        select(Agent)
        .where(Agent.tenant_id == actor.tenant_id, Agent.id.in_(ids))
        .order_by(Agent.id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    found = {row.id: row for row in rows}
    if set(ids) - found.keys():
        raise NotFound("There is no such agent in this workspace.")
    return found
