"""Pending failures of one eval run as one line of the feed, so that an admin decides them together.

Nothing is stored for a group: its line replaces its first row, and the others are left out of the list. They
count all the same, so that a page, its tab and the database speak of the same number of rows.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import and_, case, exists, func, select, tuple_
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db import db
from app.db.paging import Page, Slice, count_up_to, read_page
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
# How many rows of all its groups a page has at most.
MAX_ROWS = 400
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
    """One page of the feed in which the pending failures of a run are one line; and the groups by the row that leads
    each. The count is of rows. At most three queries."""
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
    columns, where = row_columns(actor), conditions_of(filters, matches, actor=actor)
    place: dict[str, Any] = {"at": filters.order(), "id": Feedback.id, "oldest_first": filters.oldest_first}
    window, count = filters.window, matches.count if matches else None
    if not _folds(filters):
        found = read_page(select_rows(columns), page, where=where, count=count, window=window, **place)
        return found.map(lambda values: make_row(columns, values))

    def follows(row: Any, at: Any, id: Any) -> Condition:
        return _follows(row, at, id, filters, matches, actor)

    if matches and matches.count is None:
        # The words leave 1,000 rows at most, which need no window and are counted along.
        where += filters.scanned_conditions()
        total = select(func.count()).select_from(select(Feedback.id).where(*where).subquery()).scalar_subquery()
        where.append(~follows(Feedback, place["at"], Feedback.id))
        found = read_page(select_rows(columns, total), page, where=where, count=0, **place)
        number = found.items[0][-1] if found.items else 0
        return replace(found.map(lambda values: make_row(columns, values)), count=number)
    if window is None:
        count = count_up_to(Feedback.id, where) if count is None else count
        where.append(~follows(Feedback, place["at"], Feedback.id))
    else:
        needed = {name: getattr(Feedback, name) for name in ("kind", "status", "eval_run_id")}
        window = replace(
            window,
            columns={**window.columns, **needed},
            folded=lambda row: follows(row, row.place_at, row.place_id),
        )
    found = read_page(select_rows(columns), page, where=where, count=count, window=window, **place)
    return found.map(lambda values: make_row(columns, values))


def _follows(row: Any, at: Any, id: Any, filters: FeedbackFilters, matches: Matches | None, actor: Actor) -> Condition:
    """Whether a row belongs to a group and another row of it comes before it in the list."""
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
            *conditions_of(filters, matches, actor=actor),
            *filters.scanned_conditions(),
            _is_failure(Feedback),
            Feedback.eval_run_id.in_(run_ids),
        )
        .subquery()
    )
    columns = row_columns(actor)
    # All ids of a group come with its first row only.
    first_ids = case((ranked.c.place == 1, ranked.c.ids))
    rows = db.session.execute(
        select_rows(columns, EvalRun.set_name, ranked.c.total, first_ids)
        .join(ranked, ranked.c.id == Feedback.id)
        .outerjoin(EvalRun, (EvalRun.tenant_id == Feedback.tenant_id) & (EvalRun.id == Feedback.eval_run_id))
        .where(ranked.c.place <= min(MAX_AT_ONCE, MAX_ROWS // len(run_ids)), ranked.c.total >= least)
        .order_by(*order)
    )
    grouped: dict[UUID, list[Any]] = defaultdict(list)
    for row in rows:
        grouped[make_row(columns, row).eval_run_id].append(row)
    return [_make_group(run_id, found, columns) for run_id, found in grouped.items()]


def _make_group(run_id: UUID, found: Sequence[Any], columns: dict[str, Any]) -> FailureGroup:
    rows = [make_row(columns, row) for row in found]
    set_name, total, ids = found[0][-3:]
    versions = {row.agent_version for row in rows}
    version = versions.pop() if len(versions) == 1 else None
    return FailureGroup(run_id, set_name, version, total, ids[:MAX_AT_ONCE], rows)
