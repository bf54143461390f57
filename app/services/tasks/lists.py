"""The work of a workspace: what is scheduled, what waits or runs, and how the last of it ended."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.models import Agent, AgentSession, Task, TaskTick
from app.services.workspaces.store import REVIEW_TASK

MAX_OPEN = 50
MAX_DONE = 15
OPEN_STATUSES = ("pending", "running")


@dataclass(frozen=True)
class TaskRow:
    """Scheduled work. `outcome`, `detail` and `session_id` are of its last run."""

    id: UUID
    slug: str
    name: str
    agent: str | None
    cron: str
    enabled: bool
    next_run_at: datetime | None
    last_run_at: datetime | None
    outcome: str | None
    detail: str | None
    session_id: UUID | None
    run_id: UUID | None
    set_name: str | None

    @property
    def failed(self) -> bool:
        return self.enabled and self.outcome == "failed"


@dataclass(frozen=True)
class WorkRow:
    """A session as work: what, by whom, since when, how it ended."""

    id: UUID
    title: str
    status: str
    error: str | None
    agent: str
    agent_kind: str
    created_by: UUID | None
    stopping: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    duration_ms: int | None

    def stops_for(self, actor: Actor) -> bool:
        """Whether the actor may stop it. What runs elsewhere is not ours to stop."""
        return self.agent_kind != "external" and (actor.is_admin or self.created_by == actor.id)


def list_tasks(*, actor: Actor) -> list[TaskRow]:
    """What is scheduled, by name. The task of the review agent is left out until there is something to run. One
    query."""
    last, last_run = (_latest_of(column) for column in (TaskTick.session_id, TaskTick.eval_run_id))
    rows = db.session.execute(
        select(
            Task.id, Task.slug, Task.name, Agent.slug, Task.cron, Task.enabled, Task.next_run_at, Task.last_run_at,
            Task.last_outcome, Task.last_detail, last, last_run, Task.replay["set"].astext,
        )
        .outerjoin(Agent, Agent.id == Task.agent_id)
        .where(Task.tenant_id == actor.tenant_id, Task.slug != REVIEW_TASK)
        .order_by(Task.name, Task.id)
        .limit(200)
    )  # fmt: skip
    found: list[Any] = list(rows)
    return [TaskRow(*row) for row in found]


def _latest_of(column: Any) -> Any:
    """What the latest run of each task led to."""
    return (
        select(column)
        .where(TaskTick.tenant_id == Task.tenant_id, TaskTick.task_id == Task.id, column.is_not(None))
        .order_by(TaskTick.scheduled_for.desc())
        .limit(1)
        .correlate(Task)
        .scalar_subquery()
    )


def list_open(*, actor: Actor) -> list[WorkRow]:
    """What waits or runs, the oldest first, without what waits for an agent that runs elsewhere. One query."""
    ours = (AgentSession.status == "running") | (Agent.kind != "external")
    statement = _select_work(actor).where(AgentSession.status.in_(OPEN_STATUSES), ours)
    return _read_rows(statement.order_by(AgentSession.created_at, AgentSession.id).limit(MAX_OPEN))


def list_done(*, actor: Actor) -> list[WorkRow]:
    """What ended, the latest first. One query."""
    statement = _select_work(actor).where(AgentSession.status.not_in(OPEN_STATUSES))
    return _read_rows(statement.order_by(AgentSession.created_at.desc(), AgentSession.id.desc()).limit(MAX_DONE))


def _select_work(actor: Actor) -> Any:
    """Sessions as work: neither replays nor what other people asked in their chats."""
    return (
        select(
            AgentSession.id, AgentSession.title, AgentSession.status, AgentSession.error, Agent.slug,
            Agent.kind, AgentSession.created_by, AgentSession.cancel_requested_at.is_not(None), AgentSession.created_at,
            AgentSession.started_at, AgentSession.finished_at, AgentSession.duration_ms,
        )
        .join(Agent, Agent.id == AgentSession.agent_id)
        .where(
            AgentSession.tenant_id == actor.tenant_id,
            AgentSession.eval_source.is_(None),
            (AgentSession.session_type != "chat") | (AgentSession.created_by == actor.id),
        )
    )  # fmt: skip


def _read_rows(statement: Any) -> list[WorkRow]:
    return [WorkRow(*row) for row in db.session.execute(statement)]
