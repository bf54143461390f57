"""The matrix of a set: what each golden was last found to be, by agent version and by knowledge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from uuid import UUID

from app.actor import Actor
from app.db import run
from app.errors import Invalid, NotFound
from app.evals.change import BETTER, WORSE, change_of
from app.evals.stats import Score
from app.evals.verdict import ERRORED, FAIL, FLAKY, PASS, UNKNOWN
from app.formats.ids import parse_id

# A column is a version with whatever context it was replayed in, or that and the knowledge it was replayed with.
_VERSION = "coalesce(v.agent_version_id::text, '')"
_KEYS = {"version": _VERSION, "knowledge": f"concat_ws('|', {_VERSION}, v.context_mode, v.knowledge)"}
_PLAIN = "v.knowledge = ''"
_CONTEXT = "v.context_mode = %(context)s"
_WITH_ROW = "(v.knowledge = '' OR strpos(v.knowledge, %(row)s) > 0)"
LOAD_COLUMNS = """
SELECT c.key, a.slug, n.version
  FROM (SELECT {key} AS key, v.agent_version_id, max(v.ended_at) AS newest
          FROM sessions AS g
          JOIN eval_verdicts AS v ON v.tenant_id = g.tenant_id AND v.golden_id = g.id AND v.latest
         WHERE g.tenant_id = %(tenant)s AND g.golden_set = %(set)s {which}
         GROUP BY 1, 2) AS c
  LEFT JOIN agent_versions AS n ON n.tenant_id = %(tenant)s AND n.id = c.agent_version_id
  LEFT JOIN agents AS a ON a.tenant_id = n.tenant_id AND a.id = n.agent_id
 ORDER BY c.newest DESC, c.key
"""
# The newest verdict of each cell of the golden `g`.
_NEWEST = """
    SELECT DISTINCT ON (key) {key} AS key, v.verdict, v.accuracy, v.replay_session_id::text AS replay,
           v.baseline IS NOT DISTINCT FROM 'rejected' AS rejected, v.trials_passed, v.trials_judged
      FROM eval_verdicts AS v
     WHERE v.tenant_id = %(tenant)s AND v.golden_id = g.id AND v.latest {which}
     ORDER BY key, v.ended_at DESC, v.run_id
"""
# For each golden a letter for each column, so that a page of a large set reads little: see `VERDICTS`. Another says how
# many of its trials were judged: `@` none, `A` one.
LOAD_ROWS = """
SELECT g.id::text, g.title, c.letters, c.trials
  FROM sessions AS g CROSS JOIN LATERAL (
    SELECT string_agg(CASE WHEN n.verdict IS NULL THEN '-' WHEN n.rejected THEN upper(l.letter) ELSE l.letter END, ''
                      ORDER BY k.place) AS letters,
           string_agg(chr(64 + coalesce(n.trials_judged, 0)), '' ORDER BY k.place) AS trials
      FROM unnest(%(keys)s::text[]) WITH ORDINALITY AS k(key, place)
      LEFT JOIN ({newest}) AS n ON n.key = k.key
     CROSS JOIN LATERAL (SELECT CASE n.verdict WHEN 'flaky' THEN 'l' ELSE left(n.verdict, 1) END AS letter) AS l) AS c
 WHERE g.tenant_id = %(tenant)s AND g.golden_set = %(set)s {after}
 ORDER BY lower(g.title), g.id LIMIT %(most)s
"""
# Goldens after one that a client saw last.
_AFTER = """
   AND (lower(g.title), g.id) > (SELECT lower(title), id FROM sessions WHERE tenant_id = %(tenant)s AND id = %(after)s)
"""
LOAD_CELLS = """
SELECT g.id::text, n.key, n.verdict, n.accuracy, n.replay, n.rejected, n.trials_passed, n.trials_judged
  FROM sessions AS g CROSS JOIN LATERAL ({newest}) AS n
 WHERE g.tenant_id = %(tenant)s AND g.id = ANY (%(goldens)s::uuid[]) AND n.key = ANY (%(keys)s::text[])
"""
GOLDEN_EXISTS = "SELECT EXISTS (SELECT FROM sessions WHERE tenant_id = %(tenant)s AND id = %(after)s)"
ROW_EXISTS = "SELECT EXISTS (SELECT FROM shared_context WHERE tenant_id = %(tenant)s AND id = %(row)s::uuid)"
# A capital says that someone complained about the golden's own recording, a dash that it was never replayed.
VERDICTS = {"f": FAIL, "l": FLAKY, "p": PASS, "e": ERRORED, "u": UNKNOWN}
NEVER = "-"
# Worst first; what says nothing of the work comes after what passes, and no replay at all comes last.
_ORDER = {letter: place for place, letter in enumerate([*VERDICTS, NEVER])}


class Cell(NamedTuple):
    """The newest verdict on a golden in a column. `rejected`: someone complained about the golden's own recording.
    Trials that errored or could not be judged are not in `trials_judged`."""

    verdict: str
    accuracy: float | None
    replay_session_id: str
    rejected: bool
    trials_passed: int
    trials_judged: int


@dataclass(frozen=True)
class GoldenRow:
    """A golden, with a letter for what each column found of it, and how many trials each judged."""

    id: str
    title: str
    letters: str
    trials: list[int]

    @property
    def rejected(self) -> bool:
        """Whether someone complained about its own recording, as far as columns say."""
        return any(letter.isupper() for letter in self.letters)


@dataclass(frozen=True)
class Column:
    """An agent version, and of a matrix by knowledge the context mode and the rows that were tried (`+id`, `-id`).
    `counts` leave out goldens with a rejected baseline, which `rejected` counts. `better` and `worse` compare with the
    column `before`. `trials` is the most that a golden has, `all_passed` the share of those with so many that passed
    all of them: pass^k."""

    key: str
    agent: str | None
    version: int | None
    counts: dict[str, int] = field(default_factory=dict)
    rejected: int = 0
    before: str | None = None
    better: int = 0
    worse: int = 0
    trials: int = 0
    all_passed: float | None = None

    @property
    def id(self) -> str | None:
        return self.key.partition("|")[0] or None

    @property
    def context_mode(self) -> str | None:
        return self.key.split("|")[1] if "|" in self.key else None

    @property
    def knowledge(self) -> tuple[str, ...]:
        return tuple(self.key.split("|")[2].split()) if "|" in self.key else ()

    @property
    def score(self) -> Score:
        """How many of the judged goldens passed."""
        return Score(self.counts[PASS], sum(self.counts[verdict] for verdict in (PASS, FAIL, FLAKY)))

    @property
    def order(self) -> tuple[Any, ...]:
        return self.agent or "", self.version or 0, self.context_mode or "", self.knowledge


@dataclass(frozen=True)
class MatrixFilters:
    """What a matrix shows: columns by `version` or by `knowledge`, of one context mode, or with and without one row."""

    by: str = "version"
    context: str | None = None
    row: UUID | None = None

    @property
    def by_knowledge(self) -> bool:
        return self.by == "knowledge" or self.row is not None

    @property
    def sql(self) -> dict[str, str]:
        """The parts of a statement: the key of a column, and which verdicts it is about."""
        conditions = [_CONTEXT] if self.context else []
        if self.row is not None:
            conditions.append(_WITH_ROW)
        elif not self.by_knowledge:
            conditions.append(_PLAIN)
        key = _KEYS["knowledge" if self.by_knowledge else "version"]
        return {"key": key, "which": "".join(f" AND {one}" for one in conditions)}


@dataclass(frozen=True)
class Matrix:
    """The goldens of a set by title, and columns by agent and version; `column_count` counts those left out too."""

    set_name: str
    filters: MatrixFilters
    columns: list[Column]
    rows: list[GoldenRow]
    column_count: int


def load_matrix(
    set_name: str,
    filters: MatrixFilters,
    *,
    actor: Actor,
    limit: int | None = None,
    skip: int = 0,
    most_rows: int | None = None,
    after: UUID | None = None,
) -> Matrix:
    """Read what each golden of a set was found to be, in all columns or in those that were replayed last. All goldens,
    or so many `after` one. Two queries, and one to refuse an unknown row or golden."""
    asked = _parameters(filters, actor) | {"set": set_name, "most": most_rows, "after": after}
    every = [Column(*row) for row in run(LOAD_COLUMNS.format(**filters.sql), asked)]
    columns = sorted(every[skip : skip + limit] if limit else every, key=lambda column: column.order)
    newest = _NEWEST.format(**filters.sql)
    statement = LOAD_ROWS.format(newest=newest, after=_AFTER if after else "")
    rows = run(statement, asked | {"keys": [column.key for column in columns]})
    if not rows and after is None:
        raise NotFound(f"No golden set {set_name[:60]}.")
    if not rows and not run(GOLDEN_EXISTS, asked)[0][0]:
        raise NotFound("after: There is no such golden in this workspace.")
    if filters.row and str(filters.row) not in tried_rows(every) and not run(ROW_EXISTS, asked)[0][0]:
        raise NotFound("row: There is no such knowledge row in this workspace.")
    goldens = [
        GoldenRow(golden_id, title, letters or "", [ord(one) - ord("@") for one in trials or ""])
        for golden_id, title, letters, trials in rows
    ]
    return Matrix(set_name, filters, columns, goldens, len(every))


def load_cells(matrix: Matrix, rows: Iterable[GoldenRow], *, actor: Actor) -> dict[tuple[str, str], Cell]:
    """The cells of these goldens by golden and column. One query."""
    asked = {"goldens": [row.id for row in rows], "keys": [column.key for column in matrix.columns]}
    statement = LOAD_CELLS.format(newest=_NEWEST.format(**matrix.filters.sql))
    found = run(statement, _parameters(matrix.filters, actor) | asked)
    return {(golden_id, key): Cell(*cell) for golden_id, key, *cell in found}


def _parameters(filters: MatrixFilters, actor: Actor) -> dict[str, Any]:
    return {"tenant": actor.tenant_id, "context": filters.context, "row": str(filters.row)}


# What a page says of it


def compare_columns(matrix: Matrix, baseline: str | None = None) -> Matrix:
    """The matrix with counts: how many goldens each column found to be what, and how they changed since the column
    `baseline` or, without one, since the version before of the same agent."""
    if baseline is not None and baseline not in {column.key for column in matrix.columns}:
        raise Invalid.of({"baseline": "Choose a column of this matrix."})
    letters = zip(*(row.letters for row in matrix.rows), strict=True)
    by_column = {column.key: found for column, found in zip(matrix.columns, letters, strict=True)}
    trials = [[row.trials[place] for row in matrix.rows] for place in range(len(matrix.columns))]
    columns: list[Column] = []
    for column, judged in zip(matrix.columns, trials, strict=True):
        before = baseline if baseline is not None else _column_before(column, columns)
        before = None if before == column.key else before
        counted = _count_column(column, by_column[column.key], before, by_column.get(before or ""))
        columns.append(_count_trials(counted, by_column[column.key], judged))
    return replace(matrix, columns=columns)


def _column_before(column: Column, earlier: Sequence[Column]) -> str | None:
    """The same version without the rows that were tried, or with frozen knowledge in place of live; else the version
    before with the same knowledge."""
    plain = [one for one in reversed(earlier) if one.agent == column.agent and not one.knowledge]
    same = [one for one in plain if one.version == column.version]
    if column.knowledge:
        return next((one.key for one in same if one.context_mode == column.context_mode), None)
    older = [one for one in plain if one.version != column.version and one.context_mode == column.context_mode]
    return next((one.key for one in [*same, *older]), None)


def _count_column(column: Column, letters: Sequence[str], before: str | None, earlier: Sequence[str] | None) -> Column:
    counted = Counter(letters)
    changes: Counter[str | None] = Counter()
    for (was, now), number in Counter(zip(earlier or (), letters, strict=False)).items():
        if now in VERDICTS and was != NEVER:
            changes[change_of(VERDICTS[was.lower()], VERDICTS[now])] += number
    return replace(
        column,
        counts={verdict: counted[letter] for letter, verdict in VERDICTS.items()},
        rejected=sum(counted[letter.upper()] for letter in VERDICTS),
        before=before,
        better=changes[BETTER],
        worse=changes[WORSE],
    )


def _count_trials(column: Column, letters: Sequence[str], judged: Sequence[int]) -> Column:
    counts = [(letter, number) for letter, number in zip(letters, judged, strict=True) if letter in VERDICTS]
    most = max((number for _, number in counts), default=0)
    if most < 2:
        return column
    whole = [VERDICTS[letter] == PASS for letter, number in counts if number == most]
    return replace(column, trials=most, all_passed=sum(whole) / len(whole))


def differing_rows(rows: Iterable[GoldenRow]) -> list[GoldenRow]:
    """The goldens that columns found to be different things."""
    return [row for row in rows if len({*row.letters.lower()} - {NEVER}) > 1]


def sort_rows(rows: Iterable[GoldenRow], place: int, *, reverse: bool = False) -> list[GoldenRow]:
    """Goldens by what a column found of them, the worst first; goldens that were never replayed are always last."""

    def order(row: GoldenRow) -> tuple[bool, int]:
        rank = _ORDER[row.letters[place].lower()]
        return row.letters[place] == NEVER, -rank if reverse else rank

    return sorted(rows, key=order)


def tried_rows(columns: Iterable[Column]) -> list[str]:
    """The ids of the knowledge rows that these columns tried."""
    tried = {one[1:] for column in columns for one in column.knowledge}
    return sorted(row for row in tried if parse_id(row))
