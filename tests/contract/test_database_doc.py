"""docs/DATABASE.md lists every table and column there is, and none that is not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg

PAGE = (Path(__file__).resolve().parents[2] / "docs/DATABASE.md").read_text()
SHORT = {"timestamp with time zone": "timestamptz", "character varying": "varchar"}


def tables() -> dict[str, dict[str, tuple[str, str]]]:
    """What the page says: table → column → (type, meaning)."""
    sections = re.split(r"^### `(\w+)`\n", PAGE, flags=re.MULTILINE)
    listed = {}
    for name, body in zip(sections[1::2], sections[2::2], strict=True):
        rows = re.findall(r"^\| `(\w+)` \| ([^|]+?) \| ([^|]+?) \|$", body, flags=re.MULTILINE)
        listed[name] = {column: (kind, meaning) for column, kind, meaning in rows}
    return listed


def ask(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()


def test_every_table_and_column_is_there(superuser_url: str) -> None:
    columns = ask(
        superuser_url,
        "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_class c JOIN pg_attribute a"
        " ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " WHERE c.relkind IN ('r', 'p', 'v', 'm') AND c.relnamespace = 'public'::regnamespace",
    )
    there: dict[str, dict[str, str]] = {}
    for table, column, kind in columns:
        for long, short in SHORT.items():
            kind = kind.replace(long, short)
        there.setdefault(table, {})[column] = kind
    said = {table: {name: kind for name, (kind, _) in columns.items()} for table, columns in tables().items()}
    assert said == there


def test_every_meaning_is_a_sentence() -> None:
    for table, columns in tables().items():
        for column, (_, meaning) in columns.items():
            assert re.match(r"[A-Z0-9`].*\.$", meaning), f"{table}.{column}: {meaning}"


def test_every_door_guard_and_role_is_there(superuser_url: str) -> None:
    public = "'public'::regnamespace"
    doors = ask(superuser_url, f"SELECT proname FROM pg_proc WHERE prosecdef AND pronamespace = {public}")
    assert {name for (name,) in doors} == set(re.findall(r"^\| `(door_\w+)\(", PAGE, flags=re.MULTILINE))
    bodies = " ".join(
        body for (body,) in ask(superuser_url, f"SELECT prosrc FROM pg_proc WHERE pronamespace = {public}")
    )
    rules = set(re.findall(r"CONSTRAINT = '(\w+)'", bodies))
    assert rules == set(re.findall(r"\| `(\w+)` \|$", PAGE, flags=re.MULTILINE))
    guarded = ask(superuser_url, "SELECT DISTINCT tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal")
    guards = PAGE.split("## Guards")[1].split("\n## ")[0]
    assert [table for (table,) in guarded if f"`{table}`" not in guards] == []
    for role in ("upshot_owner", "upshot_app", "upshot_door"):
        assert f"| `{role}` |" in PAGE
