"""One search over everything: records by their words, agents and entities by how their names begin, anything by its id.

Two queries, whatever is looked for. Members find what is theirs.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text

from app.actor import Actor
from app.db import db
from app.errors import Invalid

KINDS = ("session", "chat", "feedback", "knowledge", "agent", "entity")
MAX_RESULTS = 5
# How many rows with the words are looked through: a member's own may stand far behind those of others. With fewer
# PostgreSQL would walk through the rows by time instead of asking the text index.
SCAN_LIMIT = 1000
# Among how many of the newest rows of each kind a short id is looked for.
RECENT = 2000
MAX_QUERY_LENGTH = 200
WHOLE_ID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
SHORT_ID = re.compile(r"[0-9a-f]{8}", re.ASCII | re.IGNORECASE)
OUTSIDE_ID = re.compile(r"\S{4,}")

# What each kind shows: its title, a few words beside it, and when.
ROWS: Mapping[str, str] = {
    "session": """SELECT 'session' AS kind, r.id, left(r.title, 200) AS title, r.status AS note, r.created_at AS at
        FROM sessions AS r WHERE r.tenant_id = :tenant AND (:all OR r.created_by = :me)""",
    "chat": """SELECT 'chat' AS kind, r.id, left(r.title, 200) AS title, '' AS note, r.last_message_at AS at
        FROM chats AS r WHERE r.tenant_id = :tenant AND (:all OR r.user_id = :me)""",
    "feedback": """SELECT 'feedback' AS kind, r.id,
        left(coalesce(nullif(r.comment, ''), replace(r.kind, '_', ' ')), 200) AS title,
        r.rating || ' · ' || r.status AS note, r.created_at AS at
        FROM feedback AS r WHERE r.tenant_id = :tenant AND (:all OR r.created_by = :me)""",
    "knowledge": """SELECT 'knowledge' AS kind, r.id, left(r.content, 200) AS title, r.type || ' · ' || r.state AS note,
        r.updated_at AS at FROM shared_context AS r WHERE r.tenant_id = :tenant AND r.state <> 'deleted'""",
    "agent": """SELECT 'agent' AS kind, r.id, r.name AS title, r.slug AS note, r.updated_at AS at
        FROM agents AS r WHERE r.tenant_id = :tenant AND r.merged_into IS NULL""",
    "entity": """SELECT 'entity' AS kind, r.id, left(r.name, 200) AS title,
        (SELECT t.name FROM entity_types AS t WHERE t.tenant_id = r.tenant_id AND t.id = r.entity_type_id) AS note,
        r.updated_at AS at FROM entities AS r WHERE r.tenant_id = :tenant""",
}
BY_NAME = "(lower(r.name) LIKE :prefix OR lower(r.name) LIKE :word)"
BY_WORDS: Mapping[str, str] = {
    "session": "r.id IN (SELECT id FROM door_search('sessions', :query, :looked_at))",
    "chat": """r.id IN (SELECT id FROM door_search('chats', :query, :looked_at)
                        UNION SELECT id FROM door_search('messages', :query, :looked_at))""",
    "feedback": "r.id IN (SELECT id FROM door_search('feedback', :query, :looked_at))",
    "knowledge": "r.id IN (SELECT id FROM door_search('knowledge', :query, :looked_at))",
    "agent": f"r.archived_at IS NULL AND (r.slug LIKE :prefix OR {BY_NAME})",
    "entity": BY_NAME,
}
RECENCY: Mapping[str, tuple[str, str]] = {
    "session": ("sessions", "created_at DESC, id DESC"),
    "chat": ("chats", "last_message_at DESC, id DESC"),
    "feedback": ("feedback", "created_at DESC, id DESC"),
    "knowledge": ("shared_context", "updated_at DESC, id DESC"),
    "agent": ("agents", "id"),
    "entity": ("entities", "id"),
}
OUTSIDE: Mapping[str, str] = {
    "session": "(r.external_id = :query OR r.trace_id = :query)",
    "chat": "r.external_id = :query",
}


@dataclass(frozen=True)
class Found:
    """A record that matches. `by_id` says that its id was asked for, not its words."""

    kind: str
    id: UUID
    title: str
    note: str | None
    at: datetime
    by_id: bool = False


def search_workspace(query: str, *, actor: Actor, kinds: Collection[str] = KINDS) -> list[Found]:
    """The newest few of each kind; what has the very id comes first."""
    query = clean(query)
    if not query or not kinds:
        return []
    wanted = [kind for kind in KINDS if kind in kinds]
    by_id = _by_id(query, wanted, actor)
    known = {found.id for found in by_id}
    return [*by_id, *(found for found in _by_words(query, wanted, actor) if found.id not in known)]


def clean(query: str) -> str:
    if len(query) > MAX_QUERY_LENGTH or "\x00" in query or any("\ud800" <= sign <= "\udfff" for sign in query):
        raise Invalid(
            f"q: At most {MAX_QUERY_LENGTH} characters of plain text.", {"q": f"At most {MAX_QUERY_LENGTH} characters."}
        )
    return " ".join(query.split())


def _by_words(query: str, kinds: list[str], actor: Actor) -> list[Found]:
    begins = re.sub(r"([\\%_])", r"\\\1", query.lower())
    values = {"query": query, "prefix": f"{begins}%", "word": f"% {begins}%", "looked_at": SCAN_LIMIT}
    return _read({kind: BY_WORDS[kind] for kind in kinds}, values, actor)


def _by_id(query: str, kinds: list[str], actor: Actor) -> list[Found]:
    """A whole id, the eight characters that pages show of it, or the id that another system gave."""
    if WHOLE_ID.fullmatch(query):
        where = dict.fromkeys(kinds, "r.id = CAST(:query AS uuid)")
    elif SHORT_ID.fullmatch(query):
        where = {kind: _ends_with(kind) for kind in kinds}
    elif OUTSIDE_ID.fullmatch(query):
        where = {kind: OUTSIDE[kind] for kind in kinds if kind in OUTSIDE}
    else:
        return []
    return _read(where, {"query": query, "recent": RECENT}, actor, by_id=True) if where else []


def _ends_with(kind: str) -> str:
    table, order = RECENCY[kind]
    recent = f"SELECT n.id FROM {table} AS n WHERE n.tenant_id = :tenant ORDER BY {order} LIMIT :recent"
    ends = f"r.id IN (SELECT n.id FROM ({recent}) AS n WHERE right(n.id::text, 8) = lower(:query))"
    return f"({ends} OR {OUTSIDE[kind]})" if kind in OUTSIDE else ends


def _read(where: Mapping[str, str], values: dict[str, Any], actor: Actor, *, by_id: bool = False) -> list[Found]:
    """Each kind is found first and put in order afterwards: for the sake of the newest few PostgreSQL would rather walk
    through all rows by time, and not find them for long."""
    parts = [
        f"(WITH m AS MATERIALIZED ({ROWS[kind]} AND {rule}) SELECT * FROM m ORDER BY at DESC LIMIT {MAX_RESULTS})"
        for kind, rule in where.items()
    ]
    rows = db.session.execute(
        text(" UNION ALL ".join(parts)),
        {"tenant": actor.tenant_id, "me": actor.id, "all": actor.is_admin, **values},
    )
    return [Found(row.kind, row.id, row.title, row.note, row.at, by_id) for row in rows]
