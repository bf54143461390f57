"""Pending failures of one eval run as one line of the feed, so that an admin decides them together.

Nothing is stored for a group: its line replaces its first row, and the others are left out of the list. They
count all the same, so that a page, its tab and the database speak of the same number of rows.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Integer, Uuid, and_, any_, case, exists, func, select, tuple_
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db.paging import Page, Slice, Source, read_kept_page
from app.db.queries import ASKING, IDS, keep_queries, value
from app.models import EvalRun, Feedback
from app.services.feedback.lists import (
    ROW_NAMES,
    FeedbackFilters,
    FeedbackRow,
    conditions_of,
    make_row,
    row_columns,
    select_rows,
)
from app.services.feedback.review import MAX_AT_ONCE
from app.services.lists.filters import MATCHED, Condition, Matches, counted_matches, find_matches

KIND = "replay_failure"
# What a group has in common. A list that asks for anything else of these has no failure of a replay in it.
COMMON = {"status": "pending", "kind": KIND, "rating": "negative", "source_type": "session", "origin": "system"}
# How many rows of all its groups a page has at most.
MAX_ROWS = 400
AN_ADMIN = replace(ASKING, role="admin")
# What leads to single rows: these are shown one by one.
SINGLE = ("run", "session_id", "entity_id", "author_id", "chat_id", "trace_id", "signal")


@dataclass(frozen=True)
class FailureGroup:
    """Pending failures of one run. `ids` are as many of them as can be decided at once, `rows` the first of these."""

    run_id: UUID
    set_name: str | None = None
    version: int | None = None
    total: int = 0
    ids: Sequence[UUID] = ()
    rows: Sequence[FeedbackRow] = ()


def list_folded(
    filters: FeedbackFilters, page: Page, *, actor: Actor
) -> tuple[Slice[FeedbackRow], dict[UUID, FailureGroup]]:
    """One page of an admin's feed in which the pending failures of a run are one line; and the groups by the row that
    leads each. The count is of rows. At most three queries."""
    matches = find_matches("feedback", filters, page, whole=True) if filters.q else None
    if matches and not matches.ids:
        return Slice([]), {}
    found = _read_leaders(filters, page, matches, actor)
    runs = {row.eval_run_id for row in found.items if _leads(row)} if _folds(filters) else set()
    groups = _groups_of(runs, filters, matches, actor)
    return found, {group.rows[0].id: group for group in groups}


def group_of(run_id: UUID, filters: FeedbackFilters, *, actor: Actor) -> FailureGroup | None:
    """What is still pending of a run's failures, as a list with these filters shows it. Two queries at most."""
    matches = find_matches("feedback", filters, Page(), whole=True) if filters.q else None
    return next(iter(_groups_of({run_id}, filters, matches, actor, least=0)), None)


def _folds(filters: FeedbackFilters) -> bool:
    admitted = all(filters.admits(name, value) for name, value in COMMON.items())
    return admitted and all(getattr(filters, name) is None for name in SINGLE)


def _is_failure(row: Any) -> Condition:
    found: Condition = and_(row.kind == KIND, row.status == "pending", row.eval_run_id.is_not(None))
    return found


def _leads(row: FeedbackRow) -> bool:
    return row.kind == KIND and row.status == "pending" and row.eval_run_id is not None


def _read_leaders(filters: FeedbackFilters, page: Page, matches: Matches | None, actor: Actor) -> Slice[FeedbackRow]:
    """Rows that stand alone, and the first of each group."""
    same, values = filters.as_parameters()
    # Words beside other filters leave 1,000 rows at most, which need no window and are counted along.
    is_counted = matches is not None and matches.count is None and _folds(filters)
    known = {**counted_matches(matches), **({"count": 0} if is_counted else {})}
    found = read_kept_page(_source, (same, matches is not None, is_counted), page, actor=actor, **known, **values)
    if is_counted:
        found = replace(found, count=found.items[0][-1] if found.items else 0)
    return found.map(lambda row: make_row(ROW_NAMES, row))


def _source(filters: FeedbackFilters, matched: bool, is_counted: bool) -> Source:
    where, more = _conditions(filters, matched), []
    at, window = filters.order(), filters.window

    def follows(row: Any, at: Any, id: Any) -> Condition:
        return _follows(row, at, id, filters, matched)

    if is_counted:
        where += filters.scanned_conditions()
        more = [select(func.count()).select_from(select(Feedback.id).where(*where).subquery()).scalar_subquery()]
        window = None
    if _folds(filters) and window is not None:
        needed = {name: getattr(Feedback, name) for name in ("kind", "status", "eval_run_id")}
        columns = {**window.columns, **needed}
        window = replace(window, columns=columns, folded=lambda row: follows(row, row.place_at, row.place_id))
    leads = [~follows(Feedback, at, Feedback.id)] if _folds(filters) and window is None else []
    statement = select_rows(row_columns(AN_ADMIN), *more)
    return Source(statement, at, Feedback.id, where, filters.oldest_first, window, uncounted=leads)


def _conditions(filters: FeedbackFilters, matched: bool, row: Any = Feedback) -> list[Any]:
    return conditions_of(filters, MATCHED if matched else None, actor=AN_ADMIN, row=row)


def _follows(row: Any, at: Any, id: Any, filters: FeedbackFilters, matched: bool) -> Condition:
    """Whether a row belongs to a group and another row of it comes before it in the list."""
    other = aliased(Feedback)
    here, there = tuple_(at, id), tuple_(filters.order(other), other.id)
    before = exists().where(
        *_conditions(filters, matched, other),
        *filters.scanned_conditions(other),
        _is_failure(other),
        other.eval_run_id == row.eval_run_id,
        there < here if filters.oldest_first else there > here,
    )
    return and_(_is_failure(row), before)


def _groups_of(
    run_ids: Collection[UUID],
    filters: FeedbackFilters,
    matches: Matches | None,
    actor: Actor,
    *,
    least: int = 2,
) -> list[FailureGroup]:
    """The groups of these runs that have `least` rows, each in the order of the list. One query."""
    if not run_ids:
        return []
    same, values = filters.as_parameters()
    grouped: dict[UUID, list[Any]] = defaultdict(list)
    for row in groups_query(same, matches is not None)(
        actor,
        ids=list(run_ids),
        most=min(MAX_AT_ONCE, MAX_ROWS // len(run_ids)),
        least=least,
        matched=matches.ids if matches else None,
        **values,
    ):
        grouped[make_row(ROW_NAMES, row).eval_run_id].append(row)
    return [_make_group(run_id, found) for run_id, found in grouped.items()]


@keep_queries
def groups_query(filters: FeedbackFilters, matched: bool) -> Any:
    at = filters.order()
    order = (at.asc(), Feedback.id.asc()) if filters.oldest_first else (at.desc(), Feedback.id.desc())
    place = func.row_number().over(partition_by=Feedback.eval_run_id, order_by=order)
    ids = func.array_agg(Feedback.id).over(partition_by=Feedback.eval_run_id, order_by=order, rows=(None, None))
    ranked = (
        select(
            Feedback.id.label("id"),
            place.label("place"),
            func.count().over(partition_by=Feedback.eval_run_id).label("total"),
            ids.label("ids"),
        )
        .where(
            *_conditions(filters, matched),
            *filters.scanned_conditions(),
            _is_failure(Feedback),
            Feedback.eval_run_id == IDS,
        )
        .subquery()
    )
    # All ids of a group come with its first row only.
    first_ids = case((ranked.c.place == 1, ranked.c.ids)).label("ids")
    shown = (
        select(ranked.c.id, ranked.c.total, first_ids)
        .where(ranked.c.place <= value("most", Integer), ranked.c.total >= value("least", Integer))
        .cte("shown")
        .prefix_with("MATERIALIZED")
    )
    # As an array the ids are looked up by index, where a join would read all feedback of the workspace.
    wanted = func.array(select(shown.c.id).scalar_subquery(), type_=ARRAY(Uuid))
    return (
        select_rows(row_columns(AN_ADMIN), EvalRun.set_name, shown.c.total, shown.c.ids)
        .join(shown, shown.c.id == Feedback.id)
        .outerjoin(EvalRun, (EvalRun.tenant_id == Feedback.tenant_id) & (EvalRun.id == Feedback.eval_run_id))
        .where(Feedback.id == any_(wanted))
        .order_by(*order)
    )


def _make_group(run_id: UUID, found: Sequence[Any]) -> FailureGroup:
    rows = [make_row(ROW_NAMES, row) for row in found]
    set_name, total, ids = found[0][-3:]
    versions = {row.agent_version for row in rows}
    version = versions.pop() if len(versions) == 1 else None
    return FailureGroup(run_id, set_name, version, total, ids[:MAX_AT_ONCE], rows)
