"""The end of a judgement, in one short transaction: its row, the replay's verdict, its feedback, and its run."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.evals.rubric import JUDGED, apply_rubric, can_lower, score_rubric
from app.formats.criteria import AnyDimension, read_dimensions
from app.models import AgentSession, EvalRun, Judgement
from app.services.entities import criteria as criteria_store
from app.services.evals.judging.queue import JudgeLease, hold_judgement
from app.services.evals.judging.work import JudgeOutcome
from app.services.evals.replays import lock_golden, report_verdict
from app.services.evals.results import cases_of, finish_run_of_case, verdict_of
from app.services.workspaces import identity


def finish_judgement(lease: JudgeLease, outcome: JudgeOutcome) -> bool:
    """Write down what came of a judgement; False if it is not ours any more. The last one of a golden reports its
    verdict, the last one of a run ends the run."""
    held = hold_judgement(lease)
    if held is None:
        return False
    actor = identity.system_user(lease.tenant_id)
    _store(held, outcome)
    replay = lock_replay(held.session_id, actor=actor)
    rules = rules_of(held, actor=actor)
    write_verdict(replay, describe_judgement(held, rules), rules)
    report_golden(replay, held.run_id, actor=actor)
    finish_run_of_case(held.run_id, actor=actor)
    return True


def _store(held: Judgement, outcome: JudgeOutcome) -> None:
    held.status, held.dimensions = outcome.status, dict(outcome.marks)
    held.criteria_version, held.content_hash = outcome.criteria_version, outcome.content_hash
    # What an earlier answer took that nobody could use was paid for too.
    if outcome.cost is None or (held.cost is None and held.model):
        held.cost = None
    else:
        held.cost = outcome.cost + (held.cost or 0)
    held.error, held.model, held.cached = outcome.reason, outcome.model, outcome.cached
    held.input_tokens += outcome.input_tokens
    held.output_tokens += outcome.output_tokens
    held.lease_owner = held.lease_until = None
    held.finished_at = datetime.now(UTC)
    db.session.flush()


def lock_replay(session_id: UUID, *, actor: Actor) -> AgentSession:
    mine = (AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id)
    wanted = select(AgentSession).where(*mine).with_for_update(key_share=True)
    return db.session.scalars(wanted.execution_options(populate_existing=True)).one()


def rules_of(held: Judgement, *, actor: Actor) -> Mapping[str, AnyDimension]:
    """The dimensions that the replay was judged by."""
    if held.criteria_version is None:
        return {}
    return read_dimensions(
        criteria_store.get_version(held.criteria_set_id, held.criteria_version, actor=actor).dimensions
    )


def describe_judgement(
    held: Judgement, rules: Mapping[str, AnyDimension], overruled: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """The rubric of a replay as it is stored with its result."""
    about = {
        "criteria_set_id": str(held.criteria_set_id),
        "criteria_version": held.criteria_version,
        "model": held.model,
        "cached": held.cached,
        "judged_at": held.finished_at.isoformat() if held.finished_at else None,
    }
    if held.status != JUDGED:
        return {"status": held.status, "reason": held.error, "dimensions": {}, **about}
    return {**score_rubric(rules, held.dimensions, overruled), **about}


def write_verdict(replay: AgentSession, rubric: Mapping[str, Any], rules: Mapping[str, AnyDimension]) -> None:
    """Give a replay its rubric and the verdict that follows from it."""
    judged = [rules[name] for name in rubric["dimensions"]] or list(rules.values())
    decides = not judged or can_lower({str(place): rule for place, rule in enumerate(judged)})
    replay.meta = {**replay.meta, "eval_result": apply_rubric(replay.meta["eval_result"], rubric, decides=decides)}
    db.session.flush()


def report_golden(replay: AgentSession, run_id: UUID, *, actor: Actor) -> None:
    """Report the verdict of the replay's golden, unless its other trials are still open or the run does not count."""
    # Trials of one golden are judged one after the other from here on, so that the last one sees that it is the last.
    lock_golden(str(replay.eval_source), actor=actor)
    run = db.session.get_one(EvalRun, run_id, populate_existing=True)
    if run.cancel_requested_at is None and "trial" not in run.options:
        group = cases_of(run_id, actor=actor, golden_id=str(replay.eval_source), divergences=True)
        report_verdict(verdict_of(group), group, replay, run.context_mode, actor=actor)
