"""Figures for the browser to draw. Their colours are names of our CSS tokens, which charts.js resolves by theme."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

from app.evals.verdict import ERRORED, FAIL, FLAKY, PASS, UNKNOWN
from app.services.evals.charts.matrix import Cell, Column, GoldenRow
from app.services.evals.charts.trend import Marker, Point
from app.views.format import day, percent, score, value_line

GLYPHS = {PASS: "✓", FAIL: "✗", FLAKY: "~", ERRORED: "!", UNKNOWN: "?"}
STATES = {PASS: "pass", FAIL: "fail", FLAKY: "warn", ERRORED: "none", UNKNOWN: "none"}
# The place of each verdict in the colour scale.
_SHADES = {FAIL: 0, FLAKY: 1, ERRORED: 2, UNKNOWN: 2, PASS: 3}
_FILLS = ("var(--u-fail-fill)", "var(--u-warn-fill)", "var(--u-none-fill)", "var(--u-pass-fill)")
MARKER_WORDS = {
    "knowledge": ("knowledge change", "knowledge changes"),
    "agent": ("agent version", "agent versions"),
    "golden": ("edited golden", "edited goldens"),
}
_MARKER_LINES = {
    "knowledge": {"color": "var(--u-ink-3)", "dash": "dot"},
    "agent": {"color": "var(--u-accent)", "dash": "solid"},
    "golden": {"color": "var(--u-warn-bar)", "dash": "dash"},
}
_INK, _FAINT = "var(--u-ink)", "var(--u-ink-3)"
MAX_LABEL = 34
MAX_NAME = 24
MAX_NAME_LINES = 3
LINE_HEIGHT = 15
# Where the lines of changes end, in percent.
MARKER_TOP = 105


class CellView(NamedTuple):
    """A cell of the matrix, and the address of its diff."""

    cell: Cell
    link: str

    @property
    def state(self) -> str:
        return STATES[self.cell.verdict]

    @property
    def figure(self) -> str:
        """`0.97`; of a flaky golden how many trials passed, `2/3`; a word where nothing was judged."""
        if self.cell.verdict == FLAKY and self.cell.trials_judged:
            return f"{self.cell.trials_passed}/{self.cell.trials_judged}"
        judged = self.cell.verdict in (PASS, FAIL, FLAKY)
        return score(self.cell.accuracy) if judged else self.cell.verdict

    @property
    def text(self) -> str:
        """`✓ 0.97`, `~ 2/3`, `! errored`."""
        return f"{GLYPHS[self.cell.verdict]} {self.figure}".rstrip()


GridLine = tuple[GoldenRow, Sequence[CellView | None]]


def header_lines(column: Column) -> tuple[str, str]:
    """`✓ 5 ✗ 2`, and `+1 −2` where there is a column to compare with."""
    told = " ".join(f"{GLYPHS[verdict]} {column.counts[verdict]}" for verdict in GLYPHS if column.counts[verdict])
    return told, f"+{column.better} −{column.worse}" if column.before is not None else ""


def matrix_figure(
    columns: Sequence[Column],
    grid: Sequence[GridLine],
    names: Mapping[str, str],
    sorts: Mapping[str, tuple[str, str | None]],
) -> dict[str, Any]:
    """A heat map, the first row on top. A click on a cell opens its diff, one on a header sorts."""
    import plotly.graph_objects as go

    lines = [cells for _, cells in grid]
    titles = [_wrap(names[column.key]) for column in columns]
    more = LINE_HEIGHT * (max(map(len, titles), default=1) - 1)
    heat = go.Heatmap(
        x=list(range(len(columns))),
        y=list(range(len(grid))),
        z=[[None if one is None else _SHADES[one.cell.verdict] for one in line] for line in lines],
        text=[["" if one is None else one.text for one in line] for line in lines],
        customdata=[["" if one is None else one.link for one in line] for line in lines],
        # charts.js makes it of what `meta` says of rows and columns, which is shorter to send.
        hoverinfo="text",
        texttemplate="%{text}",
        textfont={"color": _INK, "size": 12},
        colorscale=[step for place, fill in enumerate(_FILLS) for step in ((place / 4, fill), ((place + 1) / 4, fill))],
        zmin=-0.5,
        zmax=3.5,
        showscale=False,
        xgap=3,
        ygap=3,
    )
    layout = _layout(
        margin={"l": 210, "r": 4, "t": 60 + more, "b": 4},
        height=72 + more + 30 * len(grid),
        xaxis={
            **_AXIS,
            "range": [-0.5, len(columns) - 0.5],
            "showgrid": False,
            "showline": False,
            "side": "top",
            "tickvals": list(range(len(columns))),
            "ticktext": [_header(column, title) for column, title in zip(columns, titles, strict=True)],
            "tickfont": {"color": "var(--u-ink-2)", "size": 11.5},
        },
        yaxis={
            **_AXIS,
            "range": [len(grid) - 0.5, -0.5],
            "showgrid": False,
            "showline": False,
            "ticklabelstandoff": 8,
            "tickvals": list(range(len(grid))),
            "ticktext": [_escape(value_line(row.title, MAX_LABEL)) for row, _ in grid],
            "tickfont": {"color": _INK, "size": 12},
        },
        meta={
            "links": [sorts[column.key][0] for column in columns],
            "column": _column_width(names.values()),
            "rows": [_row_name(row) for row, _ in grid],
            "columns": [_escape(names[column.key]) for column in columns],
        },
    )
    return _plain(go.Figure(heat, layout))


def _column_width(names: Iterable[str]) -> int:
    """Room in pixels for the longest name of a column."""
    return max([62, *(10 + 6 * min(len(name), MAX_NAME) for name in names)])


def _row_name(row: GoldenRow) -> str:
    apart = "<br>baseline was rejected, not counted" if row.rejected else ""
    return _escape(row.title[:200]) + apart


def _wrap(name: str) -> list[str]:
    """A column's name on a few lines, so that those that begin alike can be told apart."""
    return wrap(name, MAX_NAME, max_lines=MAX_NAME_LINES, placeholder=" …")


def _header(column: Column, title: Sequence[str]) -> str:
    """What a column is called, its counts and how it changed."""
    lines = [*map(_escape, title), *header_lines(column)]
    return "<br>".join(line for line in lines if line)


def trend_figure(
    points: Sequence[Point], gaps: Sequence[Sequence[Marker]], runs: Sequence[str], changes: Sequence[str]
) -> dict[str, Any]:
    """Runs at equal distances, counted ones joined by a line with their interval as a band, trial runs hollow. A click
    on a point opens its run, one on a marker what changed."""
    import plotly.graph_objects as go

    judged = [(place, point) for place, point in enumerate(points) if point.accuracy is not None]
    counted = [one for one in judged if not one[1].trial]
    trials = [one for one in judged if one[1].trial]
    figure = go.Figure(
        [
            _edge(counted, 1),
            _edge(counted, 0, fill="tonexty", fillcolor="var(--u-accent-soft)"),
            _dots(counted, runs, "lines+markers", {"size": 7, "color": "var(--u-accent)"}),
            _dots(trials, runs, "markers", _HOLLOW),
            *(trace for kind in MARKER_WORDS for trace in _marker_traces(kind, gaps, changes)),
        ],
        _layout(
            margin={"l": 44, "r": 14, "t": 8, "b": 26},
            height=290,
            xaxis={**_AXIS, "range": [-0.6, len(points) - 0.4], "showgrid": False, **_day_ticks(points)},
            yaxis={**_AXIS, "range": [0, 114], "showline": False, **_PERCENT_TICKS},
            meta={},
        ),
    )
    return _plain(figure)


_PERCENTS = (0, 25, 50, 75, 100)
_PERCENT_TICKS = {"tickvals": list(_PERCENTS), "ticktext": [f"{share}%" for share in _PERCENTS]}
_HOLLOW = {"size": 8, "color": "var(--u-surface)", "line": {"color": "var(--u-accent)", "width": 1.6}}


def _edge(judged: Sequence[tuple[int, Point]], side: int, **more: Any) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", **more,
        "x": [place for place, _ in judged], "y": [point.interval[side] * 100 for _, point in judged],
    }  # fmt: skip


def _dots(
    judged: Sequence[tuple[int, Point]], runs: Sequence[str], mode: str, marker: dict[str, Any]
) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": mode, "marker": marker, "line": {"color": "var(--u-accent)", "width": 2},
        "x": [place for place, _ in judged], "y": [(point.accuracy or 0.0) * 100 for _, point in judged],
        "customdata": [runs[place] for place, _ in judged], "hovertext": [_point_hover(point) for _, point in judged],
        "hovertemplate": "%{hovertext}<extra></extra>", "cliponaxis": False,
    }  # fmt: skip


def _point_hover(point: Point) -> str:
    low, high = point.interval
    version = f"<br>{_escape(point.agent)} v{point.version}" if point.agent and point.version else ""
    trial = "<br>trial run" if point.trial else ""
    share = f"{point.passed} of {point.judged} pass, {percent(point.accuracy or 0.0)}"
    return f"{share}<br>95% CI {low * 100:.0f}–{high * 100:.0f}%{version}<br>{day(point.at)}{trial}"


def _marker_traces(kind: str, gaps: Sequence[Sequence[Marker]], changes: Sequence[str]) -> list[dict[str, Any]]:
    """A line wherever something of a kind changed between two runs, with a short label that leads to what changed."""
    found = [
        (_marker_place(place, kind, markers), own, changes[place])
        for place, markers in enumerate(gaps)
        if (own := [marker for marker in markers if marker.kind == kind])
    ]
    if not found:
        return []
    labels = [_marker_label(kind, own) for _, own, _ in found]
    lines = {
        "type": "scatter", "mode": "lines", "line": {"width": 1.2, **_MARKER_LINES[kind]}, "hoverinfo": "skip",
        "x": [x for place, _, _ in found for x in (place, place, None)], "y": [0, MARKER_TOP, None] * len(found),
    }  # fmt: skip
    ends = {
        "type": "scatter", "mode": "markers+text", "textposition": "top center", "cliponaxis": False,
        "marker": {"size": 5, "color": _MARKER_LINES[kind]["color"]}, "text": labels,
        "textfont": {"size": 10.5, "color": "var(--u-accent-text)" if kind == "agent" else "var(--u-ink-2)"},
        "x": [place for place, _, _ in found], "y": [MARKER_TOP] * len(found),
        "hovertext": [_marker_hover(kind, own) for _, own, _ in found], "hovertemplate": "%{hovertext}<extra></extra>",
        "customdata": [f"{link}&kind={kind}" for _, _, link in found],
        # For a phone: `v4`, or only how many.
        "meta": {"short": [label.partition(" ")[0] for label in labels]},
    }  # fmt: skip
    return [lines, ends]


def _marker_place(place: int, kind: str, markers: Sequence[Marker]) -> float:
    """Between two runs, beside what else changed there."""
    kinds = [one for one in MARKER_WORDS if any(marker.kind == one for marker in markers)]
    return place - 1 + (kinds.index(kind) + 1) / (len(kinds) + 1)


def _marker_label(kind: str, markers: Sequence[Marker]) -> str:
    """`v4`, `2 rules`, `1 edit`: there is little room."""
    if kind == "agent":
        return f"v{markers[-1].number}"
    word = "rule" if kind == "knowledge" else "edit"
    return f"{len(markers)} {word}{'' if len(markers) == 1 else 's'}"


def _marker_hover(kind: str, markers: Sequence[Marker]) -> str:
    one, many = MARKER_WORDS[kind]
    titles = [_escape(value_line(marker.title, 60)) for marker in markers[:4]]
    more = [f"{len(markers) - 4} more"] if len(markers) > 4 else []
    return "<br>".join([f"{len(markers)} {one if len(markers) == 1 else many}", *titles, *more])


def _day_ticks(points: Sequence[Point]) -> dict[str, Any]:
    """The day of a run where it is another than that of the run before, of a few runs."""
    days = [day(point.at).rpartition(" ")[0] for point in points]
    places = [place for place, name in enumerate(days) if place == 0 or name != days[place - 1]]
    places = places[:: max(1, -(-len(places) // 6))]
    return {"tickvals": places, "ticktext": [days[place] for place in places]}


_AXIS: dict[str, Any] = {
    "gridcolor": "var(--u-line)", "linecolor": "var(--u-line-2)", "zeroline": False, "ticks": "", "fixedrange": True,
    "tickangle": 0, "tickfont": {"color": _FAINT, "size": 11},
}  # fmt: skip


def _layout(**more: Any) -> dict[str, Any]:
    return {
        "template": "none", "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "showlegend": False,
        "dragmode": False, "hovermode": "closest", "font": {"size": 12, "color": "var(--u-ink-2)"},
        "hoverlabel": {"bgcolor": "var(--u-surface)", "bordercolor": "var(--u-line-2)", "font": {"color": _INK}},
        **more,
    }  # fmt: skip


def _escape(text: str) -> str:
    """Plotly reads a few tags in its texts. Our own are line breaks only: others would set inline styles."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plain(figure: Any) -> dict[str, Any]:
    plain: dict[str, Any] = figure.to_plotly_json()
    return plain
