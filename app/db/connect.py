"""One plain connection to PostgreSQL, without SQLAlchemy, or a sentence that says why there is none."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import psycopg

from app.actor import Actor
from app.errors import Unusable

# Runs a statement with `%(name)s` parameters in the caller's transaction and gives its rows.
Run: TypeAlias = Callable[[str, Mapping[str, Any]], list[tuple[Any, ...]]]
BIND = (
    "select set_config('app.tenant_id', %(tenant)s, true), set_config('app.user_id', %(user)s, true),"
    " set_config('app.role', %(role)s, true)"
)


def connect(url: str, name: str) -> psycopg.Connection[Any]:
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


def run_on(connection: psycopg.Connection[Any]) -> Run:
    def run(statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        cursor = connection.execute(statement.encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    return run


def bound(actor: Actor) -> dict[str, str]:
    """The parameters of BIND, which makes the rest of the transaction work for the actor."""
    return {"tenant": str(actor.tenant_id), "user": str(actor.id), "role": actor.bound_role}
