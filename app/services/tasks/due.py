"""Scheduled work when its time has come. Each time runs once, however many processes look at the clock.

The clock is the database's, the times are UTC. What was missed while nothing ran is made up for once, not once for
each time. When the clock is set back, a task keeps its usual pace: it neither waits until the clock is again where
it was, nor runs again what it has just run.
"""

from datetime import datetime
from uuid import UUID

from sqlalchemy import func, select, text
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db
from app.errors import Problem, Refused
from app.formats.cron import next_after
from app.models import Agent, AgentSession, EvalRun, Membership, Task, TaskTick, User
from app.services.evals import runs as eval_runs
from app.services.evals.runs import NewRun
from app.services.review import runs as review_runs
from app.services.sessions import start as session_start
from app.services.sessions.task_outcome import note_outcome
from app.services.workspaces.store import REVIEW_TASK, system_actor

DUE = text("SELECT task_id, tenant_id FROM door_due(clock_timestamp())")
OPEN_STATUSES = ("pending", "queued", "running")
BUSY = "The previous run was still in progress."
GONE = "Its session was deleted before it ended."


def due_tasks() -> list[tuple[UUID, UUID]]:
    """Tasks of any workspace whose time has come, each with its workspace."""
    return [(row.task_id, row.tenant_id) for row in db.session.execute(DUE)]


def read_clock() -> datetime:
    """What time it is for schedules."""
    now: datetime = db.session.scalar(select(func.clock_timestamp()))  # type: ignore[assignment]
    return now


def run_due(task_id: UUID, *, owner: str, actor: Actor) -> TaskTick | None:
    """Claim a due task and start it; None when another process did. `actor` is the product itself."""
    now = read_clock()
    task = db.session.scalar(
        select(Task)
        .where(Task.tenant_id == actor.tenant_id, Task.id == task_id, Task.enabled)
        .with_for_update(skip_locked=True)
        .execution_options(populate_existing=True)
    )
    if task is None or task.next_run_at is None:
        return None
    if task.next_run_at > now:
        task.next_run_at = min(task.next_run_at, _next_at_usual_pace(task.cron, now) or task.next_run_at)
        return None
    scheduled_for, task.next_run_at = task.next_run_at, next_after(task.cron, now)
    db.session.flush()
    tick = _claim(task, scheduled_for, owner) or _claim_again(task, scheduled_for, owner, now)
    if tick is not None:
        _start_or_skip(task, tick, actor)
    return tick


def _next_at_usual_pace(cron: str, now: datetime) -> datetime | None:
    """When a task that ran a moment ago is due next: not before its usual pause is over."""
    following = next_after(cron, now)
    second = next_after(cron, following) if following else None
    return next_after(cron, now + (second - following)) if following and second else following


def run_now(task_id: UUID, *, actor: Actor) -> TaskTick:
    """Run a task once as the actor, whether it is enabled or not."""
    task = db.session.scalar(
        select(Task).where(Task.tenant_id == actor.tenant_id, Task.id == task_id).with_for_update()
    )
    if task is None:
        raise Refused("This task was deleted.")
    if _is_busy(task):
        raise Refused("The previous run is still in progress. Wait for it or stop it.")
    tick = _claim(task, read_clock(), f"person:{actor.id}")
    if tick is None:
        raise Refused("It was just started.")
    _start(task, tick, actor)
    return tick


def _claim(task: Task, scheduled_for: datetime, owner: str) -> TaskTick | None:
    """The key of the table decides who runs it."""
    made: TaskTick | None = db.session.scalar(
        insert(TaskTick)
        .values(tenant_id=task.tenant_id, task_id=task.id, scheduled_for=scheduled_for, owner=owner)
        .on_conflict_do_nothing(index_elements=["tenant_id", "task_id", "scheduled_for"])
        .returning(TaskTick)
    )
    return made


def _claim_again(task: Task, scheduled_for: datetime, owner: str, now: datetime) -> TaskTick | None:
    """Claim a time that was claimed before the clock was set back. It is written down under the moment itself; the lock
    on the task keeps others from doing the same."""
    claimed_at = db.session.scalar(
        select(TaskTick.created_at).where(
            TaskTick.tenant_id == task.tenant_id,
            TaskTick.task_id == task.id,
            TaskTick.scheduled_for == scheduled_for,
        )
    )
    return _claim(task, now, owner) if claimed_at is not None and claimed_at > now else None


def _start_or_skip(task: Task, tick: TaskTick, actor: Actor) -> None:
    if _is_busy(task, besides=tick.id):
        _close(tick, "skipped", BUSY)
        return
    if task.slug == REVIEW_TASK and (why := review_runs.why_skipped(actor=actor)):
        _close(tick, "skipped", why)
        return
    try:
        with db.session.begin_nested():
            _start(task, tick, _actor_of(task), scheduled=True)
    except Problem as refusal:
        _close(tick, "failed", refusal.detail)
        note_outcome(task.tenant_id, task.id, "failed", refusal.detail, tick.created_at)


def _start(task: Task, tick: TaskTick, person: Actor, *, scheduled: bool = False) -> None:
    """Review feedback, ask the agent, or replay the set that the task names, with its agent's current version where it
    names one."""
    if task.slug == REVIEW_TASK:
        trigger = "scheduled" if scheduled else "manual"
        tick.session_id = review_runs.start_review(actor=person, trigger=trigger, task_id=task.id)
    elif task.replay:
        new = NewRun(
            set_name=task.replay["set"],
            agent_id=task.agent_id,
            own_only=task.agent_id is not None,
            context_mode=task.replay.get("context", "frozen"),
            triggered_by="scheduled",
        )
        tick.eval_run_id = eval_runs.start_run(new, actor=person).id
    else:
        agent = db.session.get(Agent, task.agent_id) if task.agent_id else None
        if agent is None or not task.message:
            raise Refused("This release can’t run this task.")
        meta = {"task_id": str(task.id)}
        session = session_start.start_run(agent.slug, [task.message], actor=person, title=task.name, metadata=meta)
        tick.session_id = session.id
    db.session.flush()


def _is_busy(task: Task, besides: UUID | None = None) -> bool:
    """Whether an earlier run is under way. One whose session was deleted never ends by itself."""
    of_session = (AgentSession.tenant_id == TaskTick.tenant_id) & (AgentSession.id == TaskTick.session_id)
    earlier = db.session.execute(
        select(TaskTick, func.coalesce(AgentSession.status, EvalRun.status))
        .outerjoin(AgentSession, of_session)
        .outerjoin(EvalRun, (EvalRun.tenant_id == TaskTick.tenant_id) & (EvalRun.id == TaskTick.eval_run_id))
        .where(
            TaskTick.tenant_id == task.tenant_id,
            TaskTick.task_id == task.id,
            TaskTick.status == "claimed",
            TaskTick.id.is_distinct_from(besides),
        )
    ).all()
    for tick, status in earlier:
        if status not in OPEN_STATUSES:
            _close(tick, "abandoned", GONE)
    return any(status in OPEN_STATUSES for _, status in earlier)


def _close(tick: TaskTick, status: str, detail: str) -> None:
    tick.status, tick.detail, tick.finished_at = status, detail, read_clock()
    db.session.flush()


def _actor_of(task: Task) -> Actor:
    """The person who saved the schedule, with the role they have now; for reviews the product."""
    if task.slug == REVIEW_TASK:
        return system_actor(task.tenant_id)
    row = db.session.execute(
        select(User.name, Membership.role)
        .join(Membership, (Membership.user_id == User.id) & (Membership.tenant_id == task.tenant_id))
        .where(User.id == task.created_by)
    ).one_or_none()
    if row is None or task.created_by is None:
        raise Refused("The person who scheduled this has left the workspace. Save it again in your name.")
    return Actor(task.created_by, task.tenant_id, row.role, row.name)
