"""Keyset pages: fast at any depth and stable while rows arrive.

A cursor says between which rows a page begins and in which direction it reads. It is opaque to clients and carries
nothing that a client could not ask for anyway, so it is not signed; one that does not parse is refused.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Generic, TypeVar
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    Integer,
    Select,
    Uuid,
    any_,
    bindparam,
    func,
    literal,
    null,
    select,
    tuple_,
    union_all,
)
from sqlalchemy.sql.elements import ColumnElement

from app.actor import Actor
from app.db import db
from app.db.queries import IDS, MAX_KEPT, keep_queries, value
from app.errors import Invalid

DEFAULT_LIMIT = 25
MAX_ROWS = 100
MAX_COUNT = 1000
MATCH, EDGE = 1, 2

Condition = ColumnElement[bool]
Key = tuple[Any, ...]
# After a cursor, before it, or from the beginning.
Way = bool | None
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
class Source:
    """What a list is read from. `at` and `id` are the columns that order it; an index has them in this order. `where`
    is kept apart from the statement, so that finding and counting rows need not join what is only shown. With a
    `window` only rows that its predicate accepts are on a page, which may be short although more follows; its cursor
    then says how far it has scanned."""

    statement: Any
    at: Any
    id: Any
    where: list[Condition]
    oldest_first: bool = False
    window: ScanWindow | None = None
    # What leaves rows out that are counted all the same.
    uncounted: Sequence[Condition] = ()

    def order(self, way: Way = None, at: Any = None, id: Any = None) -> tuple[Any, Any]:
        """The order in which a page is read, which is backwards before a cursor."""
        return _sorted(self.is_rising(way), self.at if at is None else at, self.id if id is None else id)

    def is_rising(self, way: Way) -> bool:
        return self.oldest_first != (way is False)

    def beyond(self, way: Way) -> list[Condition]:
        if way is None:
            return []
        place = tuple_(self.at, self.id)
        key = tuple_(value("cursor_at", self.at.type), value("cursor_id", Uuid))
        return [place > key if self.is_rising(way) else place < key]


def _sorted(rising: bool, at: Any, id: Any) -> tuple[Any, Any]:
    return (at.asc(), id.asc()) if rising else (at.desc(), id.desc())


# The statements of a list. Reading after a cursor, before one, or the first page makes a difference to each.


def _page_statement(source: Source, way: Way, limit: int, counted: bool) -> Any:
    """The rows of a page and one more, each with the count of all rows and its own place. Rows are joined with what is
    shown once they are found; a join with the whole table would cost more the larger that is."""
    keys = (
        select(source.at.label("page_at"), source.id.label("page_id"))
        .where(*source.where, *source.uncounted, *source.beyond(way))
        .order_by(*source.order(way))
        .limit(at_most(limit + 1))
        .cte("keys")
        .prefix_with("MATERIALIZED")
    )
    count = _count_statement(source).scalar_subquery() if counted else null()
    found = func.array(select(keys.c.page_id).scalar_subquery(), type_=ARRAY(Uuid))
    more = count.label("page_count"), source.at.label("page_at"), source.id.label("page_id")
    return source.statement.where(source.id == any_(found)).add_columns(*more).order_by(*source.order(way))


def _count_statement(source: Source) -> Any:
    """How many rows there are, up to one more than is said. In the order of the list they are found by its index; in
    any order PostgreSQL would read the table, where they may be few and far apart."""
    few = select(source.id).where(*source.where).order_by(*source.order()).limit(at_most(MAX_COUNT + 1)).subquery()
    return select(func.count().label("found")).select_from(few)


def _rows_statement(source: Source) -> Any:
    """The rows of these ids, in the order of the list."""
    return source.statement.where(*source.where, source.id == IDS).order_by(*source.order())


def _scan_statement(source: Source, way: Way) -> Any:
    """The keys of the rows that the window accepts, where the window ends if the list continues there, and how many it
    accepts, with those that are folded."""
    window = source.window
    assert window is not None  # noqa: S101 - the caller scans for the window
    columns = [column.label(name) for name, column in window.columns.items()]
    scanned = (
        select(source.at.label("place_at"), source.id.label("place_id"), *columns)
        .where(*source.where, *source.beyond(way))
        .order_by(*source.order(way))
        .limit(at_most(window.limit))
        .cte("scanned")
        .prefix_with("MATERIALIZED")
    )
    key = scanned.c.place_at, scanned.c.place_id
    full = select(func.count()).select_from(scanned).scalar_subquery() >= window.limit
    matching = select(*key).where(*window.predicate(scanned.c))
    shown = matching.where(~window.folded(scanned.c)) if window.folded else matching
    accepted = shown.order_by(*source.order(way, *key)).limit(at_most(MAX_COUNT + 1))
    counted: Any = null()
    if window.folded:
        counted = select(func.count()).select_from(matching.limit(at_most(MAX_COUNT + 1)).subquery()).scalar_subquery()
    last = select(*key).where(full).order_by(*_sorted(not source.is_rising(way), *key)).limit(at_most(1))
    return union_all(
        select(literal(MATCH), *accepted.subquery().c, counted), select(literal(EDGE), *last.subquery().c, null())
    )


Read = Callable[..., list[Key]]


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
    """Run a statement for one page of its rows, newest first by default. At most two queries. See `Source`; nothing is
    counted when `count` is known."""
    source = Source(statement, at, id, where, oldest_first, window)

    def read(make: Callable[..., Any], *more: Any, **values: Any) -> list[Key]:
        return [tuple(row) for row in db.session.execute(make(source, *more), values)]

    return _read_pages(source.oldest_first, window, page, count, read)


def read_kept_page(
    build: Callable[..., Source],
    key: tuple[Any, ...],
    page: Page,
    *,
    actor: Actor,
    count: int | None = None,
    **values: Any,
) -> Slice[tuple[Any, ...]]:
    """The same for a list that is read often: `build` makes its source of the `key`, and the statements are kept. Who
    asks is `ASKING` in them, and `values` are those that differ although the key is the same."""

    def read(make: Callable[..., Any], *more: Any, **other: Any) -> list[Key]:
        return _kept_query(build, key, make, *more)(actor, **values, **other)

    oldest_first, window = _kept_order(build, key)
    return _read_pages(oldest_first, window, page, count, read)


@keep_queries
def _kept_query(build: Callable[..., Source], key: tuple[Any, ...], make: Callable[..., Any], *more: Any) -> Any:
    return make(build(*key), *more)


@lru_cache(maxsize=MAX_KEPT)
def _kept_order(build: Callable[..., Source], key: tuple[Any, ...]) -> tuple[bool, ScanWindow | None]:
    source = build(*key)
    return source.oldest_first, source.window


def _read_pages(
    oldest_first: bool, window: ScanWindow | None, page: Page, known: int | None, read: Read
) -> Slice[tuple[Any, ...]]:
    def find(cursor: Cursor | None) -> tuple[list[Key], Key | None, int | None]:
        way = cursor.after if cursor else None
        place = {"cursor_at": cursor.at, "cursor_id": cursor.id} if cursor else {}
        if window is not None:
            return _parse_scan(read(_scan_statement, way, **place), oldest_first != (way is False))
        rows = read(_page_statement, way, page.limit, known is None, **place)
        return rows, None, rows[0][-3] if rows else known

    cursor = Cursor.parse(page.cursor) if page.cursor else None
    found, edge, number = find(cursor)
    if cursor and not cursor.after and not found and edge is None:
        # Going back past the first row leads to the first page, not to an empty one.
        cursor = None
        found, edge, number = find(None)
    shown = found[: page.limit]
    ahead = shown[-1] if len(found) > page.limit else edge
    behind = shown[0] if cursor and shown else None
    if cursor and not shown and window is not None:
        behind = (cursor.at, cursor.id)
    backwards = cursor is not None and not cursor.after
    older, newer = (behind, ahead) if backwards else (ahead, behind)
    links = _cursor_text(True, older), _cursor_text(False, newer)
    if window is not None:
        accepted = number or 0
        more = cursor is not None or edge is not None or accepted > MAX_COUNT
        rows = read(_rows_statement, ids=[key[1] for key in shown]) if shown else []
        return Slice(rows, *links, min(accepted, MAX_COUNT), more)
    if number is None:
        number = known if known is not None else read(_count_statement)[0][0] if cursor else 0
    rows = [row[:-3] for row in (reversed(shown) if backwards else shown)]
    return Slice(rows, *links, min(number, MAX_COUNT), number > MAX_COUNT)


def scan_ids(at: Any, id: Any, where: list[Condition], window: ScanWindow) -> tuple[list[UUID], bool]:
    """Return the ids of all rows that the window accepts, newest first, and whether the list continues beyond it."""
    scan = _scan_statement(Source(None, at, id, where, window=window), None)
    found, edge, _ = _parse_scan([tuple(row) for row in db.session.execute(scan)], rising=False)
    return [row[1] for row in found], edge is not None


def _cursor_text(after: bool, row: Key | None) -> str | None:
    """A cursor from a row whose last two columns are its place."""
    return Cursor(after, *row[-2:]).text() if row else None


def _parse_scan(rows: list[Key], rising: bool) -> tuple[list[Key], Key | None, int]:
    """The keys of the accepted rows, the end of the window, and how many rows it accepts."""
    found = sorted((row[1:3] for row in rows if row[0] == MATCH), reverse=not rising)
    edge = next((row[1:3] for row in rows if row[0] == EDGE), None)
    return found, edge, next((row[3] for row in rows if row[3] is not None), len(found))
