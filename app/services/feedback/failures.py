"""Pending failures of one eval run as one line of the feed, so that an admin decides them together.

Nothing is stored for a group: its line stands where its first row would, and the others are left out of the list. They
count all the same, so that a page, its tab and the database speak of the same number of rows.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import and_, exists, func, select, tuple_
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db import db
from app.db.paging import Page, ScanWindow, Slice, count_scanned, count_up_to, read_page
from app.models import EvalRun, Feedback
from app.services.feedback.lists import (
    FeedbackFilters,
    FeedbackRow,
    conditions_of,
    make_row,
    row_columns,
    select_rows,
)
from app.services.feedback.review import MAX_AT_ONCE
from app.services.lists.filters import Condition, Matches, find_matches

KIND = "replay_failure"
# What a group has in common. A list that asks for anything else of these has no failure of a replay in it.
COMMON = {"status": "pending", "kind": KIND, "rating": "negative", "source_type": "session", "origin": "system"}
# What leads to single rows: these are shown one by one.
SINGLE = ("run", "session_id", "entity_id", "author_id", "chat_id", "trace_id", "signal")


@dataclass(frozen=True)
class FailureGroup:
    """Pending failures of one run. `rows` are the first of them, as many as can be decided at once."""

    run_id: UUID
    set_name: str | None
    version: int | None
    total: int
    rows: Sequence[FeedbackRow]

    @property
    def ids(self) -> list[UUID]:
        return [row.id for row in self.rows]


def list_folded(
    filters: FeedbackFilters, page: Page, *, actor: Actor
) -> tuple[Slice[FeedbackRow], dict[UUID, FailureGroup]]:
    """One page of the feed in which the pending failures of a run are one line; and the groups by the row that leads
    each. The count is of rows. At most five queries."""
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
    other = any(getattr(filters, name) not in (None, value) for name, value in COMMON.items())
    return not other and all(getattr(filters, name) is None for name in SINGLE)


def _is_failure(row: Any) -> Condition:
    found: Condition = and_(row.kind == KIND, row.status == "pending", row.eval_run_id.is_not(None))
    return found


def _leads(row: FeedbackRow) -> bool:
    return row.kind == KIND and row.status == "pending" and row.eval_run_id is not None


def _read_leaders(filters: FeedbackFilters, page: Page, matches: Matches | None, actor: Actor) -> Slice[FeedbackRow]:
    """Rows that stand alone, and the first of each group."""
    columns, where = row_columns(actor), conditions_of(filters, matches, actor=actor)
    place: dict[str, Any] = {"at": filters.order(), "id": Feedback.id, "oldest_first": filters.oldest_first}
    window, count, more = filters.window, matches.count if matches else None, False
    if not _folds(filters):
        found = read_page(select_rows(columns), page, where=where, count=count, window=window, **place)
        return found.map(lambda values: make_row(columns, values))

    def follows(row: Any, at: Any, id: Any) -> Condition:
        return _follows(row, at, id, filters, matches, actor)

    if window is None:
        count = count_up_to(Feedback.id, where) if count is None else count
        where.append(~follows(Feedback, place["at"], Feedback.id))
    else:
        count, more = count_scanned(page, where=where, window=window, **place)
        needed = {name: getattr(Feedback, name) for name in ("kind", "status", "eval_run_id")}
        window = ScanWindow(
            {**window.columns, **needed},
            lambda row: [*filters.scanned_conditions(row), ~follows(row, row.place_at, row.place_id)],
            window.limit,
        )
    found = read_page(select_rows(columns), page, where=where, count=count, window=window, **place)
    found = found if filters.window is None else replace(found, count=count, count_is_more=more)
    return found.map(lambda values: make_row(columns, values))


def _follows(row: Any, at: Any, id: Any, filters: FeedbackFilters, matches: Matches | None, actor: Actor) -> Condition:
    """Whether a row belongs to a group and another of it stands before it in the list."""
    other = aliased(Feedback)
    here, there = tuple_(at, id), tuple_(filters.order(other), other.id)
    before = exists().where(
        *conditions_of(filters, matches, actor=actor, row=other),
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
    at = filters.order()
    order = (at.asc(), Feedback.id.asc()) if filters.oldest_first else (at.desc(), Feedback.id.desc())
    ranked = (
        select(
            Feedback.id.label("id"),
            func.row_number().over(partition_by=Feedback.eval_run_id, order_by=order).label("place"),
            func.count().over(partition_by=Feedback.eval_run_id).label("total"),
        )
        .where(
            *conditions_of(filters, matches, actor=actor),
            *filters.scanned_conditions(),
            _is_failure(Feedback),
            Feedback.eval_run_id.in_(run_ids),
        )
        .subquery()
    )
    columns = row_columns(actor)
    rows = db.session.execute(
        select_rows(columns, EvalRun.set_name, ranked.c.total)
        .join(ranked, ranked.c.id == Feedback.id)
        .outerjoin(EvalRun, (EvalRun.tenant_id == Feedback.tenant_id) & (EvalRun.id == Feedback.eval_run_id))
        .where(ranked.c.place <= MAX_AT_ONCE, ranked.c.total >= least)
        .order_by(*order)
    )
    grouped: dict[UUID, list[Any]] = defaultdict(list)
    for row in rows:
        grouped[make_row(columns, row).eval_run_id].append(row)
    return [_make_group(run_id, found, columns) for run_id, found in grouped.items()]


def _make_group(run_id: UUID, found: Sequence[Any], columns: dict[str, Any]) -> FailureGroup:
    rows = [make_row(columns, row) for row in found]
    versions = {row.agent_version for row in rows}
    return FailureGroup(run_id, found[0][-2], versions.pop() if len(versions) == 1 else None, found[0][-1], rows)
