"""What waits for a decision, as the tabs say it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ScalarSelect, Select, func, literal, select

from app.actor import Actor
from app.db import db
from app.models.agents import Task
from app.models.feedback import Feedback
from app.models.knowledge import SharedContext

MOST = 1000


def counts(*, actor: Actor) -> dict[str, Any]:
    """Pending feedback, what of it the actor has taken on, and proposed knowledge, each counted up to `MOST`: a tab
    says "1,000+" and stays quick. `oldest` is since when feedback waits, `tasks` how many schedules failed."""
    pending = select(literal(1)).where(Feedback.tenant_id == actor.tenant_id, Feedback.status == "pending")
    proposed = select(literal(1)).where(SharedContext.tenant_id == actor.tenant_id, SharedContext.state == "proposed")
    oldest = select(func.min(Feedback.created_at)).where(
        Feedback.tenant_id == actor.tenant_id, Feedback.status == "pending"
    )
    mine = pending.where(Feedback.assignee_id == actor.id)
    failed = select(literal(1)).where(Task.tenant_id == actor.tenant_id, Task.enabled, Task.last_outcome == "failed")
    found = db.session.execute(
        select(_count(pending), _count(proposed), oldest.scalar_subquery(), _count(mine), _count(failed))
    ).one()
    return dict(zip(("feedback", "knowledge", "oldest", "mine", "tasks"), found, strict=True))


def _count(rows: Select[int]) -> ScalarSelect[int]:
    return select(func.count()).select_from(rows.limit(MOST).subquery()).scalar_subquery()
