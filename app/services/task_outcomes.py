"""How a scheduled run ended, written together with the end of its session."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import func, update

from app.db import db
from app.models import AgentSession, Task, TaskTick

ENDS = {"completed": "done", "failed": "failed", "cancelled": "abandoned"}
STOPPED = "Somebody stopped it."


def note_end(session: AgentSession) -> None:
    """The task whose run this session was has an outcome. Other sessions are nobody's run."""
    if "task_id" not in session.meta:
        return
    tick = db.session.execute(
        update(TaskTick)
        .where(
            TaskTick.tenant_id == session.tenant_id,
            TaskTick.session_id == session.id,
            TaskTick.status == "claimed",
        )
        .values(
            status=ENDS[session.status],
            detail=session.error or (STOPPED if session.status == "cancelled" else None),
            finished_at=func.clock_timestamp(),
        )
        .returning(TaskTick.task_id, TaskTick.status, TaskTick.detail, TaskTick.created_at)
    ).one_or_none()
    if tick is not None:
        note_outcome(session.tenant_id, tick.task_id, tick.status, tick.detail, tick.created_at)


def note_outcome(tenant_id: UUID, task_id: UUID, outcome: str, detail: str | None, ran_at: datetime) -> None:
    """What the list of tasks says about its last run."""
    db.session.execute(
        update(Task)
        .where(Task.tenant_id == tenant_id, Task.id == task_id)
        .values(last_run_at=ran_at, last_outcome=outcome, last_detail=detail)
    )
