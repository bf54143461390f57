"""One plain connection to PostgreSQL and the schema that it finds there, without SQLAlchemy and Alembic."""

import importlib.util
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import psycopg

from app.actor import Actor
from app.errors import Unusable

Connection: TypeAlias = psycopg.Connection[Any]
# Runs a statement with `%(name)s` parameters in the caller's transaction and gives its rows.
Run: TypeAlias = Callable[[str, Mapping[str, Any]], list[tuple[Any, ...]]]
BIND = (
    "select set_config('app.tenant_id', %(tenant)s, true), set_config('app.user_id', %(user)s, true),"
    " set_config('app.role', %(role)s, true)"
)
HEADER = re.compile(r'^(revision|down_revision) = "(\w+)"', re.M)


def connect(url: str, name: str) -> Connection:
    """Connect, or raise one sentence about why that failed."""
    try:
        return psycopg.connect(url, connect_timeout=5, application_name="upshot")
    except psycopg.ProgrammingError:
        raise Unusable(
            f"{name} is not a PostgreSQL address; write postgresql://user:password@host:5432/name."
        ) from None
    except psycopg.OperationalError as trouble:
        lines = [line.strip() for line in str(trouble).splitlines() if line.strip() and not line.startswith("\t")]
        reason = lines[0].rstrip(".") if lines else "no answer"
        raise Unusable(f"Cannot reach {name}: {reason}. Check host, port, name, user and password.") from None


def run_on(connection: Connection) -> Run:
    def run(statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        cursor = connection.execute(statement.encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    return run


def bound(actor: Actor) -> dict[str, str]:
    """The parameters of BIND, which makes the rest of the transaction work for the actor."""
    return {"tenant": str(actor.tenant_id), "user": str(actor.id), "role": actor.bound_role}


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
