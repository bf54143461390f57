"""The results of a run, computed from its cases and stored at its end; cancel, retry and delete runs."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Text, cast, func, insert, select, text, update
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db import db, run
from app.errors import Forbidden, Refused
from app.evals import stats
from app.evals.rubric import NOT_JUDGED
from app.evals.verdict import ERRORED, FAIL, FLAKY, PASS
from app.models import Agent, AgentSession, EvalRun
from app.models.evals import OPEN_JUDGEMENTS, OPEN_STATUSES
from app.services import audit
from app.services.evals.golden import require_admin
from app.services.evals.golden_lists import can_replay
from app.services.evals.judging.queue import NOTHING_LEFT, cancel_judgements
from app.services.evals.proof.finish import finish_proofs, reopen_proofs
from app.services.evals.regressions import queue_drop
from app.services.evals.runs import get_run
from app.services.evals.verdicts import remove_verdicts, store_verdicts
from app.services.sessions.lists import remove_sessions
from app.services.sessions.task_outcome import note_run_end

ENDED_STATUSES = ("completed", "failed", "cancelled")
# Results list the weightiest differences; the replay itself has them all.
MAX_DIVERGENCES = 20
# A case's metadata includes its golden's snapshot, which PostgreSQL decompresses for every value that is read. OFFSET 0
# keeps the planner from pulling the subquery up, which would decompress it once per column.
CASES = """
SELECT s.id, s.eval_source, m.trial, s.status, m.result ->> 'verdict', (m.result ->> 'overall_accuracy')::float8,
       m.result ->> 'reason', m.result ->> 'baseline', s.model, s.agent_id,
       j.status, j.cached, j.input_tokens + j.output_tokens, j.cost::float8, j.model, j.error{more}
  FROM sessions AS s
  LEFT JOIN judgements AS j ON j.tenant_id = s.tenant_id AND j.session_id = s.id
 CROSS JOIN LATERAL (SELECT s.metadata ->> 'eval_trial' AS trial, s.metadata -> 'eval_result' AS result OFFSET 0) AS m
 WHERE s.tenant_id = %(tenant)s AND s.eval_run_id = %(run)s {golden} AND (s.metadata -> 'eval_retried') IS NULL
 ORDER BY s.eval_source, m.trial
"""
LOCK_RUN = "SELECT 1 FROM eval_runs WHERE tenant_id = %(tenant)s AND id = %(run)s FOR NO KEY UPDATE"
ANY_OPEN_CASE = """
SELECT EXISTS (SELECT FROM sessions WHERE tenant_id = %(tenant)s AND eval_run_id = %(run)s
                  AND status NOT IN ('completed', 'failed', 'cancelled'))
    OR EXISTS (SELECT FROM judgements WHERE tenant_id = %(tenant)s AND run_id = %(run)s
                  AND status IN ('pending', 'running'))
"""


@dataclass(frozen=True)
class Case:
    """One trial of one golden, with its judgement if it has one. While that is open, its verdict may change."""

    session_id: UUID
    golden_id: str
    trial: str
    status: str
    verdict: str | None
    accuracy: float | None
    reason: str | None
    baseline: str | None
    model: str | None
    agent_id: UUID
    judge_status: str | None
    judge_cached: bool | None
    judge_tokens: int | None
    judge_cost: float | None
    judge_model: str | None
    judge_error: str | None
    divergences: list[Any] | None = None
    dimensions: dict[str, Any] | None = None
    rubric: dict[str, Any] | None = None

    @property
    def asked_judge(self) -> str | None:
        """The model that was asked to judge."""
        return None if self.judge_status == NOT_JUDGED else self.judge_model

    @property
    def ended(self) -> bool:
        return self.status in ENDED_STATUSES and self.judge_status not in OPEN_JUDGEMENTS


@dataclass(frozen=True)
class Progress:
    """How far a run is: how many cases it has, how many have ended, and the verdicts of the goldens that are done.
    `judging` cases were replayed and wait for their judge."""

    total: int
    ended: int
    verdicts: dict[str, int]
    seconds_left: int | None
    judging: int = 0

    @property
    def left(self) -> int:
        return self.total - self.ended


@dataclass(frozen=True)
class JudgeProgress:
    """The judgements of a run by status, and what they took. `cost` is None where one is unknown. `why_not` says why
    the judge was not asked where it could have been."""

    counts: Mapping[str, int]
    cached: int
    tokens: int
    cost: float | None
    why_not: str | None

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def left(self) -> int:
        return sum(self.counts.get(status, 0) for status in OPEN_JUDGEMENTS)


def cases_of(run_id: UUID, *, actor: Actor, golden_id: str | None = None, divergences: bool = False) -> list[Case]:
    """The cases of a run, without those that were tried again. With `divergences` they have their dimensions too. One
    query."""
    more = ", m.result -> 'divergences', m.result -> 'dimensions', m.result -> 'rubric'" if divergences else ""
    only = "AND s.eval_source = %(golden)s" if golden_id is not None else ""
    wanted = {"tenant": actor.tenant_id, "run": run_id, "golden": golden_id}
    return [Case(*row) for row in run(CASES.format(more=more, golden=only), wanted)]


def group_by_golden(cases: Sequence[Case]) -> dict[str, list[Case]]:
    grouped: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        grouped[case.golden_id].append(case)
    return dict(grouped)


def verdict_of(group: Sequence[Case]) -> str | None:
    """The verdict of a golden, when all its trials have ended; a cancelled trial was not judged."""
    if not all(case.ended for case in group):
        return None
    return stats.combine_verdicts([case.verdict or ERRORED for case in group])


def progress_of(run: EvalRun, cases: Sequence[Case]) -> Progress:
    """How far a run is, and how long it will take at the pace so far."""
    ended = sum(case.ended for case in cases)
    verdicts = stats.count_verdicts(
        verdict for group in group_by_golden(cases).values() if (verdict := verdict_of(group)) is not None
    )
    judging = sum(case.status in ENDED_STATUSES and not case.ended for case in cases)
    left = None
    # The pace of replays says nothing of the judge.
    if run.completed_at is None and ended and len(cases) > ended + judging:
        spent = (datetime.now(UTC) - run.started_at).total_seconds()
        left = round(spent / ended * (len(cases) - ended))
    return Progress(len(cases), ended, verdicts, left, judging)


def judge_progress_of(cases: Sequence[Case]) -> JudgeProgress:
    """How far the judge of a run is, and what it took."""
    judged = [case for case in cases if case.judge_status is not None]
    unknown = any(case.judge_cost is None and case.judge_model for case in judged)
    unasked = (case.judge_error for case in judged if case.judge_status == NOT_JUDGED)
    return JudgeProgress(
        counts=Counter(str(case.judge_status) for case in judged),
        cached=sum(bool(case.judge_cached) for case in judged),
        tokens=sum(case.judge_tokens or 0 for case in judged),
        cost=None if unknown else sum(case.judge_cost or 0.0 for case in judged),
        why_not=next((why for why in unasked if why != NOTHING_LEFT), None),
    )


def results_of(cases: Sequence[Case]) -> dict[str, Any]:
    """`bySession` of a run, and figures over all of it; goldens with a rejected baseline count in `verdicts` only."""
    goldens = group_by_golden(cases)
    every = {golden_id: golden_result(group) for golden_id, group in goldens.items()}
    found = {golden_id: one for golden_id, one in every.items() if one["verdict"] is not None}
    counted = [golden_id for golden_id, one in found.items() if one["baseline"] != "rejected"]
    trusted = [found[golden_id]["verdict"] for golden_id in counted]
    by_agent: dict[str, list[str]] = defaultdict(list)
    for golden_id in counted:
        by_agent[str(goldens[golden_id][0].agent_id)].append(found[golden_id]["verdict"])
    per_golden = [[case.verdict or ERRORED for case in goldens[golden_id]] for golden_id in counted]
    most = max(map(len, per_golden), default=0)
    return {
        "bySession": found,
        **stats.score_verdicts(trusted),
        "agents": {agent_id: stats.score_verdicts(verdicts) for agent_id, verdicts in by_agent.items()},
        "dimensions": stats.score_dimensions(
            [case.dimensions or {} for case in goldens[golden_id] if case.verdict in (PASS, FAIL)]
            for golden_id in counted
        ),
        "verdicts": stats.count_verdicts(one["verdict"] for one in found.values()),
        # The judge is one of the models that the verdicts depend on.
        "models": sorted({model for case in cases for model in (case.model, case.asked_judge) if model}),
        "pass_power_k": stats.pass_power_k(per_golden, most) if most > 1 else None,
    }


def golden_result(group: Sequence[Case]) -> dict[str, Any]:
    """What came of one golden: its verdict, None while trials are open, and the trial that explains it."""
    verdict = verdict_of(group)
    # A flaky golden is explained by a trial that failed.
    wanted = FAIL if verdict == FLAKY else verdict
    telling = next((case for case in group if case.verdict == wanted), group[0])
    judged = [case.accuracy for case in group if case.accuracy is not None]
    return {
        "passed": stats.is_pass(verdict) if verdict else None,
        "verdict": verdict,
        "overall_accuracy": round(sum(judged) / len(judged), 6) if judged else None,
        "reason": telling.reason,
        "divergences": (telling.divergences or [])[:MAX_DIVERGENCES],
        "replay_session_id": str(telling.session_id),
        "baseline": telling.baseline,
        **({"rubric": telling.rubric} if telling.rubric else {}),
        "trials": [
            {"trial": case.trial, "verdict": case.verdict or ERRORED, "replay_session_id": str(case.session_id)}
            for case in group
        ],
    }


def finish_if_done(ending: EvalRun, *, actor: Actor, at: datetime | None = None) -> bool:
    """End a locked run when its last case has ended and errored cases were retried. Its figures never change again."""
    if ending.completed_at is not None or _under_way(ending.id, actor):
        return False
    if ending.cancel_requested_at is None and retry_once(ending, actor=actor):
        return False
    results = results_of(cases_of(ending.id, actor=actor, divergences=True))
    ending.status = "cancelled" if ending.cancel_requested_at is not None else "completed"
    ending.completed_at = at or datetime.now(UTC)
    _write_results(ending, results, actor)
    finish_proofs(ending, actor=actor)
    queue_drop(ending, actor=actor)
    note_run_end(ending)
    audit.record(
        actor, "eval_run.finished", "eval_run", ending.id, after=ending.status, passed=ending.passed_count,
        failed=ending.failed_count,
    )  # fmt: skip
    return True


def _write_results(ended: EvalRun, results: dict[str, Any], actor: Actor) -> None:
    ended.results = results
    ended.passed_count = results["verdicts"][PASS]
    ended.failed_count = results["verdicts"][FAIL] + results["verdicts"]["flaky"]
    db.session.flush()
    store_verdicts(ended, results["bySession"], actor=actor)


def rewrite_results(run_id: UUID, *, actor: Actor) -> None:
    """Write the figures of an ended run again, because a judgement in it was overruled."""
    ended = get_run(run_id, actor=actor, lock=True)
    remove_verdicts(run_id, actor=actor)
    _write_results(ended, results_of(cases_of(run_id, actor=actor, divergences=True)), actor)


def finish_run_of_case(run_id: UUID, *, actor: Actor) -> None:
    """End the run of a case that has just ended, if it was the last. Mostly it is not: then the run is not loaded."""
    run(LOCK_RUN, {"tenant": actor.tenant_id, "run": run_id})
    if not _under_way(run_id, actor):
        finish_if_done(get_run(run_id, actor=actor, lock=True), actor=actor)


def _under_way(run_id: UUID, actor: Actor) -> bool:
    [(found,)] = run(ANY_OPEN_CASE, {"tenant": actor.tenant_id, "run": run_id})
    return bool(found)


# What a retry shares with the case that errored.
COPIED = (
    "tenant_id", "title", "session_type", "output_type", "agent_id", "agent_version_id", "entity_id", "created_by",
)  # fmt: skip


def errored_cases(run_id: UUID, *, actor: Actor) -> tuple[list[AgentSession], list[AgentSession]]:
    """The errored cases of a run that were not retried, locked; and those of them whose agent can still replay."""
    found = db.session.execute(
        select(AgentSession, can_replay())
        .join(Agent, (Agent.tenant_id == AgentSession.tenant_id) & (Agent.id == AgentSession.agent_id))
        .where(
            AgentSession.tenant_id == actor.tenant_id,
            AgentSession.eval_run_id == run_id,
            AgentSession.meta["eval_result"]["verdict"].astext == "errored",
            AgentSession.meta["eval_retried"].is_(None),
        )
        .with_for_update(of=AgentSession)
    ).all()
    return [case for case, _ in found], [case for case, can in found if can]


def retry_once(run: EvalRun, *, actor: Actor) -> int:
    """Retry at the end of a run what errored in it for the first time, unless a person cancelled it; how many cases."""
    _, able = errored_cases(run.id, actor=actor)
    # The trial of a retry has a suffix.
    again = [case for case in able if case.status == "failed" and "." not in case.meta["eval_trial"]]
    if again:
        add_retries(again, actor=actor)
        mark_retried(again)
        audit.record(actor, "eval_run.retried", "eval_run", run.id, cases=len(again), automatic=True)
    return len(again)


def add_retries(cases: Sequence[AgentSession], *, actor: Actor) -> None:
    """Queue a replay in place of each of these."""
    db.session.execute(insert(AgentSession.__table__).inline(), [_retry_row(case, actor) for case in cases])  # type: ignore[arg-type]


def mark_retried(cases: Sequence[AgentSession]) -> None:
    """Leave these out of the results, since another replay replaces them."""
    for case in cases:
        case.meta = {**case.meta, "eval_retried": True}
    db.session.flush()


def _retry_row(old: AgentSession, actor: Actor) -> dict[str, Any]:
    trial = old.meta["eval_trial"].partition(".")[0]
    fresh = {name: value for name, value in old.meta.items() if name != "eval_result"}
    return {
        **{name: getattr(old, name) for name in COPIED},
        "id": uuid4(),
        "status": "pending",
        "trace_id": uuid4().hex,
        "tags": [],
        "metadata": fresh | {"eval_trial": f"{trial}.{uuid4().hex[:8]}"},
        "key_scopes": actor.limited_to(old.key_scopes).stored_scopes,
    }


CASES_CONSTRAINT = "fk_sessions_tenant_id_eval_run_id"


def cancel_run(run_id: UUID, *, actor: Actor) -> EvalRun:
    """Cancel a run: pending cases at once, running ones at their next step. Idempotent. A case that ends locks itself
    first and the run last. So the cases are locked here before the run; cases that were retried in between are taken
    only if they are not locked."""
    if not actor.is_admin:
        raise Forbidden("Only admins can stop evals.")
    own = (AgentSession.eval_run_id == run_id) & AgentSession.status.in_(("pending", "running"))
    open_cases = select(AgentSession.id).where(AgentSession.tenant_id == actor.tenant_id, own).order_by(AgentSession.id)
    db.session.execute(open_cases.with_for_update())
    run = get_run(run_id, actor=actor, lock=True)
    if run.status not in OPEN_STATUSES:
        if run.status == "cancelled":
            return run
        raise Refused(f"This run is already {run.status}.", current=run.status)
    if run.cancel_requested_at is None:
        run.cancel_requested_at = datetime.now(UTC)
        audit.record(actor, "eval_run.cancelled", "eval_run", run.id)
    cases = list(db.session.scalars(open_cases.with_for_update(skip_locked=True)))
    change = update(AgentSession).where(AgentSession.id.in_(cases)).execution_options(synchronize_session=False)
    ended = {"status": "cancelled", "finished_at": func.now(), "lease_owner": None, "lease_until": None}
    db.session.execute(change.where(AgentSession.status == "pending").values(ended))
    running = (AgentSession.status == "running") & AgentSession.cancel_requested_at.is_(None)
    db.session.execute(change.where(running).values(cancel_requested_at=func.now()))
    cancel_judgements(run_id, actor=actor)
    finish_if_done(run, actor=actor)
    return run


def retry_errored(run_id: UUID, *, actor: Actor) -> int:
    """Replay again what could not be judged because something broke; returns how many cases."""
    run = lock_ended_run(run_id, actor=actor)
    errored, failed = errored_cases(run_id, actor=actor)
    if not errored:
        raise Refused("Nothing in this run errored.")
    if not failed:
        raise Refused("The agents of these goldens are archived or external, so nothing can be replayed.")
    # A run that has ended keeps its cases as they are. So it is taken up first, which takes cases that wait.
    add_retries(failed, actor=actor)
    reopen_run(run, actor=actor)
    mark_retried(failed)
    audit.record(actor, "eval_run.retried", "eval_run", run.id, cases=len(failed))
    return len(failed)


def lock_ended_run(run_id: UUID, *, actor: Actor) -> EvalRun:
    """A run that an admin may take up again, locked."""
    if not actor.is_admin:
        raise Forbidden("Only admins can start evals.")
    run = get_run(run_id, actor=actor, lock=True)
    if run.status in OPEN_STATUSES:
        raise Refused("This run is still in progress.", current=run.status)
    if run.status == "cancelled":
        raise Refused("This run was cancelled. Start another.", current=run.status)
    return run


def reopen_run(run: EvalRun, *, actor: Actor) -> None:
    """Take up a run again that has something to do. It ends and gets its figures as it did before."""
    remove_verdicts(run.id, actor=actor)
    reopen_proofs(run.id, actor=actor)
    run.status, run.completed_at, run.results = "running", None, {}
    db.session.flush()


def delete_run(run_id: UUID, *, actor: Actor) -> int:
    """Delete a run that has ended with its replays and their events; returns how many replays. Feedback about its
    failures stays and keeps the ids of the replays as text. Refused if a replay was promoted in place of its golden,
    because that golden was copied from it."""
    require_admin(actor, "delete runs")
    run = get_run(run_id, actor=actor, lock=True)
    if run.status in OPEN_STATUSES:
        raise Refused("This run is in progress. Cancel it first.", current=run.status)
    mine = (AgentSession.tenant_id == actor.tenant_id, AgentSession.eval_run_id == run_id)
    replays = list(db.session.scalars(select(AgentSession.id).where(*mine).order_by(AgentSession.id).with_for_update()))
    _check_none_promoted(run_id, actor)
    audit.record(
        actor, "eval_run.deleted", "eval_run", run.id, name=run.name, set=run.set_name, before=run.status,
        replays=len(replays), passed=run.passed_count, failed=run.failed_count,
    )  # fmt: skip
    remove_verdicts(run.id, actor=actor)
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
