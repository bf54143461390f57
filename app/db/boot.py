"""Opening the database: the embedded one or the operator's, and refusing what would not be safe."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.config import Settings
from app.db.connect import Connection, connect, is_current, refuse_newer
from app.errors import Unusable
from app.tokens import read_or_make

if TYPE_CHECKING:
    from app.db.embedded.shared import Embedded

OLDEST_SERVER = 150000


@dataclass(frozen=True)
class Opened:
    """A database that is ready for the app. `app_url` and `owner_url` are what psycopg connects with."""

    app_url: str
    secret_key: str
    owner_url: str | None = None
    embedded: Embedded | None = None


def open_database(settings: Settings) -> Opened:
    """Start or reach the database, bring the embedded one up to date, and check what must hold."""
    if settings.embedded:
        return _open_embedded(settings)
    with connect(settings.database_url, "UPSHOT_DATABASE_URL") as connection:
        check_server(connection)
        check_app_role(connection)
        check_current(connection)
    return Opened(settings.database_url, secret_key(settings), settings.owner_database_url or None)


def _open_embedded(settings: Settings) -> Opened:
    from app.db.embedded.shared import Embedded

    embedded = Embedded(settings.data_dir / "postgres").start()
    owner_url = embedded.url("owner")
    app_url = embedded.url("app")
    with connect(app_url, "the embedded database") as connection:
        if not is_current(connection):
            from app.db.migrate import upgrade

            upgrade(owner_url)
        check_server(connection)
        check_app_role(connection)
        check_durable(connection)
    return Opened(app_url, secret_key(settings), owner_url, embedded)


def secret_key(settings: Settings) -> str:
    """The operator's, or one that is made once and kept in the data directory."""
    if settings.secret_key:
        return settings.secret_key
    return read_or_make(settings.data_dir / "secret_key", lambda: secrets.token_urlsafe(48))


def check_server(connection: Connection) -> None:
    if connection.info.server_version < OLDEST_SERVER:
        raise Unusable(f"PostgreSQL {connection.info.server_version // 10000} is too old; use 15 or newer.")


def check_app_role(connection: Connection) -> None:
    """Row-level security is decoration for a superuser, for BYPASSRLS and for the owner of the tables."""
    row = connection.execute(
        "select current_user, r.rolsuper, r.rolbypassrls,"
        " exists(select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        "        where c.relowner = r.oid and n.nspname = 'public' and c.relkind in ('r', 'p'))"
        " from pg_roles r where r.rolname = current_user"
    ).fetchone()
    assert row is not None  # noqa: S101 - a session always has a role
    name, superuser, bypasses, owns = row
    if superuser or bypasses or owns:
        why = "is a superuser" if superuser else "may bypass row-level security" if bypasses else "owns the tables"
        raise Unusable(
            f"The role {name} in UPSHOT_DATABASE_URL {why}, so workspaces would not be kept apart;"
            " make a role of its own with `upshot db init` and use that."
        )


def check_durable(connection: Connection) -> None:
    """What was acknowledged must survive a crash."""
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        row = connection.execute("select current_setting(%s)", (name,)).fetchone()
        if row is None or row[0] != "on":
            raise Unusable(f"The embedded database runs with {name} off; remove that from its configuration.")


def check_current(connection: Connection) -> None:
    refuse_newer(connection)
    if not is_current(connection):
        raise Unusable(
            "The database is not at this version's schema; set UPSHOT_OWNER_DATABASE_URL and run `upshot db upgrade`."
        )
