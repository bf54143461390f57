"""Keyset pages: fast at any depth and stable while rows arrive.

A cursor says between which rows a page begins and in which direction it reads. It is opaque to clients and carries
nothing that a client could not ask for anyway, so it is not signed; one that does not parse is refused.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from sqlalchemy import Integer, Select, bindparam, func, literal, null, select, tuple_, union_all
from sqlalchemy.sql.elements import ColumnElement

from app.db import db
from app.errors import Invalid

DEFAULT_LIMIT = 25
MAX_ROWS = 100
MAX_COUNT = 1000
MATCH, EDGE = 1, 2

Condition = ColumnElement[bool]
Key = tuple[Any, ...]
Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Page:
    """Which part of a list is wanted. `limit` is clamped to 1..100."""

    limit: int = DEFAULT_LIMIT
    cursor: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", min(max(self.limit, 1), MAX_ROWS))


@dataclass(frozen=True)
class Slice(Generic[Item]):
    """One page. `count` is of the whole list and stops at 1,000; `count_is_more` says that it did."""

    items: list[Item]
    next_cursor: str | None = None
    prev_cursor: str | None = None
    count: int = 0
    count_is_more: bool = False

    @property
    def count_text(self) -> str:
        return f"{self.count:,}{'+' if self.count_is_more else ''}"

    def map(self, change: Callable[[Item], Made]) -> Slice[Made]:
        """The same page of other items."""
        made = [change(item) for item in self.items]
        return Slice(made, self.next_cursor, self.prev_cursor, self.count, self.count_is_more)


def join_cursor(*parts: object) -> str:
    return base64.urlsafe_b64encode("|".join(map(str, parts)).encode()).decode().rstrip("=")


def split_cursor(text: str) -> list[str]:
    """The parts of a cursor, or ValueError."""
    if len(text) > 200:
        raise ValueError
    plain = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    return plain.decode("ascii").split("|")


@dataclass(frozen=True)
class Cursor:
    """A place in a list, right behind (`after`) or right before a row."""

    after: bool
    at: datetime
    id: UUID

    def text(self) -> str:
        return join_cursor("a" if self.after else "b", self.at.isoformat(), self.id)

    @classmethod
    def parse(cls, text: str) -> Cursor:
        try:
            way, at, row = split_cursor(text)
            moment = datetime.fromisoformat(at)
            if way not in ("a", "b") or moment.tzinfo is None:
                raise ValueError
            return cls(way == "a", moment, UUID(row))
        except ValueError:
            raise not_a_cursor() from None


def not_a_cursor() -> Invalid:
    return Invalid(
        "This cursor was not made by this list; leave it out to begin at the first page.",
        {"cursor": "Not a cursor of this list."},
    )


@dataclass(frozen=True)
class ScanWindow:
    """Filter a list by something that no index covers: how long it took, whether it has a tag, how it was rated. A page
    then scans at most `limit` rows from its cursor on and keeps those that the predicate accepts, so it costs the same
    whatever the size of the table. `columns` is what the predicate needs of each row. Rows that are `folded` into
    another count and are not on the page; the row that they are compared with has `place_at` and `place_id` too."""

    columns: Mapping[str, Any]
    predicate: Callable[[Any], list[Condition]]
    limit: int
    folded: Callable[[Any], Condition] | None = None


def at_most(rows: int) -> Any:
    """A LIMIT that PostgreSQL sees when it plans. For one it does not see it plans for a tenth of the table."""
    return bindparam(None, rows, Integer, literal_execute=True)


@dataclass(frozen=True)
class _Order:
    """The columns that order a list, and its direction."""

    at: Any
    id: Any
    oldest_first: bool

    def is_rising(self, cursor: Cursor | None) -> bool:
        return self.oldest_first != (cursor is not None and not cursor.after)

    def beyond(self, cursor: Cursor | None) -> list[Condition]:
        if cursor is None:
            return []
        place, key = tuple_(self.at, self.id), tuple_(cursor.at, cursor.id)
        return [place > key if self.is_rising(cursor) else place < key]


def _sorted(rising: bool, at: Any, id: Any) -> tuple[Any, Any]:
    return (at.asc(), id.asc()) if rising else (at.desc(), id.desc())


def read_page(
    statement: Select[*tuple[Any, ...]],
    page: Page,
    *,
    at: ColumnElement[datetime] | Any,
    id: ColumnElement[UUID] | Any,
    where: list[Condition],
    oldest_first: bool = False,
    count: int | None = None,
    window: ScanWindow | None = None,
) -> Slice[tuple[Any, ...]]:
    """Run a statement for one page of its rows, newest first by default. Two queries. `at` and `id` are the columns
    that order the list; an index has them in this order. `where` is kept apart from the statement so that counting need
    not join what is only shown; nothing is counted when `count` is known. With a `window` only rows that its predicate
    accepts are on the page, which may be short although more follows; its cursor then says how far it has scanned."""
    order = _Order(at, id, oldest_first)

    def find(cursor: Cursor | None) -> tuple[list[Key], Key | None, int]:
        if window is not None:
            return _scan(order, where, window, cursor)
        wanted = statement.where(*where, *order.beyond(cursor)).add_columns(at.label("page_at"), id.label("page_id"))
        wanted = wanted.order_by(*_sorted(order.is_rising(cursor), at, id)).limit(at_most(page.limit + 1))
        return [tuple(row) for row in db.session.execute(wanted)], None, 0

    cursor = Cursor.parse(page.cursor) if page.cursor else None
    found, edge, accepted = find(cursor)
    if cursor and not cursor.after and not found and edge is None:
        # Going back past the first row leads to the first page, not to an empty one.
        cursor = None
        found, edge, accepted = find(None)
    shown = found[: page.limit]
    ahead = shown[-1] if len(found) > page.limit else edge
    behind = shown[0] if cursor and shown else None
    if cursor and not shown and window is not None:
        behind = (cursor.at, cursor.id)
    backwards = cursor is not None and not cursor.after
    older, newer = (behind, ahead) if backwards else (ahead, behind)
    links = _cursor_text(True, older), _cursor_text(False, newer)
    if window is not None:
        more = cursor is not None or edge is not None or accepted > MAX_COUNT
        return Slice(_rows_of(statement.where(*where), shown, order), *links, min(accepted, MAX_COUNT), more)
    if count is None:
        count = count_up_to(id, where)
    rows = [row[:-2] for row in (reversed(shown) if backwards else shown)]
    return Slice(rows, *links, min(count, MAX_COUNT), count > MAX_COUNT)


def _rows_of(statement: Select[*tuple[Any, ...]], keys: list[Key], order: _Order) -> list[tuple[Any, ...]]:
    if not keys:
        return []
    wanted = statement.where(order.id.in_([key[1] for key in keys]))
    wanted = wanted.order_by(*_sorted(order.oldest_first, order.at, order.id))
    return [tuple(row) for row in db.session.execute(wanted)]


def scan_ids(at: Any, id: Any, where: list[Condition], window: ScanWindow) -> tuple[list[UUID], bool]:
    """Return the ids of all rows that the window accepts, newest first, and whether the list continues beyond it."""
    found, edge, _ = _scan(_Order(at, id, oldest_first=False), where, window, None)
    return [row[1] for row in found], edge is not None


def _cursor_text(after: bool, row: Key | None) -> str | None:
    """A cursor from a row whose last two columns are its place."""
    return Cursor(after, *row[-2:]).text() if row else None


def _scan(
    order: _Order, where: list[Condition], window: ScanWindow, cursor: Cursor | None
) -> tuple[list[Key], Key | None, int]:
    """Return the keys of the accepted rows after the cursor, where the window ends if the list continues there, and how
    many were accepted, with those that are folded."""
    rising = order.is_rising(cursor)
    columns = [column.label(name) for name, column in window.columns.items()]
    scanned = (
        select(order.at.label("place_at"), order.id.label("place_id"), *columns)
        .where(*where, *order.beyond(cursor))
        .order_by(*_sorted(rising, order.at, order.id))
        .limit(at_most(window.limit))
        .cte("scanned")
        .prefix_with("MATERIALIZED")
    )
    key = scanned.c.place_at, scanned.c.place_id
    full = select(func.count()).select_from(scanned).scalar_subquery() >= window.limit
    matching = select(*key).where(*window.predicate(scanned.c))
    shown = matching.where(~window.folded(scanned.c)) if window.folded else matching
    accepted = shown.order_by(*_sorted(rising, *key)).limit(at_most(MAX_COUNT + 1))
    counted: Any = null()
    if window.folded:
        counted = select(func.count()).select_from(matching.limit(at_most(MAX_COUNT + 1)).subquery()).scalar_subquery()
    last = select(*key).where(full).order_by(*_sorted(not rising, *key)).limit(at_most(1))
    both = union_all(
        select(literal(MATCH), *accepted.subquery().c, counted), select(literal(EDGE), *last.subquery().c, null())
    )
    rows = [tuple(row) for row in db.session.execute(both)]
    found = sorted((row[1:3] for row in rows if row[0] == MATCH), reverse=not rising)
    edge = next((row[1:3] for row in rows if row[0] == EDGE), None)
    return found, edge, next((row[3] for row in rows if row[3] is not None), len(found))


def count_up_to(id: Any, where: list[Condition], most: int = MAX_COUNT) -> int:
    """Count the rows that meet the conditions; one more than `most` means more than that."""
    few = select(id).where(*where).limit(at_most(most + 1)).subquery()
    return db.session.scalar(select(func.count()).select_from(few)) or 0
