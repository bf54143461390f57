"""Bring a database to a revision, and compare it with the models. Alembic, without its ini file."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from psycopg import errors
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.exc import ProgrammingError

from app.db.connect import connect, current, folder, head, refuse_newer
from app.errors import Unusable

LOCK = 0x75707368_6D696772  # Any number; the same for everyone who migrates a database.
# Columns, constraints and indexes of one schema, each as its full definition.
CATALOGUE = text("""
SELECT 'index', tablename, indexname, indexdef
  FROM pg_indexes WHERE schemaname = :schema
 UNION ALL
SELECT 'constraint', t.relname, c.conname, pg_get_constraintdef(c.oid)
  FROM pg_constraint AS c JOIN pg_class AS t ON t.oid = c.conrelid
 WHERE c.connamespace = CAST(:schema AS regnamespace) AND c.contype <> 'n'
 UNION ALL
SELECT 'column', t.relname, a.attname,
       concat_ws(' ', format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'not null' END, a.attgenerated,
                 pg_get_expr(d.adbin, d.adrelid))
  FROM pg_attribute AS a JOIN pg_class AS t ON t.oid = a.attrelid AND t.relkind IN ('r', 'p', 'v', 'm')
  LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE t.relnamespace = CAST(:schema AS regnamespace) AND a.attnum > 0 AND NOT a.attisdropped
""")
OPEN_TABLES = text("""
SELECT c.relname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT a.attisdropped
   AND NOT (c.relrowsecurity AND c.relforcerowsecurity
            AND EXISTS (SELECT FROM pg_policy AS p WHERE p.polrelid = c.oid AND p.polroles = '{0}' AND p.polcmd = '*'
                           AND pg_get_expr(p.polqual, c.oid) LIKE '%tenant_id = app_tenant()%'
                           AND pg_get_expr(p.polwithcheck, c.oid) LIKE '%tenant_id = app_tenant()%'))
 ORDER BY 1
""")
Definition = tuple[str, str, str, str]


def upgrade(owner_url: str, revision: str = "head") -> None:
    """All steps up to the revision, or none of them."""
    with _migrating(owner_url) as config:
        command.upgrade(config, revision)


def downgrade(owner_url: str, revision: str) -> None:
    """All steps down to the revision (`base` removes every table), or none of them."""
    with _migrating(owner_url) as config:
        command.downgrade(config, revision)


def check(owner_url: str) -> list[str]:
    """What differs between the database and this code, one sentence each; empty when nothing does."""
    with _engine(owner_url).connect() as connection:
        at = current(_driver(connection))
        if at != head():
            return [f"The database is at revision {at or 'none'} and this code needs {head()}: run upshot db upgrade."]
        return differences(connection)


def _config(connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _engine(url: str) -> Engine:
    """An engine for what psycopg understands: a URL or a `key=value` string."""
    conninfo = url.replace("postgresql+psycopg://", "postgresql://", 1)
    name = "the database as its owner"
    return create_engine("postgresql+psycopg://", creator=lambda: connect(conninfo, name), poolclass=NullPool)


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    found: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
    return found


@contextmanager
def _migrating(owner_url: str) -> Iterator[Config]:
    """Migrate in one transaction and one process at a time; a second process finds the work done."""
    with _engine(owner_url).begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
        refuse_newer(_driver(connection))
        try:
            yield _config(connection)
        except CommandError as error:
            raise Unusable(f"The database cannot go to that revision: {error}") from error
        except ProgrammingError as error:
            if isinstance(error.orig, errors.InsufficientPrivilege | errors.UndefinedObject):
                raise Unusable(
                    f"This role cannot migrate the database; run upshot db init first. ({error.orig})"
                ) from error
            raise


def differences(connection: Connection) -> list[str]:
    """One sentence for each difference. What the models would create is created beside it and rolled back."""
    there, wanted = definitions(connection, "public"), _of_models(connection)
    missing = [f"Missing: {_describe(item)}" for item in sorted(wanted - there)]
    extra = [f"Not in the models: {_describe(item)}" for item in sorted(there - wanted)]
    unwalled = [f"{table} has no forced row-level security." for table in connection.scalars(OPEN_TABLES)]
    return missing + extra + unwalled


def definitions(connection: Connection, schema: str) -> set[Definition]:
    rows = connection.execute(CATALOGUE, {"schema": schema})
    plain = (tuple(str(value).replace("scratch.", "").replace("public.", "") for value in row) for row in rows)
    return {(kind, table, name, text) for kind, table, name, text in plain if table != "alembic_version"}


def _of_models(connection: Connection) -> set[Definition]:
    import app.models  # noqa: F401 - fills the metadata
    from app.db import db

    with connection.begin_nested() as passing:
        connection.execute(text("CREATE SCHEMA scratch"))
        connection.execute(text("SET LOCAL search_path = scratch, public"))
        translated = connection.execution_options(schema_translate_map={None: "scratch"})
        db.metadata.create_all(translated, checkfirst=False)
        connection.execution_options(schema_translate_map=None)
        found = definitions(connection, "scratch")
        passing.rollback()
    return found


def _describe(item: Definition) -> str:
    kind, table, name, definition = item
    return f"{kind} {name} of {table}: {definition}"
