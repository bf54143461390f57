"""Runs as lists and pages show them, the accuracy of each set over time, and what a run can be started with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Float, Integer, cast, func, select, text

from app.actor import Actor
from app.db import db
from app.db.paging import Page, Slice, read_page
from app.db.queries import ASKING, NAMES, Query
from app.errors import NotFound
from app.evals.change import BETTER, NEW, WORSE
from app.evals.rubric import NOT_JUDGED
from app.evals.stats import Score
from app.evals.verdict import FAIL, FLAKY, PASS
from app.models import Agent, AgentSession, AgentVersion, EvalRun, SharedContext, User
from app.services.evals import golden, runs
from app.services.evals.baselines import Baseline
from app.services.evals.golden_lists import can_replay
from app.services.evals.judging.queue import NOTHING_LEFT
from app.services.evals.results import Case, Progress, cases_of, golden_result, group_by_golden, progress_of

MAX_SPARK_RUNS = 12
MAX_VERSIONS = 100
MAX_OFFERED = 60
# What wants to be read comes first: what got worse, then what is not right, then what got better.
VERDICT_ORDER = {"fail": 0, "flaky": 1, "errored": 2, "unknown": 3, None: 4, "pass": 5}
CHANGE_ORDER = {BETTER: 0, NEW: 1}


@dataclass(frozen=True)
class RunColumns:
    """The columns of a run that every list and the API show."""

    id: UUID
    name: str
    set_name: str | None
    agent_id: UUID | None
    agent_version_id: UUID | None
    triggered_by: str
    status: str
    context_mode: str
    trials: int
    ref: str | None
    started_at: datetime
    completed_at: datetime | None
    golden_session_count: int
    passed_count: int
    failed_count: int
    created_by: UUID | None


@dataclass(frozen=True)
class RunRow(RunColumns):
    """A run in a list, with what its results and its neighbours say."""

    accuracy: float | None
    agent: str | None
    agent_version: int | None
    person: str | None
    judged: int | None
    verdicts: dict[str, int] | None
    models: list[str] | None
    pass_power_k: float | None
    stopping: bool
    trial: bool
    command_line: bool

    @property
    def open(self) -> bool:
        return self.completed_at is None

    @property
    def score(self) -> Score:
        judged = self.judged or 0
        return Score(round((self.accuracy or 0.0) * judged), judged)

    @property
    def rejected(self) -> int:
        """How many judged goldens are not in the accuracy, because their baseline was rejected."""
        counts = self.verdicts or {}
        return sum(counts.get(verdict, 0) for verdict in (PASS, FAIL, FLAKY)) - (self.judged or 0)


@dataclass(frozen=True)
class SetTrend:
    """The accuracy of a set's latest runs, oldest first, and the last of them."""

    accuracies: list[float]
    last: RunRow

    @classmethod
    def of_runs(cls, newest: Sequence[RunRow]) -> SetTrend | None:
        """From the latest runs, newest first; None without any."""
        shares = [run.accuracy for run in reversed(newest) if run.accuracy is not None]
        return cls(shares, newest[0]) if newest else None

    @property
    def change(self) -> int | None:
        """In points, from the run before to the latest."""
        found = self.accuracies[-2:]
        return round((found[1] - found[0]) * 100) if len(found) == 2 else None


_COLUMNS: tuple[Any, ...] = (
    *(getattr(EvalRun, column.name) for column in fields(RunColumns)),
    cast(EvalRun.figures["accuracy"].astext, Float), Agent.slug, AgentVersion.version, User.name,
    cast(EvalRun.figures["judged"].astext, Integer),
    EvalRun.figures["verdicts"], EvalRun.figures["models"], cast(EvalRun.figures["pass_power_k"].astext, Float),
    EvalRun.cancel_requested_at.is_not(None), EvalRun.options.has_key("trial"), EvalRun.options.has_key("command_line"),
)  # fmt: skip


def counts_for_set() -> Any:
    """Whether a run counts as its set's score: it completed, and was no trial run."""
    return (EvalRun.status == "completed") & ~EvalRun.options.has_key("trial")


def _statement() -> Any:
    return (
        select(*_COLUMNS)
        .outerjoin(Agent, (Agent.tenant_id == EvalRun.tenant_id) & (Agent.id == EvalRun.agent_id))
        .outerjoin(AgentVersion, AgentVersion.id == EvalRun.agent_version_id)
        .outerjoin(User, (User.id == EvalRun.created_by) & User.is_system.is_(False))
    )


def list_runs(page: Page, *, actor: Actor, set_name: str | None = None) -> Slice[RunRow]:
    """One page of the runs, newest first. Two queries."""
    where: list[Any] = [EvalRun.tenant_id == actor.tenant_id]
    if set_name is not None:
        where.append(EvalRun.set_name == set_name)
    found = read_page(_statement(), page, at=EvalRun.created_at, id=EvalRun.id, where=where)
    return found.map(lambda row: RunRow(*row))


def get_run_row(run_id: UUID, *, actor: Actor) -> RunRow:
    """One run as lists show it. One query."""
    wanted = _statement().where(EvalRun.tenant_id == actor.tenant_id, EvalRun.id == run_id)
    row = db.session.execute(wanted).one_or_none()
    if row is None:
        raise NotFound("There is no such eval run in this workspace.")
    return RunRow(*row)


def get_run_rows(run_ids: Collection[UUID], *, actor: Actor) -> dict[UUID, RunRow]:
    """These runs as lists show them, as far as they were not deleted. One query, none for none."""
    if not run_ids:
        return {}
    wanted = _statement().where(EvalRun.tenant_id == actor.tenant_id, EvalRun.id.in_(run_ids))
    return {row.id: row for row in (RunRow(*found) for found in db.session.execute(wanted))}


def get_run_with_row(run_id: UUID, *, actor: Actor) -> tuple[EvalRun, RunRow]:
    """A run as it is stored, and as lists show it. One query."""
    wanted = _statement().add_columns(EvalRun).where(EvalRun.tenant_id == actor.tenant_id, EvalRun.id == run_id)
    found = db.session.execute(wanted).one_or_none()
    if found is None:
        raise NotFound("There is no such eval run in this workspace.")
    *row, stored = found
    return stored, RunRow(*row)


def list_newest_runs(set_name: str, limit: int, *, actor: Actor) -> list[RunRow]:
    """The newest runs of a set: so many that count for it and were scheduled, so many that count and were not, and the
    same of the others. One query."""
    kinds = [counts_for_set(), EvalRun.triggered_by == "scheduled"]
    wanted = _select_newest(limit, kinds, EvalRun.set_name == set_name, actor)
    return [RunRow(*row) for row in db.session.execute(wanted)]


def trends_of(set_names: Sequence[str], *, actor: Actor) -> dict[str, SetTrend]:
    """The accuracy of each set in its latest completed runs, without trial runs. One query."""
    grouped: dict[str, list[RunRow]] = defaultdict(list)
    for run in (RunRow(*row) for row in find_trends(actor, names=list(set_names))):
        grouped[str(run.set_name)].append(run)
    return {name: trend for name, runs in grouped.items() if (trend := SetTrend.of_runs(runs))}


@Query
def find_trends() -> Any:
    of_sets = (EvalRun.set_name == NAMES) & counts_for_set()
    return _select_newest(MAX_SPARK_RUNS, EvalRun.set_name, of_sets, ASKING)


def _select_newest(limit: int, partition_by: Any, where: Any, actor: Actor) -> Any:
    """The newest runs, at most `limit` of each part."""
    order = EvalRun.created_at.desc(), EvalRun.id.desc()
    place = func.row_number().over(partition_by=partition_by, order_by=order)
    ranked = select(EvalRun.id, place.label("place")).where(EvalRun.tenant_id == actor.tenant_id, where).subquery()
    return (
        _statement()
        .join(ranked, ranked.c.id == EvalRun.id)
        .where(EvalRun.tenant_id == actor.tenant_id, ranked.c.place <= limit)
        .order_by(*order)
    )


def list_set_rows(*, actor: Actor) -> list[dict[str, Any]]:
    """The sets by name, each with its latest run and the one under way, if there are. Three queries."""
    sets = golden.list_sets(actor=actor)
    names = [one.name for one in sets]
    courses = trends_of(names, actor=actor) if names else {}
    running = golden.open_runs(names, actor=actor)
    return [
        {
            **vars(one),
            "why_not": one.why_not,
            "course": courses.get(one.name),
            "score": courses[one.name].last.score if one.name in courses else None,
            "under_way": running.get(one.name),
        }
        for one in sets
    ]


# One run: what was tested, and the result of each golden


def read_progress(run_id: UUID, *, actor: Actor) -> tuple[RunRow, Progress]:
    """A run and how far it is, without its goldens."""
    run = runs.get_run(run_id, actor=actor)
    return get_run_row(run_id, actor=actor), progress_of(run, cases_of(run_id, actor=actor))


def golden_results(cases: Sequence[Case], *, actor: Actor, baseline: Baseline | None = None) -> list[dict[str, Any]]:
    """A line for each golden of a run, the worst first, with what the baseline found of it. One query."""
    grouped = group_by_golden(cases)
    rows = db.session.execute(
        select(AgentSession.id, AgentSession.title, AgentSession.golden_set).where(
            AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(grouped)
        )
    )
    known = {str(row.id): row for row in rows}
    lines = [
        (result := golden_result(group))
        | {
            "golden_id": golden_id,
            "title": row.title if row else "a golden that was deleted",
            "is_golden": row is not None and row.golden_set is not None,
            "running": any(case.status == "running" for case in group),
            "cases": group,
            "not_judged": any(case.judge_status == NOT_JUDGED and case.judge_error != NOTHING_LEFT for case in group),
            "before": baseline.found.get(golden_id) if baseline else None,
            "change": baseline.change_of(golden_id, result["verdict"]) if baseline else None,
        }
        for golden_id, group in grouped.items()
        for row in [known.get(golden_id)]
    ]
    return sorted(lines, key=_line_order)


def _line_order(line: dict[str, Any]) -> tuple[Any, ...]:
    change = line["change"]
    accuracy = 1.0 if line["overall_accuracy"] is None else line["overall_accuracy"]
    order = VERDICT_ORDER[line["verdict"]], CHANGE_ORDER.get(change, len(CHANGE_ORDER)), accuracy
    return change != WORSE, *order, line["title"].lower(), line["golden_id"]


def find_neighbours(
    run_id: UUID, golden_id: UUID, *, actor: Actor, baseline: Baseline | None = None
) -> dict[str, Any] | None:
    """The place of a case in the order of the run's page, and the lines beside it. Two queries."""
    lines = golden_results(cases_of(run_id, actor=actor), actor=actor, baseline=baseline)
    place = next((at for at, line in enumerate(lines, 1) if line["golden_id"] == str(golden_id)), None)
    if place is None:
        return None
    beside = [None, *lines, None]
    return {"place": place, "total": len(lines), "previous": beside[place - 1], "following": beside[place + 1]}


# What a run can be started with


def list_versions(*, actor: Actor, set_names: Sequence[str] = (), golden_id: UUID | None = None) -> list[Any]:
    """Versions to replay with: all of the goldens' own agents, and the current ones of every other. One query."""
    mine = select(AgentSession.agent_id).where(
        AgentSession.tenant_id == actor.tenant_id,
        AgentSession.id == golden_id if golden_id else AgentSession.golden_set.in_(set_names),
    )
    own, current = Agent.id.in_(mine), AgentVersion.version == Agent.current_version
    rows = db.session.execute(
        select(
            AgentVersion.id, Agent.slug.label("agent"), AgentVersion.version, current.label("current"), own.label("own")
        )
        .join(Agent, (Agent.tenant_id == AgentVersion.tenant_id) & (Agent.id == AgentVersion.agent_id))
        .where(
            Agent.tenant_id == actor.tenant_id,
            own | current,
            AgentVersion.version > 0,
            can_replay(),
            Agent.is_system.is_(False),
        )
        .order_by(own.desc(), Agent.slug, AgentVersion.version.desc())
        .limit(MAX_VERSIONS)
    )
    return list(rows)


def list_addable_rows(*, actor: Actor) -> list[Any]:
    """Knowledge rows that can be tried: id, what they say, their state; the newest first. One query."""
    rows = db.session.execute(
        select(SharedContext.id, func.left(SharedContext.content, 160), SharedContext.state)
        .where(
            SharedContext.tenant_id == actor.tenant_id,
            SharedContext.state.in_(("proposed", "active", "inactive")),
            ~SharedContext.meta.has_key("retires"),
        )
        .order_by(SharedContext.created_at.desc(), SharedContext.id)
        .limit(MAX_OFFERED)
    )
    return list(rows)


def list_removable_rows(*, actor: Actor, set_names: Sequence[str] = (), golden_id: UUID | None = None) -> list[Any]:
    """Knowledge rows in the goldens' prompts: id and content. One query."""
    given = "s.id = :golden" if golden_id else "s.golden_set = ANY(:sets)"
    rows = db.session.execute(
        text(f"""
            SELECT row ->> 'id', coalesce(max(left(row ->> 'content', 160)), '') AS said
              FROM sessions AS s,
                   jsonb_array_elements(s.metadata #> '{{golden,snapshot,shared_context,rows}}') AS row
             WHERE s.tenant_id = :tenant AND s.golden_set IS NOT NULL AND {given}
             GROUP BY 1 ORDER BY said LIMIT :most
        """),
        {"tenant": actor.tenant_id, "golden": golden_id, "sets": list(set_names), "most": MAX_OFFERED},
    )
    return list(rows)
