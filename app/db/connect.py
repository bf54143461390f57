"""One plain connection to PostgreSQL, or a sentence that says why there is none."""

from typing import Any

import psycopg

from app.errors import Unusable


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
