"""How a scheduled run ended, written together with the end of its session."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, func, update

from app.db import db
from app.models import AgentSession, EvalRun, Task, TaskTick

ENDS = {"completed": "done", "failed": "failed", "cancelled": "abandoned"}
STOPPED = "Stopped by a person."


def note_end(session: AgentSession) -> None:
    """The task whose run this session was has an outcome. Other sessions are nobody's run."""
    if "task_id" in session.meta:
        detail = session.error or (STOPPED if session.status == "cancelled" else None)
        _note(session.tenant_id, TaskTick.session_id == session.id, ENDS[session.status], detail)


def note_run_end(run: EvalRun) -> None:
    """The task whose replay this run was has an outcome: what fails there is red. Other runs are nobody's."""
    _note(run.tenant_id, TaskTick.eval_run_id == run.id, *_outcome(run))


def _note(tenant_id: UUID, which: ColumnElement[bool], status: str, detail: str | None) -> None:
    tick = db.session.execute(
        update(TaskTick)
        .where(TaskTick.tenant_id == tenant_id, which, TaskTick.status == "claimed")
        .values(status=status, detail=detail, finished_at=func.clock_timestamp())
        .returning(TaskTick.task_id, TaskTick.created_at)
    ).one_or_none()
    if tick is not None:
        note_outcome(tenant_id, tick.task_id, status, detail, tick.created_at)


def _outcome(run: EvalRun) -> tuple[str, str | None]:
    if run.status == "cancelled":
        return "abandoned", STOPPED
    errored = int((run.results.get("verdicts") or {}).get("errored", 0))
    of = f"of {run.golden_session_count} golden{'' if run.golden_session_count == 1 else 's'}"
    if run.failed_count:
        return "failed", f"{run.failed_count} {of} fail{'s' if run.failed_count == 1 else ''}."
    if errored:
        return "failed", f"{errored} {of} could not be judged."
    return "done", f"{run.passed_count} {of} pass{'es' if run.passed_count == 1 else ''}."


def note_outcome(tenant_id: UUID, task_id: UUID, outcome: str, detail: str | None, ran_at: datetime) -> None:
    """What the list of tasks says about its last run."""
    db.session.execute(
        update(Task)
        .where(Task.tenant_id == tenant_id, Task.id == task_id)
        .values(last_run_at=ran_at, last_outcome=outcome, last_detail=detail)
    )
