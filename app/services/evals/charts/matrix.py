"""The matrix of a set: what each golden was last found to be, by agent version and by knowledge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import UUID

from app.actor import Actor
from app.db import run
from app.errors import Invalid, NotFound
from app.evals.change import BETTER, WORSE, change_of
from app.evals.stats import count_verdicts
from app.evals.verdict import ERRORED, FAIL, FLAKY, PASS, UNKNOWN
from app.formats.ids import parse_id

# Worst first; what says nothing of the work comes after what passes, and no replay at all comes last.
ORDER = {FAIL: 0, FLAKY: 1, PASS: 2, ERRORED: 3, UNKNOWN: 4}
UNTRIED = len(ORDER)
# A column is a version with whatever context it was replayed in, or that and the knowledge it was replayed with.
_VERSION = "coalesce(v.agent_version_id::text, '')"
_KEYS = {"version": _VERSION, "knowledge": f"concat_ws('|', {_VERSION}, v.context_mode, v.knowledge)"}
_PLAIN = "v.knowledge = ''"
_CONTEXT = "v.context_mode = %(context)s"
_WITH_ROW = "(v.knowledge = '' OR strpos(v.knowledge, %(row)s) > 0)"
LOAD_CELLS = """
SELECT g.id::text, g.title, c.cells
  FROM sessions AS g
  LEFT JOIN LATERAL (
        SELECT json_agg(json_build_array(n.key, n.verdict, n.accuracy, n.replay, n.rejected, n.at)) AS cells
          FROM (SELECT DISTINCT ON (key) {key} AS key, v.verdict, v.accuracy, v.replay_session_id AS replay,
                       v.baseline IS NOT DISTINCT FROM 'rejected' AS rejected, extract(epoch FROM v.ended_at) AS at
                  FROM eval_verdicts AS v
                 WHERE v.tenant_id = %(tenant)s AND v.golden_id = g.id AND v.latest {which}
                 ORDER BY key, v.ended_at DESC, v.run_id) AS n) AS c ON true
 WHERE g.tenant_id = %(tenant)s AND g.golden_set = %(set)s
 ORDER BY lower(g.title), g.id
"""
LOAD_VERSIONS = """
SELECT n.id::text, a.slug, n.version
  FROM agent_versions AS n JOIN agents AS a ON a.tenant_id = n.tenant_id AND a.id = n.agent_id
 WHERE n.tenant_id = %(tenant)s AND n.id = ANY (%(ids)s::uuid[])
"""


class Cell(NamedTuple):
    """The newest verdict on a golden in a column. `rejected`: someone complained about the golden's own recording."""

    verdict: str
    accuracy: float | None
    replay_session_id: str
    rejected: bool
    at: float


@dataclass(frozen=True)
class GoldenRow:
    """A golden and its cells by the key of their column."""

    id: str
    title: str
    cells: dict[str, Cell]


@dataclass(frozen=True)
class Column:
    """An agent version, and of a matrix by knowledge the context mode and the rows that were tried (`+id`, `-id`).
    `counts` leave out goldens with a rejected baseline, which `rejected` counts. `better` and `worse` compare with the
    column `before`."""

    key: str
    id: str | None
    agent: str | None
    version: int | None
    context_mode: str | None = None
    knowledge: tuple[str, ...] = ()
    newest: float = 0.0
    counts: dict[str, int] | None = None
    rejected: int = 0
    before: str | None = None
    better: int = 0
    worse: int = 0

    @property
    def order(self) -> tuple[Any, ...]:
        return self.agent or "", self.version or 0, self.context_mode or "", self.knowledge


@dataclass(frozen=True)
class Matrix:
    set_name: str
    columns: list[Column]
    rows: list[GoldenRow]


@dataclass(frozen=True)
class MatrixFilters:
    """What a matrix shows: columns by `version` or by `knowledge`, of one context mode, or with and without one row."""

    by: str = "version"
    context: str | None = None
    row: UUID | None = None


def load_matrix(set_name: str, filters: MatrixFilters, *, actor: Actor) -> Matrix:
    """The goldens of a set by title, and a column for each version that replayed one of them. Two queries."""
    if filters.by not in _KEYS:
        raise Invalid.of({"by": "Choose version or knowledge."})
    by_knowledge = filters.by == "knowledge" or filters.row is not None
    which = [_CONTEXT] if filters.context else []
    if filters.row is not None:
        which.append(_WITH_ROW)
    elif not by_knowledge:
        which.append(_PLAIN)
    statement = LOAD_CELLS.format(
        key=_KEYS["knowledge" if by_knowledge else "version"], which="".join(f" AND {one}" for one in which)
    )
    found = run(
        statement,
        {"tenant": actor.tenant_id, "set": set_name, "context": filters.context, "row": str(filters.row)},
    )
    if not found:
        raise NotFound(f"There is no golden set {set_name[:60]}.")
    rows = [
        GoldenRow(golden_id, title, {key: Cell._make(cell) for key, *cell in cells or ()})
        for golden_id, title, cells in found
    ]
    return Matrix(set_name, _load_columns(rows, actor), rows)


def _load_columns(rows: Sequence[GoldenRow], actor: Actor) -> list[Column]:
    newest: dict[str, float] = {}
    for row in rows:
        for key, cell in row.cells.items():
            newest[key] = max(cell.at, newest.get(key, 0.0))
    ids = {version for key in newest if (version := key.partition("|")[0])}
    known = (
        {row[0]: row[1:] for row in run(LOAD_VERSIONS, {"tenant": actor.tenant_id, "ids": f"{{{','.join(ids)}}}"})}
        if ids
        else {}
    )
    columns = [_column(key, at, known) for key, at in newest.items()]
    return sorted(columns, key=lambda column: column.order)


def _column(key: str, newest: float, known: dict[str, tuple[str, int]]) -> Column:
    version_id, _, rest = key.partition("|")
    context, _, knowledge = rest.partition("|")
    agent, version = known.get(version_id, (None, None))
    return Column(key, version_id or None, agent, version, context or None, tuple(knowledge.split()), newest)


# What a page shows of it


def newest_columns(matrix: Matrix, limit: int, skip: int = 0) -> Matrix:
    """The matrix with the columns that were replayed last, in their own order."""
    recent = sorted(matrix.columns, key=lambda column: -column.newest)[skip : skip + limit]
    return replace(matrix, columns=sorted(recent, key=lambda column: column.order))


def compare_columns(matrix: Matrix, baseline: str | None = None) -> Matrix:
    """The matrix with counts: how many goldens each column found to be what, and how they changed since the column
    `baseline` or, without one, since the version before of the same agent."""
    keys = {column.key for column in matrix.columns}
    if baseline is not None and baseline not in keys:
        raise Invalid.of({"baseline": "Choose a column of this matrix."})
    columns: list[Column] = []
    for column in matrix.columns:
        before = baseline if baseline is not None else _column_before(column, columns)
        columns.append(_count_column(column, None if before == column.key else before, matrix.rows))
    return replace(matrix, columns=columns)


def _column_before(column: Column, earlier: Sequence[Column]) -> str | None:
    """The same version without the rows that were tried, or the version before with the same knowledge."""
    own = [one for one in earlier if one.agent == column.agent and one.context_mode == column.context_mode]
    if column.knowledge:
        return next((one.key for one in own if one.version == column.version and not one.knowledge), None)
    return next((one.key for one in reversed(own) if one.version != column.version and not one.knowledge), None)


def _count_column(column: Column, before: str | None, rows: Iterable[GoldenRow]) -> Column:
    counted: list[str] = []
    changes: Counter[str | None] = Counter()
    rejected = 0
    for row in rows:
        cell = row.cells.get(column.key)
        if cell is None:
            continue
        if cell.rejected:
            rejected += 1
            continue
        counted.append(cell.verdict)
        earlier = row.cells.get(before) if before is not None else None
        if earlier is not None:
            changes[change_of(earlier.verdict, cell.verdict)] += 1
    return replace(
        column, counts=count_verdicts(counted), rejected=rejected, before=before, better=changes[BETTER],
        worse=changes[WORSE],
    )  # fmt: skip


def differing_rows(matrix: Matrix) -> list[GoldenRow]:
    """The goldens that columns found to be different things."""
    keys = [column.key for column in matrix.columns]
    return [row for row in matrix.rows if len({row.cells[key].verdict for key in keys if key in row.cells}) > 1]


def sort_rows(rows: Iterable[GoldenRow], key: str, *, reverse: bool = False) -> list[GoldenRow]:
    """Goldens by what a column found of them, the worst first; goldens without a verdict last in either direction."""

    def order(row: GoldenRow) -> tuple[float, ...]:
        cell = row.cells.get(key)
        if cell is None:
            return (UNTRIED, 0.0)
        rank, accuracy = ORDER[cell.verdict], cell.accuracy or 0.0
        return (2 - rank, -accuracy) if reverse and rank <= ORDER[PASS] else (rank, accuracy)

    return sorted(rows, key=order)


def tried_rows(columns: Iterable[Column]) -> list[str]:
    """The ids of the knowledge rows that these columns tried."""
    return sorted(
        {sign_and_id[1:] for column in columns for sign_and_id in column.knowledge if parse_id(sign_and_id[1:])}
    )
