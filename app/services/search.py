"""Full-text search. Under row-level security PostgreSQL uses no text index, so the search goes through a door that
returns ids of the bound workspace; the rows are then read as usual."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import text

from app.db import db

MOST = 1000
KINDS = ("feedback", "sessions", "chats", "knowledge")
ONE = text("SELECT * FROM door_search(:kind, :query, :most)")
# A conversation is found by its title and by what was said in it.
CHATS = text(
    "SELECT * FROM door_search('chats', :query, :most) UNION SELECT * FROM door_search('messages', :query, :most)"
)


def matching_ids(kind: str, query: str) -> list[UUID]:
    """The newest 1,000 rows of a kind that have the words. What a member may not read is not found."""
    if kind not in KINDS:
        raise ValueError(f"{kind} cannot be searched")
    if kind == "chats":
        return list(db.session.scalars(CHATS, {"query": query, "most": MOST}))
    return list(db.session.scalars(ONE, {"kind": kind, "query": query, "most": MOST}))
