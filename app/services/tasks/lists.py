"""The work of a workspace: what is scheduled, what waits or runs, and how the last of it ended."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import and_, literal, or_, select

from app.actor import Actor
from app.db import db
from app.models import Agent, AgentSession, Task, TaskTick
from app.services.workspaces.store import REVIEW_TASK

MAX_OPEN = 50
MAX_DONE = 15
OPEN_STATUSES = ("pending", "running")


def list_tasks(*, actor: Actor) -> Sequence[Any]:
    """What is scheduled, by name, with the outcome of its last run and where that led. The task of the review agent is
    left out until there is something to run. One query."""
    statement = (
        select(
            Task.id, Task.name, Agent.slug.label("agent"), Task.cron, Task.enabled, Task.next_run_at, Task.last_run_at,
            Task.last_outcome.label("outcome"), Task.last_detail.label("detail"),
            Task.replay["set"].astext.label("set_name"), _latest(TaskTick.session_id).label("session_id"),
            _latest(TaskTick.eval_run_id).label("run_id"),
        )
        .outerjoin(Agent, Agent.id == Task.agent_id)
        .where(Task.tenant_id == actor.tenant_id, Task.slug != REVIEW_TASK)
        .order_by(Task.name, Task.id)
        .limit(200)
    )  # fmt: skip
    return db.session.execute(statement).all()


def _latest(column: Any) -> Any:
    """What the latest run of each task led to."""
    return (
        select(column)
        .where(TaskTick.tenant_id == Task.tenant_id, TaskTick.task_id == Task.id, column.is_not(None))
        .order_by(TaskTick.scheduled_for.desc())
        .limit(1)
        .correlate(Task)
        .scalar_subquery()
    )


def list_open(*, actor: Actor) -> Sequence[Any]:
    """What waits or runs, the oldest first, without what waits for an agent that runs elsewhere. One query."""
    ours = (AgentSession.status == "running") | (Agent.kind != "external")
    statement = _select_work(actor).where(AgentSession.status.in_(OPEN_STATUSES), ours)
    return db.session.execute(statement.order_by(AgentSession.created_at, AgentSession.id).limit(MAX_OPEN)).all()


def list_done(*, actor: Actor) -> Sequence[Any]:
    """What ended, the latest first. One query."""
    statement = _select_work(actor).where(AgentSession.status.not_in(OPEN_STATUSES))
    latest_first = AgentSession.created_at.desc(), AgentSession.id.desc()
    return db.session.execute(statement.order_by(*latest_first).limit(MAX_DONE)).all()


def _select_work(actor: Actor) -> Any:
    """Sessions as work: neither replays nor what other people asked in their chats. What runs elsewhere is not ours to
    stop."""
    may_stop = and_(Agent.kind != "external", or_(literal(actor.is_admin), AgentSession.created_by == actor.id))
    return (
        select(
            AgentSession.id, AgentSession.title, AgentSession.status, AgentSession.error, Agent.slug.label("agent"),
            AgentSession.cancel_requested_at.is_not(None).label("stopping"), may_stop.label("may_stop"),
            AgentSession.created_at, AgentSession.started_at, AgentSession.finished_at, AgentSession.duration_ms,
        )
        .join(Agent, Agent.id == AgentSession.agent_id)
        .where(
            AgentSession.tenant_id == actor.tenant_id,
            AgentSession.eval_source.is_(None),
            (AgentSession.session_type != "chat") | (AgentSession.created_by == actor.id),
        )
    )  # fmt: skip
