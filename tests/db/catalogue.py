"""Policies, rights, functions and triggers of a migrated database, as text. What alembic cannot compare.

After a change that is meant, `python -m tests.db.catalogue` writes tests/db/walls.txt anew; read the difference.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import psycopg

WALLS = Path(__file__).with_name("walls.txt")

QUERIES = (
    """SELECT format('table %s: row-level security %s', relname,
                     CASE WHEN relforcerowsecurity THEN 'forced' WHEN relrowsecurity THEN 'on' ELSE 'off' END)
         FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')""",
    """SELECT format('policy %s.%s: %s %s to %s using (%s) check (%s)', tablename, policyname, permissive, cmd,
                     array_to_string(roles, ', '), regexp_replace(qual, '\\s+', ' ', 'g'),
                     regexp_replace(with_check, '\\s+', ' ', 'g'))
         FROM pg_policies WHERE schemaname = 'public'""",
    """SELECT format('grant %s to %s: %s', table_name, grantee,
                     string_agg(privilege_type, ', ' ORDER BY privilege_type))
         FROM information_schema.table_privileges
        WHERE table_schema = 'public' AND grantee IN ('upshot_app', 'upshot_door', 'upshot_replay', 'PUBLIC')
        GROUP BY table_name, grantee""",
    """SELECT format('grant %s to %s: %s (%s)', table_name, grantee, privilege_type,
                     string_agg(column_name, ', ' ORDER BY column_name))
         FROM information_schema.column_privileges
        WHERE table_schema = 'public'
          AND (grantee = 'upshot_door' OR (grantee = 'upshot_replay' AND privilege_type = 'UPDATE'))
        GROUP BY table_name, grantee, privilege_type""",
    """SELECT format('function %s: owner %s, %s, for %s, body %s', oid::regprocedure, pg_get_userbyid(proowner),
                     CASE WHEN prosecdef THEN 'definer' ELSE 'invoker' END, array_to_string(proacl, ' '),
                     md5(regexp_replace(prosrc, '\\s+', ' ', 'g')))
         FROM pg_proc WHERE pronamespace = 'public'::regnamespace""",
    """SELECT format('trigger %s', pg_get_triggerdef(oid)) FROM pg_trigger WHERE NOT tgisinternal""",
)


def walls(url: str) -> str:
    """One line each, in order."""
    with psycopg.connect(url) as connection:
        rows: list[Any] = [row for query in QUERIES for row in connection.execute(query).fetchall()]
    return "\n".join(sorted(row[0] for row in rows)) + "\n"


def rewrite() -> None:
    from app.db.embedded.shared import Embedded
    from app.db.migrate import upgrade

    with tempfile.TemporaryDirectory() as place:
        embedded = Embedded(Path(place) / "postgres").start()
        upgrade(embedded.url("owner"))
        WALLS.write_text(walls(embedded.url("superuser")))
        embedded.release()


if __name__ == "__main__":
    rewrite()
