"""A set's matrix and trend over the API."""

from typing import Any, Literal
from uuid import UUID

from flask import g
from pydantic import Field

from app.api.admin import admin_route
from app.api.kit.fields import Answer, Id, Limit, Moment, Query, SetName
from app.errors import Invalid
from app.services.evals.charts.matrix import Cell, Column, MatrixFilters, load_cells, load_matrix
from app.services.evals.charts.trend import Point, load_trend

Verdict = Literal["pass", "fail", "flaky", "errored", "unknown"]


class MatrixQuery(Query):
    set: SetName
    context: Literal["frozen", "live"] | None = Field(
        None, description="Only replays with this knowledge. Defaults to the latest replay of either kind."
    )
    by: Literal["version", "knowledge"] = Field(
        "version", description="`knowledge` gives a column per version, context and tried rows."
    )
    row: Id | None = Field(
        None, description="A knowledge row. Returns columns by knowledge that tried this row or none."
    )
    limit: Limit | None = Field(None, description="Goldens per page, 1 to 100. Defaults to all.")
    after: Id | None = Field(None, description="`next_after` of the previous page.")


class MatrixColumn(Answer):
    """An agent version. All fields are null for replays without one. `context` and `knowledge` are null when columns
    are versions. `knowledge` lists tried rows as `+id` and `-id`."""

    id: UUID | None
    agent: str | None
    version: int | None
    context: str | None = Field(None, validation_alias="context_mode")
    knowledge: tuple[str, ...] | None = None


class MatrixGolden(Answer):
    id: UUID
    title: str


class MatrixCell(Answer):
    """The newest replay of a golden in a column. `accuracy` is null if nothing could be judged."""

    verdict: Verdict
    accuracy: float | None
    replay_session_id: UUID
    trials_passed: int
    trials_judged: int = Field(description="Trials that were judged, without errored and unknown ones.")
    rejected: bool = Field(description="Not counted, because the golden's own recording got a complaint.")


class MatrixAnswer(Answer):
    """`cells` has a list per golden with a cell per column, null if never replayed."""

    set: str
    versions: list[MatrixColumn]
    goldens: list[MatrixGolden]
    cells: list[list[MatrixCell | None]]
    next_after: UUID | None = Field(description="Start of the next page. Null on the last page.")


class TrendQuery(Query):
    set: SetName
    agent: str | None = Field(None, max_length=120, description="Only goldens of the agent with this slug.")
    dimension: str | None = Field(None, max_length=200, description="Share of goldens that pass this dimension only.")


class TrendPoint(Answer):
    """A completed run. `accuracy` is passed ÷ judged with its 95% Wilson interval, null if nothing was judged."""

    run_id: UUID
    at: Moment
    accuracy: float | None
    low: float
    high: float
    passed: int
    judged: int
    agent: str | None
    version: int | None
    trial: bool = Field(description="Trial runs don't change the set's score.")


class TrendMarker(Answer):
    """A change that may explain a move. `id` is the knowledge row, agent version or golden."""

    at: Moment
    kind: Literal["knowledge", "agent", "golden"]
    id: UUID
    title: str
    number: int | None = Field(description="Version of the row or agent, or revision of the expectations.")
    who: str | None


class TrendAnswer(Answer):
    """Oldest first."""

    set: str
    points: list[TrendPoint]
    markers: list[TrendMarker]


@admin_route("GET", "/api/admin/evals/matrix", also={404: "This workspace has no such set."})
def read_matrix(query: MatrixQuery) -> MatrixAnswer:
    """Get a set's matrix. The newest verdict per golden and agent version, trial runs included."""
    filters = MatrixFilters(query.by, query.context, query.row)
    more = query.limit + 1 if query.limit else None
    found = load_matrix(query.set, filters, actor=g.actor, most_rows=more, after=query.after)
    rows = found.rows[: query.limit]
    cells = load_cells(found, rows, actor=g.actor)
    named = found.filters.by_knowledge
    return MatrixAnswer(
        set=found.set_name,
        versions=[_matrix_column(column, named=named) for column in found.columns],
        goldens=[MatrixGolden.model_validate(golden) for golden in rows],
        cells=[[_matrix_cell(cells.get((golden.id, one.key))) for one in found.columns] for golden in rows],
        next_after=UUID(rows[-1].id) if len(found.rows) > len(rows) else None,
    )


def _matrix_column(column: Column, *, named: bool) -> MatrixColumn:
    answer: MatrixColumn = MatrixColumn.model_validate(column)
    return answer if named else answer.model_copy(update={"knowledge": None})


def _matrix_cell(cell: Cell | None) -> MatrixCell | None:
    return None if cell is None else MatrixCell.model_validate(cell)


@admin_route("GET", "/api/admin/evals/trend", also={404: "This workspace has no such set."})
def read_trend(query: TrendQuery) -> TrendAnswer:
    """Get a set's trend. Its newest 500 completed runs, with changes to knowledge, agent versions and expectations
    in that time."""
    if query.agent and query.dimension:
        raise Invalid.of({"dimension": "Choose an agent or a dimension, not both."})
    found = load_trend(query.set, actor=g.actor, agent=query.agent, dimension=query.dimension)
    return TrendAnswer.model_validate(
        {"set": found.set_name, "points": [_point(one) for one in found.points], "markers": found.markers}
    )


def _point(point: Point) -> dict[str, Any]:
    low, high = point.interval
    return {**vars(point), "accuracy": point.accuracy, "low": low, "high": high}
