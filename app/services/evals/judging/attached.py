"""Which goldens are judged by a criteria set, and attaching it to all goldens of a set."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from app.actor import Actor
from app.db import db
from app.errors import Refused
from app.models import AgentSession
from app.services.evals.golden import clean_set_name, edit_golden, require_admin

MAX_ATTACHED = 1_000
_CRITERIA: Any = AgentSession.meta["golden"]["criteriaSetId"].astext


@dataclass(frozen=True)
class AttachedSet:
    """A set of goldens, and how many of them are judged by some criteria."""

    name: str
    goldens: int
    attached: int


def count_attached(*, actor: Actor) -> dict[UUID, int]:
    """How many goldens are judged by each criteria set. One query."""
    mine = (AgentSession.tenant_id == actor.tenant_id, AgentSession.golden_set.is_not(None))
    rows = db.session.execute(
        select(_CRITERIA, func.count()).where(*mine, _CRITERIA.is_not(None)).group_by(_CRITERIA)
    )  # fmt: skip
    return {UUID(criteria): number for criteria, number in rows}


def list_attached(criteria_set_id: UUID, *, actor: Actor) -> list[AttachedSet]:
    """The golden sets of the workspace, with how many of their goldens are judged by these criteria. One query."""
    uses = _CRITERIA.is_not_distinct_from(str(criteria_set_id))
    rows = db.session.execute(
        select(AgentSession.golden_set, func.count(), func.count().filter(uses))
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.golden_set.is_not(None))
        .group_by(AgentSession.golden_set)
        .order_by(AgentSession.golden_set)
    )
    return [AttachedSet(str(name), goldens, attached) for name, goldens, attached in rows]


def attach_criteria(criteria_set_id: UUID, set_name: str, *, actor: Actor) -> int:
    """Judge all goldens of a set by these criteria; how many were not before."""
    require_admin(actor)
    name = clean_set_name(set_name)
    wanted = select(AgentSession.id).where(
        AgentSession.tenant_id == actor.tenant_id,
        AgentSession.golden_set == name,
        _CRITERIA.is_distinct_from(str(criteria_set_id)),
    )
    found = list(db.session.scalars(wanted.order_by(AgentSession.id).limit(MAX_ATTACHED + 1)))
    if len(found) > MAX_ATTACHED:
        raise Refused(f"This set has more than {MAX_ATTACHED:,} goldens. Attach the criteria over the API.")
    for session_id in found:
        edit_golden(session_id, {"criteriaSetId": criteria_set_id}, actor=actor)
    return len(found)
