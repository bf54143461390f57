"""The baseline of a run: the run that its verdicts are compared with, and how they changed since."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.db import run
from app.errors import Invalid, NotFound
from app.evals.change import BETTER, CHANGES, ERRORED, NEW, SAME, WORSE, change_of, describe_changes
from app.services.evals.runs import get_run

MAX_CHOICES = 30
# The set's score when a run began: its newest run that counted and had ended by then. A run of single goldens has no
# set; it is compared with the newest run that counted and judged one of them.
_NEWEST_COUNTED = """
    (SELECT b.id FROM eval_runs AS b
      WHERE b.tenant_id = asked.tenant_id AND b.set_name = asked.set_name AND b.id <> asked.id
        AND b.created_at <= asked.started_at AND b.completed_at <= asked.started_at
        AND b.status = 'completed' AND NOT b.options ? 'trial'
      ORDER BY b.created_at DESC, b.id DESC LIMIT 1)
    UNION ALL
    (SELECT b.id
       FROM sessions AS s
       JOIN eval_verdicts AS v ON v.tenant_id = s.tenant_id AND v.golden_id = s.eval_source::uuid
       JOIN eval_runs AS b ON b.tenant_id = v.tenant_id AND b.id = v.run_id
      WHERE asked.set_name IS NULL AND s.tenant_id = asked.tenant_id AND s.eval_run_id = asked.id AND b.id <> asked.id
        AND v.ended_at <= asked.started_at AND NOT v.trial AND b.status = 'completed'
      ORDER BY v.ended_at DESC, b.id DESC LIMIT 1)
"""
_ASKED = """
WITH asked AS (
    SELECT tenant_id, id, set_name, started_at FROM eval_runs
     WHERE tenant_id = %(tenant)s AND id = ANY (%(runs)s::uuid[])
), paired AS (
    SELECT asked.id, b.id AS baseline FROM asked CROSS JOIN LATERAL ({baseline}) AS b
)
"""
COUNT_CHANGES = (
    _ASKED.format(baseline=_NEWEST_COUNTED)
    + """
SELECT p.id, p.baseline, o.verdict, n.verdict, count(*)
  FROM paired AS p
  JOIN eval_verdicts AS n ON n.tenant_id = %(tenant)s AND n.run_id = p.id
  LEFT JOIN eval_verdicts AS o ON o.tenant_id = %(tenant)s AND o.run_id = p.baseline AND o.golden_id = n.golden_id
 GROUP BY 1, 2, 3, 4
"""
)
_CHOSEN = "SELECT b.id FROM eval_runs AS b WHERE b.tenant_id = asked.tenant_id AND b.id = %(wanted)s"
# The columns of `ComparedRun`.
_RUN = "r.id, r.name, r.set_name, a.slug, n.version, r.options ? 'trial', r.started_at"
_AGENT_OF_RUN = """
  LEFT JOIN agents AS a ON a.tenant_id = r.tenant_id AND a.id = r.agent_id
  LEFT JOIN agent_versions AS n ON n.tenant_id = r.tenant_id AND n.id = r.agent_version_id
"""
_LOAD_BASELINE = f"""
SELECT r.status, {_RUN}, v.golden_id::text, v.verdict, v.accuracy, v.replay_session_id::text
  FROM paired AS p
  JOIN eval_runs AS r ON r.tenant_id = %(tenant)s AND r.id = p.baseline {_AGENT_OF_RUN}
  LEFT JOIN eval_verdicts AS v ON v.tenant_id = %(tenant)s AND v.run_id = r.id
"""
LOAD_DEFAULT = _ASKED.format(baseline=_NEWEST_COUNTED) + _LOAD_BASELINE
LOAD_CHOSEN = _ASKED.format(baseline=_CHOSEN) + _LOAD_BASELINE
# The newest runs of the same set, since those have the most goldens in common, and the newest of all.
_CHOICE = """
(SELECT {columns} FROM eval_runs AS r {agent}
  WHERE r.tenant_id = %(tenant)s AND r.status = 'completed' AND r.id <> %(run)s {which}
  ORDER BY r.created_at DESC, r.id DESC LIMIT {most})
"""
LIST_CHOICES = " UNION ALL ".join(
    _CHOICE.format(columns=_RUN, agent=_AGENT_OF_RUN, which=which, most=MAX_CHOICES)
    for which in ("AND r.set_name = %(set)s", "")
)


@dataclass(frozen=True)
class ComparedRun:
    """A run that others are compared with, as pages name it."""

    id: UUID
    name: str
    set_name: str | None
    agent: str | None
    agent_version: int | None
    trial: bool
    started_at: datetime


@dataclass(frozen=True)
class Before:
    """What an earlier run found of a golden."""

    verdict: str
    overall_accuracy: float | None
    replay_session_id: str
    run_id: UUID


@dataclass(frozen=True)
class Changes:
    """How many goldens of a run changed in which way since its baseline, the run `run_id`."""

    run_id: UUID
    worse: int
    better: int
    same: int
    new: int
    errored: int

    @property
    def counts(self) -> dict[str, int]:
        return {change: getattr(self, change) for change in CHANGES}

    @property
    def nonzero(self) -> dict[str, int]:
        """The counts as they are said: what errored only where something did."""
        return {change: number for change, number in self.counts.items() if number or change != ERRORED}

    @property
    def text(self) -> str:
        return describe_changes(self.counts)

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("run_id", WORSE, BETTER, SAME, NEW)}


@dataclass(frozen=True)
class Baseline:
    """A run to compare with, and what it found of each golden, by the golden's id as text."""

    run: ComparedRun
    found: Mapping[str, Before]

    def changes(self, now: Mapping[str, str | None]) -> Changes:
        """Count how the verdicts of a run, by golden, changed since."""
        counts: dict[str | None, int] = defaultdict(int)
        for golden_id, verdict in now.items():
            counts[self.change_of(golden_id, verdict)] += 1
        return Changes(self.run.id, *(counts[change] for change in (WORSE, BETTER, SAME, NEW, ERRORED)))

    def change_of(self, golden_id: str, now: str | None) -> str | None:
        before = self.found.get(golden_id)
        return change_of(before.verdict if before else None, now)


def load_baseline(run_id: UUID, wanted: UUID | None = None, *, actor: Actor) -> Baseline | None:
    """The run that a run is compared with: the set's score when it began, or the completed run that was asked for. One
    query."""
    if wanted == run_id:
        raise Invalid.of({"baseline": "Choose another run. This is the run itself."})
    asked = {"tenant": actor.tenant_id, "runs": f"{{{run_id}}}", "wanted": wanted}
    rows = run(LOAD_CHOSEN if wanted else LOAD_DEFAULT, asked)
    if not rows:
        if wanted:
            raise NotFound("There is no such eval run in this workspace.")
        return None
    _check_completed(rows[0][0])
    baseline = ComparedRun(*rows[0][1:8])
    found = {row[8]: Before(row[9], row[10], row[11], baseline.id) for row in rows if row[8] is not None}
    return Baseline(baseline, found)


def check_baseline(run_id: UUID, *, actor: Actor) -> None:
    """Refuse a run that nothing can be compared with."""
    _check_completed(get_run(run_id, actor=actor).status)


def _check_completed(status: str) -> None:
    if status != "completed":
        raise Invalid.of({"baseline": f"Choose a completed run. This one is {status}."})


def changes_of(run_ids: Collection[UUID], *, actor: Actor) -> dict[UUID, Changes]:
    """How each of these runs, as far as they have ended, changed since its own baseline. One query."""
    if not run_ids:
        return {}
    asked = {"tenant": actor.tenant_id, "runs": f"{{{','.join(map(str, run_ids))}}}"}
    baselines: dict[UUID, UUID] = {}
    counts: dict[UUID, dict[str, int]] = defaultdict(lambda: dict.fromkeys(CHANGES, 0))
    for one, baseline, before, now, number in run(COUNT_CHANGES, asked):
        baselines[one] = baseline
        counts[one][str(change_of(before, now))] += number
    return {one: Changes(baseline, **counts[one]) for one, baseline in baselines.items()}


def list_choices(run_id: UUID, set_name: str | None, *, actor: Actor) -> list[ComparedRun]:
    """Completed runs to compare with, those of the same set first. One query."""
    rows = run(LIST_CHOICES, {"tenant": actor.tenant_id, "run": run_id, "set": set_name})
    return [ComparedRun(*row) for row in dict.fromkeys(rows)]
