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

from app.db.connect import connect
from app.db.drift import differences
from app.db.revisions import current, folder, head, refuse_newer
from app.errors import Unusable

LOCK = 0x75707368_6D696772  # Any number; the same for everyone who migrates a database.


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
