"""Which schema a database has and which one this code needs. Alembic is not loaded for that."""

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from app.errors import Unusable

Connection = psycopg.Connection[Any]
HEADER = re.compile(r'^(revision|down_revision) = "(\w+)"', re.M)


def current(connection: Connection) -> str | None:
    """The revision of the database; None when it was never migrated, or not so far that we may read it."""
    readable = "SELECT has_table_privilege(to_regclass('public.alembic_version'), 'SELECT')"
    if connection.execute(readable).fetchone() != (True,):
        return None
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return row[0] if row else None


@cache
def head() -> str:
    """The newest revision that this code knows."""
    (newest,) = _parents().keys() - set(_parents().values())
    return newest


def is_current(connection: Connection) -> bool:
    return current(connection) == head()


def refuse_newer(connection: Connection) -> None:
    """Leave a database alone that a newer Upshot made."""
    at = current(connection)
    if at is not None and at not in _parents():
        raise Unusable(
            f"This database was made by a newer Upshot (revision {at}): install that version or a newer one."
        )


@cache
def _parents() -> dict[str, str | None]:
    """Every revision that this code knows and the one before it, as the migrations themselves say."""
    headers = [dict(HEADER.findall(path.read_text(encoding="utf-8"))) for path in folder().glob("versions/*.py")]
    return {header["revision"]: header.get("down_revision") for header in headers if header}


def folder() -> Path:
    """Where the migrations are installed."""
    spec = importlib.util.find_spec("migrations")
    assert spec is not None  # noqa: S101 - installed beside this package
    assert spec.origin is not None  # noqa: S101
    return Path(spec.origin).parent
