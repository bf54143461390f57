"""Full-text search. Under row-level security PostgreSQL uses no text index, so the search goes through a door that
returns ids of the bound workspace; the rows are then read as usual."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Uuid, any_, literal, text

from app.db import db
from app.db.paging import MAX_COUNT, Page
from app.services.lists.filters import Filters

MAX_MATCHES = 1000
ONE = text("SELECT * FROM door_search(:kind, :query, :most)")
# A conversation is found by its title and by what was said in it.
CHATS = text(
    "SELECT * FROM door_search('chats', :query, :most) UNION SELECT * FROM door_search('messages', :query, :most)"
)
# The newest few cost little, and so does counting in any order; the newest thousand lie far apart in a large table.
COUNTED_TOO = text("""
    SELECT ARRAY(SELECT id FROM door_search(:kind, :query, :shown)),
           (SELECT count(*) FROM door_search('any ' || :kind, :query, :counted))
""")


@dataclass(frozen=True)
class Matches:
    """The rows of which a page is a part. `count` is None where something beside the words narrows the list."""

    ids: list[UUID]
    count: int | None = None

    def are(self, column: Any) -> Any:
        """The condition that a row is one of these. They are one value: a thousand take long to send and to plan."""
        return column == any_(literal(self.ids, ARRAY(Uuid)))


def find_matches(kind: str, filters: Filters, page: Page) -> Matches:
    """What a page of rows with the words is taken from: the newest 1,000, or where nothing else narrows the list what
    its first page shows."""
    if kind == "chats" or not filters.only_words:
        return Matches(find_ids(kind, filters.q or ""))
    shown = MAX_MATCHES if page.cursor else page.limit + 1
    asked = {"kind": kind, "query": filters.q, "shown": shown, "counted": MAX_COUNT + 1}
    ids, count = db.session.execute(COUNTED_TOO, asked).one()
    return Matches(ids, count)


def find_ids(kind: str, query: str) -> list[UUID]:
    """The newest 1,000 rows of a kind that have the words. What a member may not read is not found."""
    statement = CHATS if kind == "chats" else ONE.bindparams(kind=kind)
    return list(db.session.scalars(statement, {"query": query, "most": MAX_MATCHES}))
