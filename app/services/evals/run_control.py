"""Cancel, retry and delete runs."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Text, cast, func, select, text, update
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db import db
from app.errors import Forbidden, Refused
from app.models import AgentSession, EvalRun
from app.services import audit
from app.services.evals.golden import require_admin
from app.services.evals.results import add_retries, errored_cases, finish_if_done, mark_retried
from app.services.evals.runs import OPEN_STATUSES, get_run
from app.services.sessions.lists import remove_sessions

OPEN_CASES = ("pending", "running")
CASES_CONSTRAINT = "fk_sessions_tenant_id_eval_run_id"


def cancel_run(run_id: UUID, *, actor: Actor) -> EvalRun:
    """Cancel a run: pending cases at once, running ones at their next step. Idempotent. A case that ends locks itself
    first and the run last. So the cases are locked here before the run; cases that were retried in between are taken
    only if they are not locked."""
    if not actor.is_admin:
        raise Forbidden("Only an admin stops evals.")
    open_cases = (
        select(AgentSession.id)
        .where(
            AgentSession.tenant_id == actor.tenant_id,
            AgentSession.eval_run_id == run_id,
            AgentSession.status.in_(OPEN_CASES),
        )
        .order_by(AgentSession.id)
    )
    db.session.execute(open_cases.with_for_update())
    run = get_run(run_id, actor=actor, lock=True)
    if run.status not in OPEN_STATUSES:
        if run.status == "cancelled":
            return run
        raise Refused(f"This run is {run.status} already.", current=run.status)
    if run.cancel_requested_at is None:
        run.cancel_requested_at = datetime.now(UTC)
        audit.record(actor, "eval_run.cancelled", "eval_run", run.id)
    cases = list(db.session.scalars(open_cases.with_for_update(skip_locked=True)))
    change = update(AgentSession).where(AgentSession.id.in_(cases)).execution_options(synchronize_session=False)
    ended = {"status": "cancelled", "finished_at": func.now(), "lease_owner": None, "lease_until": None}
    db.session.execute(change.where(AgentSession.status == "pending").values(ended))
    running = (AgentSession.status == "running") & AgentSession.cancel_requested_at.is_(None)
    db.session.execute(change.where(running).values(cancel_requested_at=func.now()))
    finish_if_done(run, actor=actor)
    return run


def retry_errored(run_id: UUID, *, actor: Actor) -> int:
    """Replay again what could not be judged because something broke; returns how many cases."""
    if not actor.is_admin:
        raise Forbidden("Only an admin starts evals.")
    run = get_run(run_id, actor=actor, lock=True)
    if run.status in OPEN_STATUSES:
        raise Refused("This run is still under way.", current=run.status)
    if run.status == "cancelled":
        raise Refused("This run was cancelled; start another.", current=run.status)
    errored, failed = errored_cases(run_id, actor=actor)
    if not errored:
        raise Refused("Nothing in this run errored.")
    if not failed:
        raise Refused("The agents of these goldens are archived or run elsewhere now, so nothing can be replayed.")
    # A run that has ended keeps its cases as they are. So it is taken up first, which takes cases that wait.
    add_retries(failed, actor=actor)
    run.status, run.completed_at, run.results = "running", None, {}
    db.session.flush()
    mark_retried(failed)
    audit.record(actor, "eval_run.retried", "eval_run", run.id, cases=len(failed))
    return len(failed)


def delete_run(run_id: UUID, *, actor: Actor) -> int:
    """Delete a run that has ended with its replays and their events; returns how many replays. Feedback about its
    failures stays and keeps the ids of the replays as text. Refused if a replay was promoted in place of its golden,
    because that golden was copied from it."""
    require_admin(actor, "deletes runs")
    run = get_run(run_id, actor=actor, lock=True)
    if run.status in OPEN_STATUSES:
        raise Refused("This run is under way; cancel it first.", current=run.status)
    mine = (AgentSession.tenant_id == actor.tenant_id, AgentSession.eval_run_id == run_id)
    replays = list(db.session.scalars(select(AgentSession.id).where(*mine).order_by(AgentSession.id).with_for_update()))
    _check_none_promoted(run_id, actor)
    audit.record(
        actor, "eval_run.deleted", "eval_run", run.id, name=run.name, set=run.set_name, before=run.status,
        replays=len(replays), passed=run.passed_count, failed=run.failed_count,
    )  # fmt: skip
    db.session.execute(text(f"SET CONSTRAINTS {CASES_CONSTRAINT} DEFERRED"))
    db.session.delete(run)
    db.session.flush()
    remove_sessions(replays, actor=actor)
    db.session.execute(text(f"SET CONSTRAINTS {CASES_CONSTRAINT} IMMEDIATE"))
    return len(replays)


def _check_none_promoted(run_id: UUID, actor: Actor) -> None:
    copy, replay = aliased(AgentSession), aliased(AgentSession)
    copied_from: Any = copy.meta["copied_from"]
    found = db.session.execute(
        select(copy.title, copy.golden_set, replay.id)
        .join(replay, (replay.tenant_id == copy.tenant_id) & (cast(replay.id, Text) == copied_from.astext))
        .where(copy.tenant_id == actor.tenant_id, copy.golden_set.is_not(None), replay.eval_run_id == run_id)
        .order_by(copy.title, replay.id)
        .limit(1)
    ).first()
    if found is not None:
        raise Refused(
            f"Nothing was deleted: the replay {found.id} of “{found.title[:80]}” was promoted instead of its golden,"
            f" in {found.golden_set}. Revoke that golden first.",
            current=str(found.id),
        )
