"""An admin's word in place of the judge's on one dimension, and what follows for the verdict and its figures."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Exists, exists, func, select, tuple_
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db import db
from app.db.paging import Page, Slice, read_page
from app.errors import Invalid, NotFound, Refused
from app.evals.rubric import JUDGED
from app.models import AgentSession, CriteriaSet, EvalRun, Judgement, JudgementOverrule, User
from app.services import audit
from app.services.evals.golden import require_admin
from app.services.evals.judging.settle import describe_judgement, lock_replay, report_golden, rules_of, write_verdict
from app.services.evals.results import rewrite_results
from app.services.privacy import name_of

MAX_REASON = 2_000


@dataclass(frozen=True)
class Overrule:
    """One entry of the list of overruled judgements."""

    id: UUID
    dimension: str
    passed: bool
    reason: str
    created_at: datetime
    author: str | None
    session_id: UUID
    golden_id: str
    title: str
    criteria_set_id: UUID
    criteria: str
    model: str | None
    judge: dict[str, Any] | None


def overrule_judgement(
    session_id: UUID, dimension: str, *, passed: bool | None, reason: str, actor: Actor
) -> dict[str, Any]:
    """Say what a judged dimension should be, and why; returns the replay's result. The verdict of the comparison stays
    the best that there can be. Figures and verdicts of the run follow in the same transaction."""
    require_admin(actor, "overrule judges")
    held = _lock_judgement(session_id, actor)
    reason = _check(held, dimension, passed, reason)
    replay = lock_replay(session_id, actor=actor)
    before = replay.meta["eval_result"]
    if before["rubric"]["dimensions"][dimension]["passed"] is passed:
        raise Refused(f"This dimension {'passes' if passed else 'fails'} already.")
    if db.session.get_one(EvalRun, held.run_id, populate_existing=True).completed_at is None:
        raise Refused("This run is in progress. Overrule its judge when it ends.")
    entry = JudgementOverrule(
        tenant_id=actor.tenant_id, judgement_id=held.id, dimension=dimension, passed=passed, reason=reason,
        created_by=actor.id,
    )  # fmt: skip
    db.session.add(entry)
    db.session.flush()
    rules = rules_of(held, actor=actor)
    write_verdict(replay, describe_judgement(held, rules, _newest(held, actor)), rules)
    after: dict[str, Any] = replay.meta["eval_result"]
    audit.record(
        actor, "judgement.overruled", "session", session_id, dimension=dimension, before=before["verdict"],
        after=after["verdict"], passed=passed, reason=reason,
    )  # fmt: skip
    if after["verdict"] != before["verdict"]:
        report_golden(replay, held.run_id, actor=actor)
    rewrite_results(held.run_id, actor=actor)
    return after


def _lock_judgement(session_id: UUID, actor: Actor) -> Judgement:
    mine = (Judgement.tenant_id == actor.tenant_id, Judgement.session_id == session_id)
    held = db.session.scalar(select(Judgement).where(*mine).with_for_update().execution_options(populate_existing=True))
    if held is None:
        raise NotFound("There is no such judgement in this workspace.")
    return held


def _check(held: Judgement, dimension: str, passed: bool | None, reason: str) -> str:
    """The reason without spaces around it, where the judge said something that can be overruled."""
    if held.status != JUDGED:
        raise Refused("There is no judgement to overrule.")
    reason = reason.strip()
    wrong = {}
    if dimension not in held.dimensions:
        wrong["dimension"] = "Choose a dimension that was judged."
    if passed is None:
        wrong["passed"] = "Choose pass or fail."
    if not reason or len(reason) > MAX_REASON:
        wrong["reason"] = f"Give a reason of at most {MAX_REASON:,} characters."
    if wrong:
        raise Invalid.of(wrong)
    return reason


def _newest(held: Judgement, actor: Actor) -> dict[str, dict[str, Any]]:
    """What counts now of each overruled dimension. Who said it is kept as an id, and named only for who may read it."""
    rows = db.session.scalars(
        select(JudgementOverrule)
        .where(JudgementOverrule.tenant_id == actor.tenant_id, JudgementOverrule.judgement_id == held.id)
        .order_by(JudgementOverrule.created_at, JudgementOverrule.id)
    )
    return {
        row.dimension: {
            "passed": row.passed, "reason": row.reason, "by": str(row.created_by), "at": row.created_at.isoformat(),
        }
        for row in rows
    }  # fmt: skip


def overruled_by(session_id: UUID, *, actor: Actor) -> dict[str, str]:
    """Who overruled each dimension of a replay last. One query."""
    rows = db.session.execute(
        select(JudgementOverrule.dimension, name_of(JudgementOverrule.created_by, actor))
        .join(Judgement, Judgement.id == JudgementOverrule.judgement_id)
        .outerjoin(User, User.id == JudgementOverrule.created_by)
        .where(Judgement.tenant_id == actor.tenant_id, Judgement.session_id == session_id)
        .order_by(JudgementOverrule.created_at, JudgementOverrule.id)
    )
    return {row[0]: row[1] for row in rows}


def _overruled_later() -> Exists:
    later = aliased(JudgementOverrule)
    return exists().where(
        later.tenant_id == JudgementOverrule.tenant_id,
        later.judgement_id == JudgementOverrule.judgement_id,
        later.dimension == JudgementOverrule.dimension,
        tuple_(later.created_at, later.id) > tuple_(JudgementOverrule.created_at, JudgementOverrule.id),
    )


def list_overrules(page: Page, *, actor: Actor, criteria_set_id: UUID | None = None) -> Slice[Overrule]:
    """Overruled judgements, the newest first, of one criteria set or of all. What was overruled once more is left out,
    and so is what then agrees with the judge."""
    require_admin(actor, "read overruled judgements")
    judge: Any = func.jsonb_extract_path(Judgement.dimensions, JudgementOverrule.dimension, type_=JSONB)
    differs = judge["passed"].as_boolean() != JudgementOverrule.passed
    mine = [JudgementOverrule.tenant_id == actor.tenant_id, ~_overruled_later(), differs]
    if criteria_set_id is not None:
        of_set = select(Judgement.id).where(
            Judgement.tenant_id == actor.tenant_id, Judgement.criteria_set_id == criteria_set_id
        )
        mine.append(JudgementOverrule.judgement_id.in_(of_set))
    statement = (
        select(
            JudgementOverrule.id, JudgementOverrule.dimension, JudgementOverrule.passed, JudgementOverrule.reason,
            JudgementOverrule.created_at, name_of(JudgementOverrule.created_by, actor), Judgement.session_id,
            AgentSession.eval_source, AgentSession.title, Judgement.criteria_set_id, CriteriaSet.name, Judgement.model,
            judge,
        )
        .join(Judgement, Judgement.id == JudgementOverrule.judgement_id)
        .join(AgentSession, AgentSession.id == Judgement.session_id)
        .join(CriteriaSet, CriteriaSet.id == Judgement.criteria_set_id)
        .outerjoin(User, User.id == JudgementOverrule.created_by)
    )  # fmt: skip
    found = read_page(statement, page, at=JudgementOverrule.created_at, id=JudgementOverrule.id, where=mine)
    return found.map(lambda row: Overrule(*row))
