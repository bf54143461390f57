"""Pages of a list narrowed by something that no index knows: how long it took, whether it has a tag, how it was rated.

Such a page looks at a bounded stretch of the list, from its cursor on, and keeps what fits. It costs the same whatever
the size of the table. A page may therefore be short although more follows; its cursor says how far it has looked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, literal, select, tuple_, union_all
from sqlalchemy.sql.elements import ColumnElement

from app.db import db
from app.db.paging import COUNTED, Cursor, Page, Slice

Condition = ColumnElement[bool]
Sieve = Callable[[Any], list[Condition]]
MATCH, EDGE = 1, 2


@dataclass(frozen=True)
class Stretch:
    """Which part of a list is looked at: its order, what an index narrows it by, what the sieve needs of each row."""

    at: Any
    id: Any
    where: list[Condition]
    carried: Mapping[str, Any]
    sieve: Sieve
    looked_at: int
    oldest_first: bool = False


def walk_page(statement: Select[*tuple[Any, ...]], page: Page, stretch: Stretch) -> Slice[tuple[Any, ...]]:
    """One page of the rows that fit, and how many fit in the stretch that was looked at. Two queries."""
    cursor = Cursor.read(page.cursor) if page.cursor else None
    found, edge = _walk(stretch, cursor)
    backwards = cursor is not None and not cursor.after
    if backwards and not found and edge is None:
        # Whoever walked back past the first row wants the first page, not an empty one.
        cursor, backwards = None, False
        found, edge = _walk(stretch, None)
    ahead = found[page.limit - 1] if len(found) > page.limit else edge
    shown = found[: page.limit]
    rows = _rows(statement, stretch, [row[1] for row in shown])
    behind = (shown[0] if shown else (cursor.at, cursor.id)) if cursor else None
    older, newer = (behind, ahead) if backwards else (ahead, behind)
    more = cursor is not None or edge is not None or len(found) > COUNTED
    return Slice(rows, _text(True, older), _text(False, newer), min(len(found), COUNTED), more)


def places(stretch: Stretch) -> tuple[list[tuple[Any, Any]], bool]:
    """The places of what fits, up to one more than lists count, and whether there is more to look at."""
    found, edge = _walk(stretch, None)
    return found, edge is not None


def _text(after: bool, place: tuple[Any, Any] | None) -> str | None:
    return Cursor(after, place[0], place[1]).text() if place else None


def _walk(stretch: Stretch, cursor: Cursor | None) -> tuple[list[tuple[Any, Any]], tuple[Any, Any] | None]:
    """The places of what fits in the stretch after the cursor, and where it ends if the list goes on there."""
    at, id = stretch.at, stretch.id
    rising = stretch.oldest_first != (cursor is not None and not cursor.after)
    where = list(stretch.where)
    if cursor is not None:
        place, key = tuple_(at, id), tuple_(cursor.at, cursor.id)
        where.append(place > key if rising else place < key)
    order = (at.asc(), id.asc()) if rising else (at.desc(), id.desc())
    carried = [column.label(name) for name, column in stretch.carried.items()]
    looked = (
        select(at.label("place_at"), id.label("place_id"), *carried)
        .where(*where)
        .order_by(*order)
        .limit(stretch.looked_at)
        .cte("looked")
        .prefix_with("MATERIALIZED")
    )
    moment, name = looked.c.place_at, looked.c.place_id
    ways = (moment.asc(), name.asc()) if rising else (moment.desc(), name.desc())
    back = (moment.desc(), name.desc()) if rising else (moment.asc(), name.asc())
    full = select(func.count()).select_from(looked).scalar_subquery() >= stretch.looked_at
    fits = select(moment, name).where(*stretch.sieve(looked.c)).order_by(*ways).limit(COUNTED + 1).subquery()
    last = select(moment, name).where(full).order_by(*back).limit(1).subquery()
    both = union_all(select(literal(MATCH), *fits.c), select(literal(EDGE), *last.c))
    rows = [tuple(row) for row in db.session.execute(both)]
    found = sorted((row[1:] for row in rows if row[0] == MATCH), reverse=not rising)
    return found, next((row[1:] for row in rows if row[0] == EDGE), None)


def _rows(statement: Select[*tuple[Any, ...]], stretch: Stretch, ids: list[Any]) -> list[tuple[Any, ...]]:
    if not ids:
        return []
    order = (stretch.at.asc(), stretch.id.asc()) if stretch.oldest_first else (stretch.at.desc(), stretch.id.desc())
    rows = db.session.execute(statement.where(*stretch.where, stretch.id.in_(ids)).order_by(*order))
    return [tuple(row) for row in rows]
