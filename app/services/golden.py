"""Golden sessions: work that went right, kept by set."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from app.actor import Actor
from app.db import db
from app.models import AgentSession


@dataclass(frozen=True)
class GoldenSet:
    name: str
    sessions: int


def list_sets(*, actor: Actor) -> list[GoldenSet]:
    """The sets of the workspace by name, with how many golden sessions each holds."""
    rows = db.session.execute(
        select(AgentSession.golden_set, func.count())
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.golden_set.is_not(None))
        .group_by(AgentSession.golden_set)
        .order_by(AgentSession.golden_set)
    )
    return [GoldenSet(str(name), count) for name, count in rows]
