"""Agents put in order: one that a typo made is merged into the one that was meant.

The old name keeps working: work that arrives under it belongs to the agent it was merged into.
"""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, update

from app.actor import Actor
from app.db import db, get_own
from app.db.paging import MAX_COUNT
from app.errors import Invalid, Refused
from app.models import Agent, AgentSession, Chat, EntityResponse, Feedback, FeedbackPattern, SharedContext
from app.models.agents import Task
from app.services import audit
from app.services.agents import versions
from app.services.knowledge import rows as knowledge_rows

MOVED: dict[str, Any] = {"sessions": AgentSession, "chats": Chat, "feedback": Feedback, "responses": EntityResponse}


def count_work(agent_id: UUID, *, actor: Actor) -> dict[str, int]:
    """What a merge would move, each counted up to one past 1,000; `golden` is what keeps it from moving. One query."""
    wanted = {
        name: select(model.id).where(model.tenant_id == actor.tenant_id, model.agent_id == agent_id)
        for name, model in MOVED.items()
    }
    wanted["knowledge"] = select(SharedContext.id).where(*_rules_of(agent_id, actor))
    wanted["golden"] = wanted["sessions"].where(AgentSession.golden_set.is_not(None))
    counts = [
        select(func.count()).select_from(rows.limit(MAX_COUNT + 1).subquery()).scalar_subquery().label(name)
        for name, rows in wanted.items()
    ]
    return dict(db.session.execute(select(*counts)).one()._mapping)


def merge_agent(agent_id: UUID, target_id: UUID, *, actor: Actor) -> dict[str, int]:
    """Give all of one agent's work to another and retire it. Golden sessions never change, so they forbid it."""
    actor.check_admin("Only admins can change agents.")
    # Locked in the order of their ids, so that two merges at once wait for each other.
    locked = {one: get_own(Agent, one, "agent", actor=actor, lock=True) for one in sorted((agent_id, target_id))}
    source, target = locked[agent_id], locked[target_id]
    _check_merge(source, target, actor)
    moved = {name: _move(model, agent_id, target_id, actor) for name, model in MOVED.items()}
    moved["knowledge"] = _move_rules(source, target, actor)
    for model in (Task, FeedbackPattern):
        _move(model, agent_id, target_id, actor)
    # Names that led to it lead to where it went, so that following is always one step.
    earlier = update(Agent).where(Agent.tenant_id == actor.tenant_id, Agent.merged_into == agent_id)
    db.session.execute(earlier.values(merged_into=target_id))
    now = datetime.now(UTC)
    source.merged_into, source.archived_at, source.updated_at = target_id, source.archived_at or now, now
    db.session.flush()
    audit.record(actor, "agent.merged", "agent", agent_id, slug=source.slug, into=target.slug, **moved)
    return moved


def _check_merge(source: Agent, target: Agent, actor: Actor) -> None:
    if source.id == target.id:
        raise Invalid("into: Choose another agent.", {"into": "Choose a different agent."})
    for agent in (source, target):
        if agent.is_system:
            raise Refused(f"{agent.slug} is built in and can’t be merged.")
        if agent.merged_into:
            raise Refused(f"{agent.slug} is already merged into another agent.")
    if target.archived_at:
        raise Refused(f"{target.slug} is archived. Choose an active agent.")
    goldens = count_work(source.id, actor=actor)["golden"]
    if goldens:
        words = "a golden session" if goldens == 1 else f"{goldens} golden sessions"
        rule = "and goldens can’t change. Revoke them first, or rename the agent."
        raise Refused(f"{source.slug} has {words}, {rule}")


def _move(model: Any, source_id: UUID, target_id: UUID, actor: Actor) -> int:
    moved: Any = db.session.execute(
        update(model)
        .where(model.tenant_id == actor.tenant_id, model.agent_id == source_id)
        .values(agent_id=target_id)
        .execution_options(synchronize_session=False)
    )
    return int(moved.rowcount)


def _rules_of(agent_id: UUID, actor: Actor) -> tuple[Any, ...]:
    rule = SharedContext
    return rule.tenant_id == actor.tenant_id, rule.agent_id == agent_id, rule.state != "deleted"


def _move_rules(source: Agent, target: Agent, actor: Actor) -> int:
    """Each rule moves as an edit, with its history. One that the target has already is replaced by it."""
    mine = select(SharedContext).where(*_rules_of(source.id, actor)).order_by(SharedContext.id)
    rules = db.session.scalars(mine).all()
    reason = f"The agent {source.slug} was merged into {target.slug}."
    for rule in rules:
        twin = _find_twin(rule, target.id) if rule.state == "active" else None
        if twin is not None:
            rule = knowledge_rows.set_state(rule.id, "superseded", actor=actor, reason=reason, superseded_by=twin)
        knowledge_rows.edit_row(rule.id, {"agent_id": target.id}, rule.version, actor=actor, reason=reason)
    return len(rules)


def _find_twin(rule: SharedContext, target_id: UUID) -> UUID | None:
    twin = SharedContext
    return db.session.scalar(
        select(twin.id)
        .where(twin.tenant_id == rule.tenant_id, twin.agent_id == target_id, twin.state == "active")
        .where(twin.type == rule.type, twin.content_hash == rule.content_hash)
        .where(twin.entity_type_id.is_not_distinct_from(rule.entity_type_id))
    )


def find_target(slug: str, *, actor: Actor) -> Agent:
    """The agent to merge into, by its slug."""
    found = versions.find_agent(slug, actor=actor)
    if found is None:
        raise Invalid.of({"into": "Choose one of the agents."})
    return found
