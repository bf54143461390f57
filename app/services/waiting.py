"""What waits for a decision, as the tabs say it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Float, ScalarSelect, Select, cast, func, literal, select
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db import db
from app.models.agents import Task
from app.models.evals import EvalRun
from app.models.feedback import Feedback
from app.models.knowledge import SharedContext
from app.services.run_lists import speaks_for_set

MOST = 1000


def counts(*, actor: Actor) -> dict[str, Any]:
    """Pending feedback, what of it the actor has taken on, and proposed knowledge, each counted up to `MOST`: a tab
    says "1,000+" and stays quick. `oldest` is since when feedback waits, `tasks` how many schedules failed,
    `evals` the newest accuracy and its change. One query."""
    pending = select(literal(1)).where(Feedback.tenant_id == actor.tenant_id, Feedback.status == "pending")
    proposed = select(literal(1)).where(SharedContext.tenant_id == actor.tenant_id, SharedContext.state == "proposed")
    oldest = select(func.min(Feedback.created_at)).where(
        Feedback.tenant_id == actor.tenant_id, Feedback.status == "pending"
    )
    mine = pending.where(Feedback.assignee_id == actor.id)
    failed = select(literal(1)).where(Task.tenant_id == actor.tenant_id, Task.enabled, Task.last_outcome == "failed")
    found = db.session.execute(
        select(
            _count(pending),
            _count(proposed),
            oldest.scalar_subquery(),
            _count(mine),
            _count(failed),
            _accuracies(actor),
        )
    ).one()
    counted = dict(zip(("feedback", "knowledge", "oldest", "mine", "tasks", "evals"), found, strict=True))
    return counted | {"evals": _course(counted["evals"])}


def _accuracies(actor: Actor) -> Any:
    """The accuracy of the newest run of a set that ended, and of the run of that set before it."""
    newest = aliased(EvalRun)
    ended = (newest.tenant_id == actor.tenant_id, speaks_for_set(newest), newest.set_name.is_not(None))
    of_set = select(newest.set_name).where(*ended).order_by(newest.created_at.desc(), newest.id.desc()).limit(1)
    last = (
        select(cast(EvalRun.results["accuracy"].astext, Float).label("accuracy"))
        .where(
            EvalRun.tenant_id == actor.tenant_id,
            speaks_for_set(),
            EvalRun.set_name == of_set.scalar_subquery(),
        )
        .order_by(EvalRun.created_at.desc(), EvalRun.id.desc())
        .limit(2)
        .subquery()
    )
    return select(func.array_agg(last.c.accuracy)).scalar_subquery()


def _course(accuracies: list[float | None] | None) -> tuple[float, float | None] | None:
    """The newest accuracy and its change since the run before."""
    if not accuracies or accuracies[0] is None:
        return None
    before = accuracies[1] if len(accuracies) > 1 else None
    return accuracies[0], None if before is None else accuracies[0] - before


def _count(rows: Select[int]) -> ScalarSelect[int]:
    return select(func.count()).select_from(rows.limit(MOST).subquery()).scalar_subquery()
