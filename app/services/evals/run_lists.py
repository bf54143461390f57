"""Lists of runs, and the accuracy of each set over time."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Float, Integer, cast, func, select

from app.actor import Actor
from app.db import db
from app.db.paging import Page, Slice, read_page
from app.errors import NotFound
from app.evals.stats import wilson
from app.models import Agent, AgentVersion, EvalRun, User

MAX_SPARK_RUNS = 12


@dataclass(frozen=True)
class Score:
    """How many of the judged goldens passed in a run. Goldens with a rejected baseline are not counted."""

    passed: int
    judged: int

    @property
    def share(self) -> float | None:
        return self.passed / self.judged if self.judged else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share."""
        return wilson(self.passed, self.judged)


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
    errored: int | None
    models: list[str] | None
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
    def interval(self) -> tuple[float, float] | None:
        return self.score.interval if self.accuracy is not None and self.judged else None


@dataclass(frozen=True)
class SetTrend:
    """The accuracy of a set's latest runs, oldest first, and the last of them."""

    accuracies: list[float]
    last: RunRow


_ACCURACY = cast(EvalRun.results["accuracy"].astext, Float)
_COLUMNS: tuple[Any, ...] = (
    *(getattr(EvalRun, column.name) for column in fields(RunColumns)),
    _ACCURACY, Agent.slug, AgentVersion.version, User.name, cast(EvalRun.results["judged"].astext, Integer),
    cast(EvalRun.results["verdicts"]["errored"].astext, Integer), EvalRun.results["models"],
    EvalRun.cancel_requested_at.is_not(None), EvalRun.options.has_key("trial"), EvalRun.options.has_key("command_line"),
)  # fmt: skip


def counts_for_set(run: Any = EvalRun) -> Any:
    """Whether a run counts as its set's score: it completed, and was no trial run."""
    return (run.status == "completed") & ~run.options.has_key("trial")


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
    row = db.session.execute(
        _statement().where(EvalRun.tenant_id == actor.tenant_id, EvalRun.id == run_id)
    ).one_or_none()
    if row is None:
        raise NotFound("There is no such eval run in this workspace.")
    return RunRow(*row)


def list_newest_runs(set_name: str, limit: int, *, actor: Actor) -> list[RunRow]:
    """The newest runs of a set, so many of those that speak for it and so many of the others. One query."""
    place = func.row_number().over(
        partition_by=counts_for_set(), order_by=(EvalRun.created_at.desc(), EvalRun.id.desc())
    )
    ranked = (
        select(EvalRun.id, place.label("place"))
        .where(EvalRun.tenant_id == actor.tenant_id, EvalRun.set_name == set_name)
        .subquery()
    )
    rows = db.session.execute(
        _statement()
        .join(ranked, ranked.c.id == EvalRun.id)
        .where(EvalRun.tenant_id == actor.tenant_id, ranked.c.place <= limit)
        .order_by(EvalRun.created_at.desc(), EvalRun.id.desc())
    )
    return [RunRow(*row) for row in rows]


def trends_of(set_names: Sequence[str], *, actor: Actor) -> dict[str, SetTrend]:
    """The accuracy of each set in its latest completed runs, without trial runs. One query."""
    place = func.row_number().over(partition_by=EvalRun.set_name, order_by=(EvalRun.created_at.desc(), EvalRun.id))
    ranked = (
        select(EvalRun.id, place.label("place"))
        .where(
            EvalRun.tenant_id == actor.tenant_id,
            EvalRun.set_name.in_(set_names),
            counts_for_set(),
        )
        .subquery()
    )
    rows = db.session.execute(
        _statement()
        .join(ranked, ranked.c.id == EvalRun.id)
        .where(EvalRun.tenant_id == actor.tenant_id, ranked.c.place <= MAX_SPARK_RUNS)
        .order_by(EvalRun.set_name, ranked.c.place)
    )
    grouped: dict[str, list[RunRow]] = {}
    for row in rows:
        grouped.setdefault(str(row.set_name), []).append(RunRow(*row))
    return {
        name: SetTrend([run.accuracy for run in reversed(runs) if run.accuracy is not None], runs[0])
        for name, runs in grouped.items()
    }
