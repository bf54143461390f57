"""Bring a database to a revision, and tell whether it is what this code expects. Alembic, without its ini file."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from psycopg import errors
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.exc import ProgrammingError

from app.db.connect import connect
from app.errors import Unusable

AnyConnection = Connection | psycopg.Connection[Any]
LOCK = 0x75707368_6D696772  # Any number; the same for everyone who migrates a database.


def upgrade(owner_url: str, revision: str = "head") -> None:
    """All steps up to the revision, or none of them."""
    with _migrating(owner_url) as config:
        command.upgrade(config, revision)


def downgrade(owner_url: str, revision: str) -> None:
    """All steps down to the revision (`base` removes every table), or none of them."""
    with _migrating(owner_url) as config:
        command.downgrade(config, revision)


def current(connection: AnyConnection) -> str | None:
    """The revision that the database is at; None when it was never migrated, or not so far that we may read it."""
    readable = "SELECT 'yes' WHERE has_table_privilege(to_regclass('public.alembic_version'), 'SELECT')"
    if _value(connection, readable) is None:
        return None
    return _value(connection, "SELECT version_num FROM alembic_version")


def _value(connection: AnyConnection, query: LiteralString) -> str | None:
    if isinstance(connection, psycopg.Connection):
        row = connection.execute(query).fetchone()
    else:
        row = connection.exec_driver_sql(query).fetchone()
    return row[0] if row else None


@cache
def head() -> str:
    """The newest revision that this code knows."""
    newest = _scripts().get_current_head()
    assert newest is not None  # noqa: S101 - migrations are part of the package
    return newest


def is_current(connection: AnyConnection) -> bool:
    return current(connection) == head()


def refuse_newer(connection: AnyConnection) -> None:
    """A database that a newer Upshot made is left alone."""
    at = current(connection)
    if at is not None and at not in _known():
        raise Unusable(
            f"This database was made by a newer Upshot (revision {at}): install that version or a newer one."
        )


def check(owner_url: str) -> list[str]:
    """What differs between the database and this code, one sentence each; empty when nothing does."""
    from app.db.drift import differences

    with _engine(owner_url).connect() as connection:
        at = current(connection)
        if at != head():
            return [f"The database is at revision {at or 'none'} and this code needs {head()}: run upshot db upgrade."]
        return differences(connection)


@cache
def _known() -> frozenset[str]:
    return frozenset(script.revision for script in _scripts().walk_revisions())


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _config(connection: Connection | None = None) -> Config:
    spec = importlib.util.find_spec("migrations")
    assert spec is not None  # noqa: S101 - installed beside this package
    assert spec.origin is not None  # noqa: S101
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(spec.origin).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _engine(url: str) -> Engine:
    """An engine for what psycopg understands: a URL or a `key=value` string."""
    conninfo = url.replace("postgresql+psycopg://", "postgresql://", 1)
    name = "the database as its owner"
    return create_engine("postgresql+psycopg://", creator=lambda: connect(conninfo, name), poolclass=NullPool)


@contextmanager
def _migrating(owner_url: str) -> Iterator[Config]:
    """One transaction, one process at a time: whoever comes second finds the work done."""
    with _engine(owner_url).begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
        refuse_newer(connection)
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
