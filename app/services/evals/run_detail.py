"""What a run's page shows: what was tested, and the result of each golden."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, text

from app.actor import Actor
from app.db import db
from app.models import Agent, AgentSession, AgentVersion, SharedContext
from app.services.evals import runs
from app.services.evals.golden_lists import can_replay
from app.services.evals.results import (
    Case,
    Progress,
    cases_of,
    explaining_case,
    group_by_golden,
    progress_of,
    verdict_of,
)
from app.services.evals.run_lists import RunRow, get_run_row

# What wants to be read comes first.
ORDER = {"fail": 0, "flaky": 1, "errored": 2, "unknown": 3, None: 4, "pass": 5}
MAX_VERSIONS = 100
MAX_OFFERED = 60


@dataclass(frozen=True)
class GoldenResult:
    """One golden of a run. `replay_id` is the trial that explains the verdict, which is None while trials are open."""

    golden_id: UUID
    title: str
    is_golden: bool
    verdict: str | None
    accuracy: float | None
    reason: str | None
    rejected: bool
    replay_id: UUID
    trials: Sequence[Case]

    @property
    def passed_trials(self) -> int:
        return sum(case.verdict == "pass" for case in self.trials)

    @property
    def running(self) -> bool:
        return any(case.status == "running" for case in self.trials)


@dataclass(frozen=True)
class RunPage:
    run: RunRow
    progress: Progress
    lines: list[GoldenResult]
    pass_power_k: float | None
    options: dict[str, Any]

    @property
    def rejected(self) -> int:
        return sum(line.rejected for line in self.lines)

    def counted(self, verdict: str) -> int:
        return sum(line.verdict == verdict for line in self.lines)


def read_run(run_id: UUID, *, actor: Actor) -> RunPage:
    """A run with a line for each golden, failures first. Four queries."""
    row = get_run_row(run_id, actor=actor)
    run = runs.get_run(run_id, actor=actor)
    cases = cases_of(run_id, actor=actor)
    found = _lines(cases, actor)
    return RunPage(row, progress_of(run, cases), found, run.results.get("pass_power_k"), dict(run.options))


def read_progress(run_id: UUID, *, actor: Actor) -> tuple[RunRow, Progress]:
    """A run and how far it is, without its goldens."""
    run = runs.get_run(run_id, actor=actor)
    return get_run_row(run_id, actor=actor), progress_of(run, cases_of(run_id, actor=actor))


def _lines(cases: Sequence[Case], actor: Actor) -> list[GoldenResult]:
    grouped = group_by_golden(cases)
    titles = {
        str(row.id): row
        for row in db.session.execute(
            select(AgentSession.id, AgentSession.title, AgentSession.golden_set).where(
                AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(grouped)
            )
        )
    }
    lines = [_line(golden_id, group, titles.get(golden_id)) for golden_id, group in grouped.items()]
    return sorted(lines, key=lambda line: (ORDER[line.verdict], line.title.lower(), str(line.golden_id)))


def _line(golden_id: str, group: Sequence[Case], row: Any) -> GoldenResult:
    verdict = verdict_of(group)
    telling = explaining_case(group, verdict)
    judged = [case.accuracy for case in group if case.accuracy is not None]
    return GoldenResult(
        golden_id=UUID(golden_id),
        title=row.title if row else "a golden that was deleted",
        is_golden=row is not None and row.golden_set is not None,
        verdict=verdict,
        accuracy=sum(judged) / len(judged) if judged else None,
        reason=telling.reason,
        rejected=telling.baseline == "rejected",
        replay_id=telling.session_id,
        trials=group,
    )


@dataclass(frozen=True)
class Neighbours:
    """The position of a case in its run, and the cases before and after it as (golden, replay)."""

    place: int
    total: int
    previous: tuple[UUID, UUID] | None
    following: tuple[UUID, UUID] | None


def find_neighbours(run_id: UUID, golden_id: UUID, *, actor: Actor) -> Neighbours | None:
    """The cases beside this one, in the order of the run's page. Two queries."""
    lines = _lines(cases_of(run_id, actor=actor), actor)
    place = next((at for at, line in enumerate(lines) if line.golden_id == golden_id), None)
    if place is None:
        return None
    beside = [lines[at] if 0 <= at < len(lines) else None for at in (place - 1, place + 1)]
    before, after = ((line.golden_id, line.replay_id) if line else None for line in beside)
    return Neighbours(place + 1, len(lines), before, after)


@dataclass(frozen=True)
class OfferedVersion:
    id: UUID
    agent: str
    version: int
    current: bool
    note: str | None
    own: bool


def list_versions(
    *, actor: Actor, set_names: Sequence[str] = (), golden_id: UUID | None = None
) -> list[OfferedVersion]:
    """Versions that the goldens can be replayed with: all of the agents that ran them, newest first, and of every other
    agent that runs here the current one. One query."""
    mine = select(AgentSession.agent_id).where(
        AgentSession.tenant_id == actor.tenant_id,
        AgentSession.id == golden_id if golden_id else AgentSession.golden_set.in_(set_names),
    )
    own, current = Agent.id.in_(mine), AgentVersion.version == Agent.current_version
    rows = db.session.execute(
        select(AgentVersion.id, Agent.slug, AgentVersion.version, current, AgentVersion.note, own)
        .join(Agent, (Agent.tenant_id == AgentVersion.tenant_id) & (Agent.id == AgentVersion.agent_id))
        .where(
            Agent.tenant_id == actor.tenant_id,
            own | current,
            can_replay(),
            Agent.is_system.is_(False),
        )
        .order_by(own.desc(), Agent.slug, AgentVersion.version.desc())
        .limit(MAX_VERSIONS)
    )  # fmt: skip
    return [OfferedVersion(*row) for row in rows]


def list_addable_rows(*, actor: Actor) -> list[tuple[UUID, str, str]]:
    """Knowledge rows that can be tried: id, what they say, their state; the newest first. One query."""
    rows = db.session.execute(
        select(SharedContext.id, func.left(SharedContext.content, 160), SharedContext.state)
        .where(SharedContext.tenant_id == actor.tenant_id, SharedContext.state.in_(("proposed", "active", "inactive")))
        .order_by(SharedContext.created_at.desc(), SharedContext.id)
        .limit(MAX_OFFERED)
    )
    return [(row[0], row[1], row[2]) for row in rows]


def list_removable_rows(
    *, actor: Actor, set_names: Sequence[str] = (), golden_id: UUID | None = None
) -> list[tuple[str, str]]:
    """Knowledge rows in the goldens' prompts: id and content. One query."""
    given = "s.id = :golden" if golden_id else "s.golden_set = ANY(:sets)"
    rows = db.session.execute(
        text(f"""
            SELECT row ->> 'id', max(left(row ->> 'content', 160)) AS said
              FROM sessions AS s,
                   jsonb_array_elements(s.metadata #> '{{golden,snapshot,shared_context,rows}}') AS row
             WHERE s.tenant_id = :tenant AND s.golden_set IS NOT NULL AND {given}
             GROUP BY 1 ORDER BY said LIMIT :most
        """),
        {"tenant": actor.tenant_id, "golden": golden_id, "sets": list(set_names), "most": MAX_OFFERED},
    )
    return [(found[0], found[1] or "") for found in rows]


def row_contents(ids: Sequence[str], *, actor: Actor) -> dict[str, str]:
    """What knowledge rows say, by id."""
    if not ids:
        return {}
    rows = db.session.execute(
        select(SharedContext.id, func.left(SharedContext.content, 160)).where(
            SharedContext.tenant_id == actor.tenant_id, SharedContext.id.in_([UUID(one) for one in ids])
        )
    )
    return {str(row[0]): row[1] for row in rows}
