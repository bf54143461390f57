"""The matrix of a set as a page: a heat map, and the same as a table that sorts without a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import g, redirect, request, url_for

from app.errors import Invalid
from app.evals.stats import smallest_regression
from app.formats.ids import parse_id
from app.models.evals import CONTEXT_MODES
from app.security.access import access
from app.services.evals import golden as eval_golden
from app.services.evals import golden_lists
from app.services.evals.charts.matrix import (
    Cell,
    Column,
    GoldenRow,
    MatrixFilters,
    compare_columns,
    differing_rows,
    load_cells,
    load_matrix,
    sort_rows,
    tried_rows,
)
from app.services.lists.filters import parse_choice
from app.views.evals import bp
from app.views.evals.figures import CellView, matrix_figure
from app.views.format import query, value_line, with_version
from app.views.forms import parse_count
from app.views.htmx import page

MAX_ROWS = 25
MAX_COLUMNS = 10
# Beside other things on the Evals tab there is room for fewer.
CARD_ROWS = 12
CARD_COLUMNS = 8


@dataclass(frozen=True)
class MatrixPage:
    """What the address asks for."""

    set_name: str
    filters: MatrixFilters
    baseline: str | None
    differing: bool
    sort: str
    start: int
    skip: int

    @classmethod
    def from_request(cls) -> MatrixPage:
        given = request.args
        row = given.get("row", "")
        if row and parse_id(row) is None:
            raise Invalid.of({"row": "Enter the ID of a knowledge row."})
        filters = MatrixFilters(
            by=parse_choice("by", given.get("by") or "version", ("version", "knowledge")),
            context=parse_choice("context", given["context"], CONTEXT_MODES) if given.get("context") else None,
            row=parse_id(row),
        )
        return cls(
            set_name=given.get("set", ""),
            filters=filters,
            baseline=given.get("baseline") or None,
            differing=given.get("differ") == "1",
            sort=given.get("sort", ""),
            start=parse_count(given.get("from")) or 0,
            skip=parse_count(given.get("skip")) or 0,
        )

    @property
    def args(self) -> dict[str, Any]:
        """The query of the page without its place in the rows."""
        by = None if self.filters.by == "version" else self.filters.by
        return {
            "set": self.set_name, "by": by, "context": self.filters.context, "row": self.filters.row,
            "baseline": self.baseline, "differ": "1" if self.differing else None, "sort": self.sort,
            "skip": self.skip or None,
        }  # fmt: skip


@bp.get("/matrix")
@access("admin")
def show_matrix() -> Any:
    """The goldens of a set by agent version or by knowledge; as a card, only the heat map. Five queries at most."""
    if not request.args.get("set"):
        return redirect(url_for("evals.index"), 303)
    asked = MatrixPage.from_request()
    as_card = request.args.get("part") == "card"
    shown = load_page(asked, *((CARD_ROWS, CARD_COLUMNS) if as_card else (MAX_ROWS, MAX_COLUMNS)))
    if as_card:
        return page("evals/matrix.html", "evals/_matrix_card.html", **shown)
    sets = [one.name for one in eval_golden.list_sets(actor=g.actor)]
    return page("evals/matrix.html", "evals/_matrix.html", sets=sets, **shown)


def load_page(asked: MatrixPage, most_rows: int, most_columns: int) -> dict[str, Any]:
    found = load_matrix(asked.set_name, asked.filters, actor=g.actor, limit=most_columns, skip=asked.skip)
    matrix = compare_columns(found, asked.baseline)
    differing = differing_rows(matrix.rows)
    rows = _sorted(differing if asked.differing else matrix.rows, asked.sort, matrix.columns)
    start = asked.start if asked.start < len(rows) else 0
    shown = rows[start : start + most_rows]
    cells = load_cells(matrix, shown, actor=g.actor) if shown and matrix.columns else {}
    contents = golden_lists.row_contents(tried_rows(matrix.columns), actor=g.actor)
    several = len({column.agent for column in matrix.columns}) > 1
    names = {column.key: _column_name(column, several, contents) for column in matrix.columns}
    own = url_for("evals.show_matrix")
    sorts = {key: _sort_link(own, asked, key) for key in ("golden", *names)}
    diffs = f"{url_for('evals.index')}/diff"
    grid = [(row, [_cell_view(diffs, row, cells.get((row.id, key))) for key in names]) for row in shown]
    most_judged = max((column.score.judged for column in matrix.columns), default=0)
    skipped, started = asked.skip + most_columns, start + most_rows
    return {
        "asked": asked,
        "args": asked.args,
        "own": own,
        "columns": matrix.columns,
        "column_count": matrix.column_count,
        "names": names,
        "sorts": sorts,
        "grid": grid,
        "total": len(rows),
        "most_judged": most_judged,
        "least": smallest_regression(most_judged),
        "goldens": len(matrix.rows),
        "differing": len(differing),
        "older": skipped if skipped < matrix.column_count else None,
        "newer": max(asked.skip - most_columns, 0) if asked.skip else None,
        "following": started if started < len(rows) else None,
        "previous": max(start - most_rows, 0) if start else None,
        "tried": contents,
        "figure": matrix_figure(matrix.columns, grid, names, sorts),
    }


def _cell_view(diffs: str, row: GoldenRow, cell: Cell | None) -> CellView | None:
    """A cell with the address of its diff."""
    return None if cell is None else CellView(cell, f"{diffs}/{row.id}/{cell.replay_session_id}")


def _sorted(rows: Sequence[GoldenRow], sort: str, columns: Sequence[Column]) -> list[GoldenRow]:
    places = {column.key: place for place, column in enumerate(columns)}
    place = places.get(sort.removeprefix("-"))
    if place is not None:
        return sort_rows(rows, place, reverse=sort.startswith("-"))
    return list(reversed(rows)) if sort == "-golden" else list(rows)


def _sort_link(own: str, asked: MatrixPage, key: str) -> tuple[str, str | None]:
    """The address that sorts by a column, and how the page is sorted by it now. A second click turns the order."""
    now = asked.sort or "golden"
    state = {key: "ascending", f"-{key}": "descending"}.get(now)
    return query(own, asked.args, sort=f"-{key}" if now == key else key), state


def _column_name(column: Column, several: bool, contents: Mapping[str, str]) -> str:
    """`v4`, `deal-analyst v4` where there are several agents, `v4 live`, `v4 frozen + “Use LTM EBITDA”`."""
    words = [with_version(column.agent if several else None, column.version) or "no version"]
    words += [column.context_mode] if column.context_mode else []
    for sign, row in ((one[0], one[1:]) for one in column.knowledge):
        words.append(f"{'+' if sign == '+' else '−'} “{value_line(contents.get(row, 'a deleted row'), 40)}”")
    return " ".join(words)
