"""Scheduled work for agents: set up, changed, turned on and off, and taken away by admins; and the lists of what is
scheduled, what waits or runs, and how the last of it ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, and_, delete, func, literal, or_, select

from app.actor import Actor
from app.db import db
from app.errors import Invalid, NotFound, Refused
from app.formats.cron import check_cron, next_after, upcoming
from app.formats.ids import clean_name
from app.models import Agent, AgentSession, Task, TaskTick
from app.models.agents import REPLAYABLE_KINDS
from app.models.evals import CONTEXT_MODES
from app.services import audit
from app.services.agents import versions
from app.services.evals import golden as eval_golden
from app.services.tasks import due
from app.services.workspaces.store import REVIEW_TASK, change_settings

MAX_MESSAGE = 10_000
MAX_TASKS = 200
NEXT_RUNS = 3
MAX_RUNS = 20
MAX_OPEN = 50
MAX_DONE = 15
OPEN_STATUSES = ("pending", "running")


@dataclass(frozen=True)
class Plan:
    """A task as a form gives it: a message for an agent, or a set of goldens to replay."""

    name: str
    agent: str
    message: str
    cron: str
    set: str = ""
    context: str = ""


def create_task(plan: Plan, *, actor: Actor) -> Task:
    """Schedule work for an agent, from now on."""
    actor.check_admin("Only admins can schedule work.")
    values = _check_plan(plan, actor)
    known = db.session.scalar(select(func.count()).select_from(Task).where(Task.tenant_id == actor.tenant_id))
    if (known or 0) >= MAX_TASKS:
        raise Refused(f"A workspace has at most {MAX_TASKS} tasks. Delete one first.")
    task = Task(tenant_id=actor.tenant_id, slug=f"task-{uuid4().hex[:12]}", enabled=True)
    db.session.add(task)
    _set_plan(task, values, actor)
    audit.record(actor, "task.created", "task", task.id, name=task.name, cron=task.cron)
    return task


def change_task(task_id: UUID, plan: Plan, *, actor: Actor) -> Task:
    """Save a task. From now on it runs as the actor."""
    task = _lock_own_task(task_id, actor)
    before = {"name": task.name, "cron": task.cron}
    _set_plan(task, _check_plan(plan, actor), actor)
    audit.record(actor, "task.changed", "task", task.id, before=before, after={"name": task.name, "cron": task.cron})
    return task


def _set_plan(task: Task, values: dict[str, object], actor: Actor) -> None:
    for name, value in values.items():
        setattr(task, name, value)
    task.created_by = actor.id
    _set_next_run(task)


def _set_next_run(task: Task) -> None:
    task.next_run_at = next_after(task.cron, due.read_clock()) if task.enabled else None
    db.session.flush()


def switch_task(task_id: UUID, enabled: bool, *, actor: Actor) -> Task:
    """Enable or disable a task. A run under way continues."""
    task = _lock_task(task_id, actor)
    if task.slug == REVIEW_TASK:
        change_settings({"review_enabled": enabled}, actor=actor)
        db.session.refresh(task)
        return task
    if task.enabled == enabled:
        return task
    task.enabled = enabled
    _set_next_run(task)
    audit.record(actor, "task.enabled" if enabled else "task.disabled", "task", task.id, name=task.name)
    return task


def delete_task(task_id: UUID, *, actor: Actor) -> str:
    """Take a task away; its name. The sessions of its runs stay."""
    task = _lock_own_task(task_id, actor)
    audit.record(actor, "task.deleted", "task", task.id, name=task.name)
    db.session.execute(delete(Task).where(Task.tenant_id == actor.tenant_id, Task.id == task.id))
    return task.name


def start_task(task_id: UUID, *, actor: Actor) -> TaskTick:
    """Run a task now, besides its schedule."""
    task = _lock_task(task_id, actor)
    tick = due.run_now(task.id, actor=actor)
    audit.record(actor, "task.started", "task", task.id, name=task.name)
    return tick


def get_task(task_id: UUID, *, actor: Actor) -> tuple[Task, str | None]:
    """A task and its agent's name."""
    row = db.session.execute(
        select(Task, Agent.slug)
        .outerjoin(Agent, (Agent.tenant_id == Task.tenant_id) & (Agent.id == Task.agent_id))
        .where(*_task_conditions(task_id, actor))
    ).one_or_none()
    if row is None:
        raise NotFound("There is no such task in this workspace.")
    return row[0], row[1]


def review_task(*, actor: Actor) -> Task:
    """The task that reviews feedback."""
    return db.session.scalars(select(Task).where(Task.tenant_id == actor.tenant_id, Task.slug == REVIEW_TASK)).one()


def list_runs(task_id: UUID, *, actor: Actor) -> Sequence[TaskTick]:
    """The last times that a task ran, or should have, the latest first. One query."""
    return db.session.scalars(
        select(TaskTick)
        .where(TaskTick.tenant_id == actor.tenant_id, TaskTick.task_id == task_id)
        .order_by(TaskTick.scheduled_for.desc())
        .limit(MAX_RUNS)
    ).all()


def next_runs(cron: str, moment: datetime) -> list[datetime]:
    """The next runs of a schedule, for the preview in its form."""
    return upcoming(_check_cron(cron), moment, NEXT_RUNS)


def _lock_task(task_id: UUID, actor: Actor) -> Task:
    """The task, locked, if it is one that admins may change."""
    actor.check_admin("Only admins can schedule work.")
    task = db.session.scalar(select(Task).where(*_task_conditions(task_id, actor)).with_for_update())
    if task is None:
        raise NotFound("There is no such task in this workspace.")
    return task


def _lock_own_task(task_id: UUID, actor: Actor) -> Task:
    """The same, if people made it."""
    task = _lock_task(task_id, actor)
    if task.slug == REVIEW_TASK:
        raise Refused("Change this task under Settings → Review.")
    return task


def _task_conditions(task_id: UUID, actor: Actor) -> tuple[ColumnElement[bool], ...]:
    return Task.tenant_id == actor.tenant_id, Task.id == task_id


def _check_plan(plan: Plan, actor: Actor) -> dict[str, object]:
    wrong: dict[str, str] = {}
    name, message, cron = plan.name, plan.message.strip(), plan.cron
    try:
        name = clean_name(plan.name)
    except Invalid as error:
        wrong |= error.fields
    replay = {"set": plan.set, "context": plan.context or "frozen"} if plan.set else None
    if replay is not None and plan.set not in {one.name for one in eval_golden.list_sets(actor=actor)}:
        wrong["set"] = "Choose a set that has goldens."
    if replay is not None and replay["context"] not in CONTEXT_MODES:
        wrong["context"] = "Choose frozen or live."
    if replay is None and (not message or len(message) > MAX_MESSAGE):
        wrong["message"] = f"Enter a message of up to {MAX_MESSAGE:,} characters."
    agent = versions.find_agent(plan.agent, actor=actor) if plan.agent else None
    if plan.agent or replay is None:
        wrong |= _check_agent(agent, replay is not None)
    try:
        cron = _check_cron(plan.cron)
    except Invalid as error:
        wrong |= error.fields
    if wrong:
        raise Invalid(" ".join(wrong.values()), wrong)
    return {"name": name, "message": message, "cron": cron, "agent_id": agent.id if agent else None, "replay": replay}


def _check_agent(agent: Agent | None, replays: bool) -> dict[str, str]:
    if agent is None or agent.archived_at is not None or agent.kind == "external" or agent.is_system:
        return {"agent": "Choose an agent that runs in Upshot."}
    if replays and agent.kind not in REPLAYABLE_KINDS:
        return {"agent": "Choose an agent that runs in Upshot. Replays would repeat an endpoint's real actions."}
    return {}


def _check_cron(given: str) -> str:
    try:
        cron = check_cron(given)
    except ValueError as error:
        raise Invalid.of({"cron": str(error)}) from None
    if next_after(cron, datetime.fromisoformat("2000-01-01T00:00:00+00:00")) is None:
        raise Invalid.of({"cron": "That date never occurs."})
    return cron


# What the Tasks page lists


def list_tasks(*, actor: Actor) -> Sequence[Any]:
    """What is scheduled, by name, with the outcome of its last run and where that led. One query."""
    statement = (
        select(
            Task.id, Task.name, Agent.slug.label("agent"), Task.cron, Task.enabled, Task.next_run_at, Task.last_run_at,
            Task.last_outcome.label("outcome"), Task.last_detail.label("detail"),
            Task.replay["set"].astext.label("set_name"), _latest(TaskTick.session_id).label("session_id"),
            _latest(TaskTick.eval_run_id).label("run_id"), (Task.slug == REVIEW_TASK).label("is_review"),
        )
        .outerjoin(Agent, Agent.id == Task.agent_id)
        .where(Task.tenant_id == actor.tenant_id)
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
