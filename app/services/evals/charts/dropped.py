"""Sets that dropped: fewer of their goldens pass now than in the last scheduled run before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from app.actor import Actor
from app.db import run
from app.evals.stats import Score, smallest_regression

if TYPE_CHECKING:
    from app.services.evals.run_lists import RunRow

# Sets are walked through the index of goldens, each found by the one before it.
SETS = """
    sets(name) AS (
        SELECT min(golden_set) FROM sessions WHERE tenant_id = {tenant} AND golden_set IS NOT NULL
        UNION ALL
        SELECT (SELECT min(golden_set) FROM sessions WHERE tenant_id = {tenant} AND golden_set > sets.name)
          FROM sets WHERE sets.name IS NOT NULL
    )
"""
# Runs that count for their set (see `run_lists.counts_for_set`), with their figures; and the newest of them. `{which}`
# says of which set, and before which run.
COUNTED_RUNS = """
    SELECT run.id, run.set_name, run.created_at, run.completed_at, run.triggered_by,
           round(found.accuracy * found.judged)::int AS passed, found.judged, found.models
      FROM eval_runs AS run, jsonb_to_record(run.figures) AS found(accuracy float, judged int, models jsonb)
     WHERE run.tenant_id = {tenant} AND run.status = 'completed' AND NOT run.options ? 'trial' AND {which}
"""
COUNTED_RUN = f"{COUNTED_RUNS} ORDER BY run.created_at DESC, run.id DESC LIMIT 1"
# The walk ends with NULL, for which every run would be read.
LATEST = "SELECT newest.* FROM sets, LATERAL ({run}) AS newest WHERE sets.name IS NOT NULL"
# Needs runs as `latest`. A share is compared without dividing: the latest may have judged nothing.
DROPPED = """
    SELECT latest.set_name, scheduled.passed AS passed_before, scheduled.judged AS judged_before, latest.passed,
           latest.judged, scheduled.id AS before_id, latest.id, latest.completed_at, latest.models
      FROM latest, LATERAL ({run}) AS scheduled
     WHERE latest.passed * scheduled.judged < scheduled.passed * latest.judged
"""
BEFORE_LATEST = (
    "run.set_name = latest.set_name AND (run.created_at, run.id) < (latest.created_at, latest.id) AND found.judged > 0"
)
# A set that stays down is told once: by the run that is also worse than the one that counted before it.
WORSE_THAN_BEFORE = "EXISTS (SELECT FROM ({run}) AS one WHERE latest.passed * one.judged < one.passed * latest.judged)"


def dropped_statements(tenant: str) -> tuple[str, str, str]:
    """The parts of a query over sets, for a query with others: `sets`, `latest` and `dropped`."""
    latest = COUNTED_RUN.format(tenant=tenant, which="run.set_name = sets.name")
    scheduled = COUNTED_RUN.format(tenant=tenant, which=f"run.triggered_by = 'scheduled' AND {BEFORE_LATEST}")
    return SETS.format(tenant=tenant), LATEST.format(run=latest), DROPPED.format(run=scheduled)


_SETS, _LATEST, _DROPPED = dropped_statements("%(tenant)s")
_BEFORE = COUNTED_RUN.format(tenant="%(tenant)s", which=BEFORE_LATEST)
LIST_DROPPED = f"WITH RECURSIVE {_SETS}, latest AS ({_LATEST}) {_DROPPED} ORDER BY latest.set_name"
LIST_DROPS = (
    f"WITH latest AS ({COUNTED_RUNS.replace('{tenant}', '%(tenant)s')}) {_DROPPED}"
    f" AND {WORSE_THAN_BEFORE.format(run=_BEFORE)} ORDER BY latest.completed_at DESC LIMIT %(most)s"
)


@dataclass(frozen=True)
class DroppedSet:
    """A set of which a run passed a smaller share than its last scheduled run before."""

    set_name: str
    before: Score
    now: Score
    before_run_id: UUID
    run_id: UUID
    at: datetime
    models: list[str]

    @property
    def least(self) -> float | None:
        """The smallest drop that so many goldens can show."""
        return smallest_regression(self.now.judged)

    @property
    def points(self) -> int:
        return round(((self.before.share or 0.0) - (self.now.share or 0.0)) * 100)


def find_drop(counted: Sequence[RunRow]) -> DroppedSet | None:
    """Whether a set dropped, by its runs that count, the newest first."""
    last = counted[0] if counted else None
    scheduled = next((run for run in counted[1:] if run.triggered_by == "scheduled" and run.score.judged), None)
    if last is None or scheduled is None or not last.completed_at:
        return None
    before, now = scheduled.score, last.score
    if now.share is None or before.share is None or now.passed * before.judged >= before.passed * now.judged:
        return None
    return DroppedSet(str(last.set_name), before, now, scheduled.id, last.id, last.completed_at, last.models or [])


def list_dropped_sets(*, actor: Actor) -> list[DroppedSet]:
    """The sets that dropped since their last scheduled run, by name. One query."""
    return _as_sets(run(LIST_DROPPED, {"tenant": actor.tenant_id}))


def drop_of_run(run_id: UUID, *, actor: Actor) -> DroppedSet | None:
    """The drop of its set that a run brought about, if it did. One query."""
    return next(iter(_list_drops("run.id = %(run)s", actor, run=run_id, most=1)), None)


def list_drops(since: datetime, until: datetime, most: int, *, actor: Actor) -> list[DroppedSet]:
    """The drops that runs brought about in some time, the newest first. One query."""
    within = "run.completed_at >= %(since)s AND run.completed_at < %(until)s"
    return _list_drops(within, actor, since=since, until=until, most=most)


def _list_drops(which: str, actor: Actor, **asked: Any) -> list[DroppedSet]:
    return _as_sets(run(LIST_DROPS.format(which=which), {"tenant": actor.tenant_id, **asked}))


def _as_sets(rows: Iterable[Sequence[Any]]) -> list[DroppedSet]:
    return [
        DroppedSet(name, Score(*before), Score(*now), *rest)
        for name, *figures in rows
        for before, now, rest in [(figures[:2], figures[2:4], figures[4:])]
    ]
