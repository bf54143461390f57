"""Pages of long lists by key: quick at any depth, and steady while rows arrive.

A cursor says between which rows a page begins and in which direction it reads. It is opaque to clients and carries
nothing that a client could not ask for anyway, so it is not signed; whatever does not parse is refused.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from sqlalchemy import Select, func, select, tuple_
from sqlalchemy.sql.elements import ColumnElement

from app.db import db
from app.errors import Invalid

DEFAULT_LIMIT = 25
MOST = 100
COUNTED = 1000

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Page:
    """Which part of a list is wanted. `limit` is clamped to 1..100."""

    limit: int = DEFAULT_LIMIT
    cursor: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", min(max(self.limit, 1), MOST))

    @classmethod
    def from_args(cls, args: Mapping[str, str], default: int = DEFAULT_LIMIT) -> Page:
        """Read `limit` and `cursor` of a query string."""
        text = args.get("limit") or ""
        if text and not re.fullmatch(r"-?[0-9]{1,9}", text, re.ASCII):
            raise Invalid("limit must be a whole number from 1 to 100.", {"limit": "A whole number from 1 to 100."})
        return cls(int(text) if text else default, args.get("cursor") or None)


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


@dataclass(frozen=True)
class Cursor:
    """A place in a list, right behind (`after`) or right before a row."""

    after: bool
    at: datetime
    id: UUID

    def text(self) -> str:
        plain = f"{'a' if self.after else 'b'}|{self.at.isoformat()}|{self.id}"
        return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> Cursor:
        try:
            if len(text) > 200:
                raise ValueError
            plain = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
            way, at, row = plain.decode("ascii").split("|")
            moment = datetime.fromisoformat(at)
            if way not in ("a", "b") or moment.tzinfo is None:
                raise ValueError
            return cls(way == "a", moment, UUID(row))
        except (ValueError, binascii.Error):
            raise not_a_cursor() from None


def not_a_cursor() -> Invalid:
    return Invalid(
        "This cursor was not made by this list; leave it out to begin at the first page.",
        {"cursor": "Not a cursor of this list."},
    )


def read_page(
    statement: Select[*tuple[Any, ...]],
    page: Page,
    *,
    at: ColumnElement[datetime] | Any,
    id: ColumnElement[UUID] | Any,
    where: list[ColumnElement[bool]],
    oldest_first: bool = False,
    count: int | None = None,
) -> Slice[tuple[Any, ...]]:
    """Run a statement for one page of its rows, newest first unless told otherwise. Two queries.

    `at` and `id` are the columns that order the list; an index has them in this order. `where` is kept apart from the
    statement so that counting need not join what is only shown; nothing is counted when `count` is known.
    """
    statement = statement.where(*where)
    cursor = Cursor.read(page.cursor) if page.cursor else None
    rows = _rows(statement, page.limit, cursor, at, id, oldest_first)
    if cursor and not cursor.after and not rows:
        # Whoever walked back past the first row wants the first page, not an empty one.
        cursor = None
        rows = _rows(statement, page.limit, None, at, id, oldest_first)
    more = len(rows) > page.limit
    rows = rows[: page.limit]
    backwards = cursor is not None and not cursor.after
    if backwards:
        rows.reverse()
    follows = bool(rows) and (more or backwards)
    precedes = bool(rows) and (more if backwards else cursor is not None)
    if count is None:
        count = count_up_to(id, where)
    return Slice(
        [row[:-2] for row in rows],
        Cursor(True, rows[-1][-2], rows[-1][-1]).text() if follows else None,
        Cursor(False, rows[0][-2], rows[0][-1]).text() if precedes else None,
        min(count, COUNTED),
        count > COUNTED,
    )


def _rows(
    statement: Select[*tuple[Any, ...]], limit: int, cursor: Cursor | None, at: Any, id: Any, oldest_first: bool
) -> list[tuple[Any, ...]]:
    rising = oldest_first != (cursor is not None and not cursor.after)
    if cursor is not None:
        place = tuple_(at, id)
        key = tuple_(cursor.at, cursor.id)
        statement = statement.where(place > key if rising else place < key)
    order = (at.asc(), id.asc()) if rising else (at.desc(), id.desc())
    wanted = statement.add_columns(at.label("page_at"), id.label("page_id")).order_by(*order).limit(limit + 1)
    return [tuple(row) for row in db.session.execute(wanted)]


def count_up_to(id: Any, where: list[ColumnElement[bool]], most: int = COUNTED) -> int:
    """How many rows meet the conditions; one more than `most` stands for all beyond."""
    few = select(id).where(*where).limit(most + 1).subquery()
    return db.session.scalar(select(func.count()).select_from(few)) or 0


def empty() -> Slice[Any]:
    """A page of nothing."""
    return Slice([])
