"""Ask the judge again where it gave no usable answer. Nothing is replayed."""

from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.errors import Refused
from app.evals.rubric import RUBRIC_ERRORED
from app.models import AgentSession, Judgement
from app.services import audit
from app.services.evals.results import lock_ended_run, reopen_run


def judge_again(run_id: UUID, *, actor: Actor) -> int:
    """Queue the errored judgements of an ended run again; returns how many. Replays that were replaced are left out."""
    run = lock_ended_run(run_id, actor=actor)
    errored = db.session.scalars(
        select(Judgement)
        .join(AgentSession, AgentSession.id == Judgement.session_id)
        .where(
            Judgement.tenant_id == actor.tenant_id,
            Judgement.run_id == run_id,
            Judgement.status == RUBRIC_ERRORED,
            AgentSession.meta["eval_retried"].is_(None),
        )
        .order_by(Judgement.id)
        .with_for_update(of=Judgement)
    ).all()
    if not errored:
        raise Refused("The judge gave an answer for every replay of this run.")
    for one in errored:
        one.status, one.attempt, one.error, one.finished_at = "pending", 0, None, None
    db.session.flush()
    reopen_run(run, actor=actor)
    audit.record(actor, "eval_run.judged_again", "eval_run", run_id, judgements=len(errored))
    return len(errored)
