"""One search over everything: records by their words, agents and entities by how their names begin, anything by its id.

Two queries, whatever is looked for. Members find what is theirs.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text

from app.actor import Actor
from app.db import db
from app.errors import Invalid

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
BY_NAME = "(lower(r.name) LIKE :prefix OR lower(r.name) LIKE :word)"
TYPE_NAME = "(SELECT t.name FROM entity_types AS t WHERE t.tenant_id = r.tenant_id AND t.id = r.entity_type_id)"


def _search(door: str) -> str:
    return f"SELECT id FROM door_search('{door}', :query, :looked_at)"


@dataclass(frozen=True)
class Kind:
    """How the rows `r` of a table are shown and found: title, a few words beside it and time; which of them the reader
    may see; which have the words; and which have this id from another system. `newest` orders rows by recency."""

    table: str
    title: str
    note: str
    at: str
    readable: str
    by_words: str
    newest: str
    by_outside_id: str = ""


KINDS = {
    "session": Kind(
        "sessions", "r.title", "r.status", "r.created_at", "(:all OR r.created_by = :me)",
        f"r.id IN ({_search('sessions')})", "created_at DESC, id DESC",
        "(r.external_id = :query OR r.trace_id = :query)",
    ),
    "chat": Kind(
        "chats", "r.title", "''", "r.last_message_at", "(:all OR r.user_id = :me)",
        f"r.id IN ({_search('chats')} UNION {_search('messages')})", "last_message_at DESC, id DESC",
        "r.external_id = :query",
    ),
    "feedback": Kind(
        "feedback", "coalesce(nullif(r.comment, ''), replace(r.kind, '_', ' '))", "r.rating || ' · ' || r.status",
        "r.created_at", "(:all OR r.created_by = :me)", f"r.id IN ({_search('feedback')})", "created_at DESC, id DESC",
    ),
    "knowledge": Kind(
        "shared_context", "r.content", "r.type || ' · ' || r.state", "r.updated_at", "r.state <> 'deleted'",
        f"r.id IN ({_search('knowledge')})", "updated_at DESC, id DESC",
    ),
    "agent": Kind(
        "agents", "r.name", "r.slug", "r.updated_at", "r.merged_into IS NULL",
        f"r.archived_at IS NULL AND (r.slug LIKE :prefix OR {BY_NAME})", "id",
    ),
    "entity": Kind("entities", "r.name", TYPE_NAME, "r.updated_at", "true", BY_NAME, "id"),
}  # fmt: skip


def search_workspace(query: str, *, actor: Actor, kinds: Collection[str] = tuple(KINDS)) -> list[Any]:
    """The newest few of each kind, as rows of kind, id, title, note, at and `by_id`: whether its id was asked for, not
    its words. What has the very id comes first."""
    query = clean(query)
    if not query or not kinds:
        return []
    wanted = {name: kind for name, kind in KINDS.items() if name in kinds}
    begins = re.sub(r"([\\%_])", r"\\\1", query.lower())
    values = {"query": query, "prefix": f"{begins}%", "word": f"% {begins}%", "looked_at": SCAN_LIMIT, "recent": RECENT}
    by_id = _find_by_rules(
        {name: rule for name, kind in wanted.items() if (rule := _id_rule(query, kind))}, values, actor, True
    )
    known = {found.id for found in by_id}
    by_words = _find_by_rules({name: kind.by_words for name, kind in wanted.items()}, values, actor, False)
    return [*by_id, *(found for found in by_words if found.id not in known)]


def clean(query: str) -> str:
    if len(query) > MAX_QUERY_LENGTH or "\x00" in query or any("\ud800" <= sign <= "\udfff" for sign in query):
        raise Invalid.of({"q": f"At most {MAX_QUERY_LENGTH} characters of plain text."})
    return " ".join(query.split())


def _id_rule(query: str, kind: Kind) -> str:
    """A whole id, the eight characters that pages show of it, or the id that another system gave."""
    if WHOLE_ID.fullmatch(query):
        return "r.id = CAST(:query AS uuid)"
    if not SHORT_ID.fullmatch(query):
        return kind.by_outside_id if OUTSIDE_ID.fullmatch(query) else ""
    recent = f"SELECT n.id FROM {kind.table} AS n WHERE n.tenant_id = :tenant ORDER BY {kind.newest} LIMIT :recent"
    ends = f"r.id IN (SELECT n.id FROM ({recent}) AS n WHERE right(n.id::text, 8) = lower(:query))"
    return f"({ends} OR {kind.by_outside_id})" if kind.by_outside_id else ends


def _find_by_rules(rules: Mapping[str, str], values: dict[str, Any], actor: Actor, by_id: bool) -> list[Any]:
    """Each kind is found first and put in order afterwards: for the sake of the newest few PostgreSQL would rather walk
    through all rows by time, and not find them for long."""
    if not rules:
        return []
    parts = [
        f"(WITH m AS MATERIALIZED ({_select(name)} AND {rule}) SELECT * FROM m ORDER BY at DESC LIMIT {MAX_RESULTS})"
        for name, rule in rules.items()
    ]
    bound = {"tenant": actor.tenant_id, "me": actor.id, "all": actor.is_admin, "by_id": by_id, **values}
    return list(db.session.execute(text(" UNION ALL ".join(parts)), bound))


def _select(name: str) -> str:
    kind = KINDS[name]
    shown = f"'{name}' AS kind, r.id, left({kind.title}, 200) AS title, {kind.note} AS note, {kind.at} AS at"
    return (
        f"SELECT {shown}, CAST(:by_id AS boolean) AS by_id FROM {kind.table} AS r"
        f" WHERE r.tenant_id = :tenant AND {kind.readable}"
    )
