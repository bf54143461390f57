"""The results of a run: computed from its cases, and stored when the last of them has ended."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db, run
from app.errors import NotFound
from app.evals import trials
from app.evals.verdict import ERRORED, FAIL, FLAKY, PASS
from app.models import EvalRun
from app.services import audit
from app.services.evals.case_retries import retry_once
from app.services.sessions.task_outcome import note_run_end

ENDED_STATUSES = ("completed", "failed", "cancelled")
# Results list the weightiest differences; the replay itself has them all.
MAX_DIVERGENCES = 20
# A case's metadata includes its golden's snapshot, which PostgreSQL decompresses for every value that is read. OFFSET 0
# keeps the planner from pulling the subquery up, which would decompress it once per column.
CASES = """
SELECT s.id, s.eval_source, m.trial, s.status, m.result ->> 'verdict', (m.result ->> 'overall_accuracy')::float8,
       m.result ->> 'reason', m.result ->> 'baseline', s.model{divergences}
  FROM sessions AS s
 CROSS JOIN LATERAL (SELECT s.metadata ->> 'eval_trial' AS trial, s.metadata -> 'eval_result' AS result OFFSET 0) AS m
 WHERE s.tenant_id = %(tenant)s AND s.eval_run_id = %(run)s {golden} AND (s.metadata -> 'eval_retried') IS NULL
 ORDER BY s.eval_source, m.trial
"""
LOCK_RUN = "SELECT 1 FROM eval_runs WHERE tenant_id = %(tenant)s AND id = %(run)s FOR NO KEY UPDATE"
ANY_OPEN_CASE = """
SELECT EXISTS (SELECT FROM sessions WHERE tenant_id = %(tenant)s AND eval_run_id = %(run)s
                  AND status NOT IN ('completed', 'failed', 'cancelled'))
"""


@dataclass(frozen=True)
class Case:
    """One trial of one golden."""

    session_id: UUID
    golden_id: str
    trial: str
    status: str
    verdict: str | None
    accuracy: float | None
    reason: str | None
    baseline: str | None
    model: str | None
    divergences: list[Any] | None = None


@dataclass(frozen=True)
class Progress:
    """How far a run is: how many cases it has, how many have ended, and the verdicts of the goldens that are done."""

    total: int
    ended: int
    verdicts: dict[str, int]
    seconds_left: int | None

    @property
    def left(self) -> int:
        return self.total - self.ended


def lock_run(run_id: UUID, *, actor: Actor) -> EvalRun:
    """The run, locked until the transaction ends. Everyone who ends a case locks it, so that exactly one ends the
    run."""
    found = db.session.scalar(
        select(EvalRun)
        .where(EvalRun.tenant_id == actor.tenant_id, EvalRun.id == run_id)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    if found is None:
        raise NotFound("There is no such eval run in this workspace.")
    return found


def cases_of(run_id: UUID, *, actor: Actor, golden_id: str | None = None, divergences: bool = False) -> list[Case]:
    """The cases of a run, without those that were tried again. One query."""
    wanted = {"tenant": actor.tenant_id, "run": run_id, "golden": golden_id}
    rows = run(
        CASES.format(
            divergences=", m.result -> 'divergences'" if divergences else "",
            golden="AND s.eval_source = %(golden)s" if golden_id is not None else "",
        ),
        wanted,
    )
    return [Case(*row) for row in rows]


def group_by_golden(cases: Sequence[Case]) -> dict[str, list[Case]]:
    grouped: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        grouped[case.golden_id].append(case)
    return dict(grouped)


def verdict_of(group: Sequence[Case]) -> str | None:
    """The verdict of a golden, when all its trials have ended; a cancelled trial was not judged."""
    if any(case.status not in ENDED_STATUSES for case in group):
        return None
    return trials.combine_verdicts([case.verdict or ERRORED for case in group])


def explaining_case(group: Sequence[Case], verdict: str | None) -> Case:
    """The trial that explains a golden's verdict. A flaky golden is explained by a trial that failed."""
    wanted = FAIL if verdict == FLAKY else verdict
    return next((case for case in group if case.verdict == wanted), group[0])


def progress_of(run: EvalRun, cases: Sequence[Case]) -> Progress:
    """How far a run is, and how long it will take at the pace so far."""
    ended = sum(case.status in ENDED_STATUSES for case in cases)
    verdicts = trials.count_verdicts(
        verdict for group in group_by_golden(cases).values() if (verdict := verdict_of(group)) is not None
    )
    left = None
    if run.completed_at is None and ended:
        spent = (datetime.now(UTC) - run.started_at).total_seconds()
        left = round(spent / ended * (len(cases) - ended))
    return Progress(len(cases), ended, verdicts, left)


def results_of(cases: Sequence[Case]) -> dict[str, Any]:
    """`bySession` of a run, with the figures over all of it."""
    goldens = group_by_golden(cases)
    found: dict[str, Any] = {}
    verdicts: dict[str, str] = {}
    for golden_id, group in goldens.items():
        verdict = verdict_of(group)
        if verdict is None:
            continue
        verdicts[golden_id] = verdict
        telling = explaining_case(group, verdict)
        judged = [case.accuracy for case in group if case.accuracy is not None]
        found[golden_id] = {
            "passed": trials.is_pass(verdict),
            "verdict": verdict,
            "overall_accuracy": round(sum(judged) / len(judged), 6) if judged else None,
            "reason": telling.reason,
            "divergences": (telling.divergences or [])[:MAX_DIVERGENCES],
            "replay_session_id": str(telling.session_id),
            "baseline": telling.baseline,
            "trials": [
                {"trial": case.trial, "verdict": case.verdict or ERRORED, "replay_session_id": str(case.session_id)}
                for case in group
            ],
        }
    trusted = [verdict for golden_id, verdict in verdicts.items() if found[golden_id]["baseline"] != "rejected"]
    judged_goldens = sum(verdict in (PASS, FAIL, FLAKY) for verdict in trusted)
    per_golden = [[case.verdict or ERRORED for case in group] for group in goldens.values()]
    most = max((len(group) for group in per_golden), default=0)
    return {
        "bySession": found,
        "accuracy": trials.accuracy(trusted),
        "judged": judged_goldens,
        "verdicts": trials.count_verdicts(verdicts.values()),
        "models": sorted({case.model for case in cases if case.model}),
        "pass_power_k": trials.pass_power_k(per_golden, most) if most > 1 else None,
    }


def finish_if_done(ending: EvalRun, *, actor: Actor, at: datetime | None = None) -> bool:
    """End the run when its last case has ended and errored cases were retried once. The run must be locked. Its figures
    are stored once and never change."""
    if ending.completed_at is not None or _under_way(ending.id, actor):
        return False
    if ending.cancel_requested_at is None and retry_once(ending, actor=actor):
        return False
    results = results_of(cases_of(ending.id, actor=actor, divergences=True))
    ending.status = "cancelled" if ending.cancel_requested_at is not None else "completed"
    ending.completed_at = at or datetime.now(UTC)
    ending.results = results
    ending.passed_count = results["verdicts"][PASS]
    ending.failed_count = results["verdicts"][FAIL] + results["verdicts"]["flaky"]
    db.session.flush()
    note_run_end(ending)
    audit.record(
        actor, "eval_run.finished", "eval_run", ending.id, after=ending.status, passed=ending.passed_count,
        failed=ending.failed_count,
    )  # fmt: skip
    return True


def finish_run_of_case(run_id: UUID, *, actor: Actor) -> None:
    """End the run of a case that has just ended, if it was the last. Checks first without loading the run, because
    mostly others are still open."""
    run(LOCK_RUN, {"tenant": actor.tenant_id, "run": run_id})
    if not _under_way(run_id, actor):
        finish_if_done(lock_run(run_id, actor=actor), actor=actor)


def _under_way(run_id: UUID, actor: Actor) -> bool:
    [(found,)] = run(ANY_OPEN_CASE, {"tenant": actor.tenant_id, "run": run_id})
    return bool(found)
