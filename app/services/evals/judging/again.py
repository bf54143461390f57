"""Ask the judge again where it gave no usable answer or was not asked. Nothing is replayed."""

from uuid import UUID

from sqlalchemy import or_, select

from app.actor import Actor
from app.db import db
from app.errors import Refused
from app.evals.rubric import NOT_JUDGED, RUBRIC_ERRORED
from app.models import AgentSession, Judgement
from app.services import audit
from app.services.evals.judging.queue import NOTHING_LEFT
from app.services.evals.judging.work import why_not_ask
from app.services.evals.results import lock_ended_run, reopen_run


def judge_again(run_id: UUID, default_model: str, *, actor: Actor) -> int:
    """Queue the judgements of an ended run again that have no score; returns how many. Replays that were replaced are
    left out. Refused while no judge can be asked."""
    run = lock_ended_run(run_id, actor=actor)
    unasked = (Judgement.status == NOT_JUDGED) & Judgement.error.is_distinct_from(NOTHING_LEFT)
    found = db.session.scalars(
        select(Judgement)
        .join(AgentSession, AgentSession.id == Judgement.session_id)
        .where(
            Judgement.tenant_id == actor.tenant_id,
            Judgement.run_id == run_id,
            or_(Judgement.status == RUBRIC_ERRORED, unasked),
            AgentSession.meta["eval_retried"].is_(None),
        )
        .order_by(Judgement.id)
        .with_for_update(of=Judgement)
    ).all()
    if not found:
        raise Refused("Nothing in this run is waiting for the judge.")
    if refused := why_not_ask(default_model, actor=actor):
        raise Refused(refused)
    for one in found:
        one.status, one.attempt, one.error, one.finished_at = "pending", 0, None, None
    db.session.flush()
    reopen_run(run, actor=actor)
    audit.record(actor, "eval_run.judged_again", "eval_run", run_id, judgements=len(found))
    return len(found)
