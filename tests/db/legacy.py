"""Legacy tables with what people really put into them, odd things included."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg

TENANT, OTHER = UUID(int=1), UUID(int=2)
ANN, BEN = UUID(int=11), UUID(int=12)
AGENT, CHAT, SESSION = UUID(int=21), UUID(int=22), UUID(int=23)
DEAL, NORTHWIND, CRITERIA = UUID(int=31), UUID(int=32), UUID(int=33)

PEOPLE = f"""
INSERT INTO tenants (id, slug, name) VALUES ('{TENANT}', 'first', 'First'), ('{OTHER}', 'second', 'Second');
INSERT INTO users (id, email, name) VALUES ('{ANN}', 'ann@example.test', 'Ann'), ('{BEN}', 'ben@example.test', 'Ben');
INSERT INTO agents (id, tenant_id, slug, name) VALUES ('{AGENT}', '{TENANT}', 'analyst', 'Analyst');
INSERT INTO chats (id, tenant_id, title, user_id, agent_id) VALUES ('{CHAT}', '{TENANT}', 'Deals', '{ANN}', '{AGENT}');
INSERT INTO sessions (id, tenant_id, title, agent_id, created_by, status)
    VALUES ('{SESSION}', '{TENANT}', 'Reads', '{AGENT}', '{ANN}', 'completed');
INSERT INTO messages (tenant_id, chat_id, session_id, message_index, turn_id, role, content, trace_id)
    VALUES ('{TENANT}', '{CHAT}', '{SESSION}', 1, 't1', 'agent', '12 m', 'trace-1');
INSERT INTO entity_types (id, tenant_id, slug, name) VALUES ('{DEAL}', '{TENANT}', 'deal', 'Deal');
INSERT INTO entities (id, tenant_id, entity_type_id, name) VALUES ('{NORTHWIND}', '{TENANT}', '{DEAL}', 'Northwind');
INSERT INTO criteria_sets (id, tenant_id, slug, name) VALUES ('{CRITERIA}', '{TENANT}', 'exact', 'Exact');
"""

THUMBS: list[tuple[Any, ...]] = [
    (UUID(int=101), TENANT, CHAT, 1, ANN, "up", None),
    (UUID(int=102), TENANT, CHAT, 1, ANN, "down", "Changed my mind"),
    (UUID(int=103), TENANT, CHAT, 9, BEN, "down", ""),
    (UUID(int=104), OTHER, "a chat we do not know", 0, BEN, "up", "Gut — süß 🍯"),
]

# id, values, extracted, status, reason, created_by, decided_by
RESPONSES: list[tuple[Any, ...]] = [
    (UUID(int=201), {"ebitda": 12}, True, "rejected", "In thousands", ANN, BEN),
    (UUID(int=202), {"ebitda": 12, "name": None}, True, "rejected", "Both wrong", None, None),
    (UUID(int=203), {"ebitda": 12}, False, "rejected", "Not the right year", ANN, None),
    (UUID(int=204), {}, False, "rejected", None, ANN, BEN),
    (UUID(int=205), {}, True, "rejected", "", ANN, BEN),
    (UUID(int=206), {}, False, "accepted", None, ANN, BEN),
    (UUID(int=207), {}, False, "submitted", "left over", ANN, None),
]

KNOWLEDGE: dict[tuple[UUID, str], Any] = {
    (TENANT, "corrections"): ["Figures are in thousands", {"content": "EBITDA, not EBIT", "context": "in PE deals"}],
    (TENANT, "lessons"): [
        "Ask for the year",
        " ask  for the YEAR ",
        "Ask for the year",
        {"content": "Quote the page"},
        {"content": "Round down", "context": "", "by": "ann"},
        {"content": "Keep it", "context": None},
        {"content": "Odd", "context": {"deep": [1, 2]}},
        "",
        "   ",
        None,
        12.50,
        True,
        [],
        {},
        ["nested"],
        {"text": "no content"},
        {"content": ""},
        {"content": 7, "context": "c"},
        "last",
    ],
    (TENANT, "routing"): "not even a list",
    (TENANT, "insights"): [],
    (OTHER, "guidelines"): ["Be brief"],
    (OTHER, "lessons"): {"content": "Alone", "context": "without a list"},
    (OTHER, "corrections"): None,
}


def fill_legacy(connection: psycopg.Connection[Any]) -> None:
    """What a database at revision 0001_legacy may hold."""
    connection.execute(PEOPLE)
    for thumb in THUMBS:
        connection.execute(
            "INSERT INTO chat_feedback (id, tenant_id, chat_id, message_index, user_id, rating, comment, created_at)"
            " VALUES (%s, %s, %s::text, %s, %s, %s, %s, '2025-03-04 05:06:07.89+00')",
            thumb,
        )
    for identity, values, extracted, status, reason, author, decider in RESPONSES:
        connection.execute(
            "INSERT INTO entity_responses (id, tenant_id, entity_id, criteria_set_id, session_id, agent_id, values,"
            " extracted, status, rejection_reason, created_by, decided_by, decided_at, created_at)"
            f" VALUES (%s, '{TENANT}', '{NORTHWIND}', '{CRITERIA}', '{SESSION}', '{AGENT}', %s, %s, %s, %s, %s, %s,"
            " '2025-02-02', '2025-01-01')",
            (identity, json.dumps(values), extracted, status, reason, author, decider),
        )
    fill_knowledge(connection, "shared_context")


def fill_knowledge(connection: psycopg.Connection[Any], table: str) -> None:
    for (tenant, key), value in KNOWLEDGE.items():
        connection.execute(f"INSERT INTO {table} VALUES (%s, %s, %s)", (tenant, key, json.dumps(value)))
    numbers = '[0.10000000000000000001, 1e400, 1.0, "in SQL"]'
    connection.execute(f"INSERT INTO {table} VALUES (%s, 'insights', %s)", (OTHER, numbers))


def legacy_rows(connection: psycopg.Connection[Any]) -> dict[str, list[str]]:
    """Every value of the legacy tables, as text."""
    return {
        table: [row[0] for row in connection.execute(f"SELECT t::text FROM {table} t ORDER BY 1").fetchall()]
        for table in ("chat_feedback", "shared_context", "entity_responses", "chats", "messages", "sessions")
    }
