"""Full-text search. Under row-level security PostgreSQL uses no text index, so the search goes through a door that
returns ids of the bound workspace; the rows are then read as usual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Uuid, any_, literal, text
from sqlalchemy.sql.elements import ColumnElement

from app.db import db
from app.services.filter_base import Filters
from app.services.pages import COUNTED, Page

MOST = 1000
KINDS = ("feedback", "sessions", "chats", "knowledge")
ONE = text("SELECT * FROM door_search(:kind, :query, :most)")
# A conversation is found by its title and by what was said in it.
CHATS = text(
    "SELECT * FROM door_search('chats', :query, :most) UNION SELECT * FROM door_search('messages', :query, :most)"
)
# The newest few cost little, and so does counting in any order; the newest thousand lie far apart in a large table.
FIRST = text("""
    SELECT ARRAY(SELECT id FROM door_search(:kind, :query, :shown)) AS ids,
           (SELECT count(*) FROM door_search('any ' || :kind, :query, :counted)) AS count
""")


@dataclass(frozen=True)
class Matches:
    """The rows of which a page is a part. `count` is None where something beside the words narrows the list."""

    ids: list[UUID]
    count: int | None = None

    def are(self, column: Any) -> ColumnElement[bool]:
        """The condition that a row is one of these. One value for all of them: a thousand take long to send and plan."""
        return column == any_(literal(self.ids, ARRAY(Uuid)))


def matching(kind: str, filters: Filters, page: Page) -> Matches:
    """What a page of rows with the words is taken from: for a first page that nothing else narrows what it shows, else
    the newest 1,000."""
    if kind != "chats" and filters.only_words and page.cursor is None:
        asked = {"kind": kind, "query": filters.q, "shown": page.limit + 1, "counted": COUNTED + 1}
        return Matches(*db.session.execute(FIRST, asked).one())
    ids = matching_ids(kind, filters.q or "")
    return Matches(ids, len(ids) + (len(ids) >= MOST) if filters.only_words else None)


def matching_ids(kind: str, query: str) -> list[UUID]:
    """The newest 1,000 rows of a kind that have the words. What a member may not read is not found."""
    if kind not in KINDS:
        raise ValueError(f"{kind} cannot be searched")
    if kind == "chats":
        return list(db.session.scalars(CHATS, {"query": query, "most": MOST}))
    return list(db.session.scalars(ONE, {"kind": kind, "query": query, "most": MOST}))
