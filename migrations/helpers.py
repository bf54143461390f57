"""What several revisions share. Revisions never import the models: those move on, a revision stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from alembic import op


def run(script: str) -> None:
    """Run SQL as it is written, several statements at once: no parameters, so `%` and `:` mean themselves."""
    op.get_bind().exec_driver_sql(script, execution_options={"no_parameters": True})


def drop_tables(*names: str) -> None:
    """Drop tables, the last created first."""
    for name in reversed(names):
        run(f"DROP TABLE {name}")


def wall(table: str, condition: str = "tenant_id = app_tenant()") -> None:
    """Row-level security for everyone, the table's owner too: only rows that fit the condition exist."""
    run(f"""
        ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
        ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
        CREATE POLICY {table}_tenant ON {table} USING ({condition}) WITH CHECK ({condition});
    """)


def tear_down(table: str) -> None:
    run(f"""
        DROP POLICY {table}_tenant ON {table};
        ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY;
        ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;
    """)


@contextmanager
def whole_tables(*names: str) -> Iterator[None]:
    """Let the owner, who migrates, see the rows of all workspaces for a while. Others see what they saw before."""
    for name in names:
        run(f"ALTER TABLE {name} NO FORCE ROW LEVEL SECURITY")
    yield
    for name in names:
        run(f"ALTER TABLE {name} FORCE ROW LEVEL SECURITY")


@contextmanager
def as_door() -> Iterator[None]:
    """Create or drop functions as the role that owns the doors. It may create things only meanwhile."""
    run("GRANT CREATE ON SCHEMA public TO upshot_door; SET LOCAL ROLE upshot_door")
    yield
    run("RESET ROLE; REVOKE CREATE ON SCHEMA public FROM upshot_door")


def amend_function(signature: str, *changes: tuple[str, str]) -> None:
    """Replace texts in a function's body, wherever they occur. Fails where one does not occur at all."""
    connection = op.get_bind()
    body: str = connection.exec_driver_sql(f"SELECT pg_get_functiondef('{signature}'::regprocedure)").scalar_one()
    for before, after in changes:
        if before not in body:
            raise ValueError(f"{signature} does not say {before!r}")
        body = body.replace(before, after)
    run(body)
