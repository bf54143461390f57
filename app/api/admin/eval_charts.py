"""The matrix and the trend of a set over JSON."""

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
        None, description="Only replays with this knowledge. Left out: whichever replay was last."
    )
    by: Literal["version", "knowledge"] = Field(
        "version", description="`knowledge`: a column for each version, context and rows that were tried."
    )
    row: Id | None = Field(
        None, description="A knowledge row: columns by knowledge, and only those that tried it or tried nothing."
    )
    limit: Limit | None = Field(None, description="How many goldens, 1 to 100. Left out: all of them.")
    after: Id | None = Field(None, description="The last golden that was read; `next_after` of the answer before.")


class MatrixColumn(Answer):
    """An agent version; all null for replays that name none. `context` and `knowledge` are null where columns are
    versions; `knowledge` lists the rows that were tried, as `+id` and `-id`."""

    id: UUID | None
    agent: str | None
    version: int | None
    context: str | None = Field(None, validation_alias="context_mode")
    knowledge: tuple[str, ...] | None = None


class MatrixGolden(Answer):
    id: UUID
    title: str


class MatrixCell(Answer):
    """The newest replay of a golden in a column. `accuracy` is null where nothing could be judged."""

    verdict: Verdict
    accuracy: float | None
    replay_session_id: UUID
    trials_passed: int
    trials_judged: int = Field(description="Its trials without those that errored or could not be judged.")
    rejected: bool = Field(description="Someone complained about the golden's own recording, so it is not counted.")


class MatrixAnswer(Answer):
    """`cells` has a list for each golden, and in it a cell for each version, null where it was never replayed."""

    set: str
    versions: list[MatrixColumn]
    goldens: list[MatrixGolden]
    cells: list[list[MatrixCell | None]]
    next_after: UUID | None = Field(description="Where the next page begins; null where no golden follows.")


class TrendQuery(Query):
    set: SetName
    agent: str | None = Field(None, max_length=120, description="Slug of an agent: only its goldens.")
    dimension: str | None = Field(None, max_length=200, description="Share of goldens that pass this dimension.")


class TrendPoint(Answer):
    """A completed run. `accuracy` is passed ÷ judged, null where nothing was judged, with its 95 % Wilson interval."""

    run_id: UUID
    at: Moment
    accuracy: float | None
    low: float
    high: float
    passed: int
    judged: int
    agent: str | None
    version: int | None
    trial: bool = Field(description="It does not count as the score of its set.")


class TrendMarker(Answer):
    """A change that may have moved the set. `id` is the knowledge row, the agent version or the golden."""

    at: Moment
    kind: Literal["knowledge", "agent", "golden"]
    id: UUID
    title: str
    number: int | None = Field(description="The version of the row or agent, or the revision of the expectations.")
    who: str | None


class TrendAnswer(Answer):
    """Oldest first."""

    set: str
    points: list[TrendPoint]
    markers: list[TrendMarker]


@admin_route("GET", "/api/admin/evals/matrix", also={404: "There is no such set in this workspace."})
def read_matrix(query: MatrixQuery) -> MatrixAnswer:
    """Read the matrix of a set. The newest verdict on each golden by agent version, of counted and trial runs."""
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


@admin_route("GET", "/api/admin/evals/trend", also={404: "There is no such set in this workspace."})
def read_trend(query: TrendQuery) -> TrendAnswer:
    """Read the trend of a set. Its newest 500 completed runs, and what changed since the first of them: knowledge,
    agent versions, and what goldens are held to."""
    if query.agent and query.dimension:
        raise Invalid.of({"dimension": "Choose an agent or a dimension; not both."})
    found = load_trend(query.set, actor=g.actor, agent=query.agent, dimension=query.dimension)
    return TrendAnswer.model_validate(
        {"set": found.set_name, "points": [_point(one) for one in found.points], "markers": found.markers}
    )


def _point(point: Point) -> dict[str, Any]:
    low, high = point.interval
    return {**vars(point), "accuracy": point.accuracy, "low": low, "high": high}
