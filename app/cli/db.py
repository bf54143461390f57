"""`upshot db …`: roles, schema and addresses."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import psycopg

from app.cli.output import emit, json_option, plain_failures
from app.config import Settings
from app.errors import Unusable


@click.group()
def db() -> None:
    """Set up, upgrade and check the database."""


@contextmanager
def owner_url() -> Iterator[str]:
    """The owner's address: the embedded server's (started for as long as it is needed) or the operator's."""
    settings = Settings.from_env()
    if settings.embedded:
        embedded = _embedded(settings).start()
        try:
            yield embedded.url("owner")
        finally:
            embedded.release()
    elif settings.owner_database_url:
        yield settings.owner_database_url
    else:
        raise Unusable("Set UPSHOT_OWNER_DATABASE_URL to the owner's address. `upshot db init` prints one.")


def _embedded(settings: Settings) -> Any:
    from app.db.embedded.shared import Embedded

    return Embedded(settings.data_dir / "postgres")


@db.command()
@click.argument("revision", default="head")
@json_option
@plain_failures
def upgrade(revision: str, as_json: bool) -> None:
    """Upgrade the schema to REVISION (default: newest)."""
    _migrate("upgrade", revision, as_json)


@db.command()
@click.argument("revision")
@json_option
@plain_failures
def downgrade(revision: str, as_json: bool) -> None:
    """Downgrade the schema to REVISION (`base` empties the database)."""
    _migrate("downgrade", revision, as_json)


def _migrate(direction: str, revision: str, as_json: bool) -> None:
    from app.db import migrate

    with owner_url() as url:
        getattr(migrate, direction)(url, revision)
        at = _revision(url)
    emit({"revision": at}, f"The schema is at {at or 'the beginning'}.", as_json)


@db.command()
@json_option
@plain_failures
def check(as_json: bool) -> None:
    """Check that the schema matches this version. Exits with 1 if it doesn't."""
    from app.db import migrate

    with owner_url() as url:
        differences = migrate.check(url)
        at = _revision(url)
    ok = not differences
    text = f"The schema is at {at} and as expected." if ok else "\n".join(["The schema differs:", *differences])
    emit({"ok": ok, "revision": at, "differences": differences}, text, as_json)
    if not ok:
        raise SystemExit(1)


@db.command()
@click.option("--url", "privileged", required=True, help="Address of the database as a superuser or CREATEROLE role.")
@click.option("--new-passwords", is_flag=True, help="Give existing roles new passwords.")
@json_option
@plain_failures
def init(privileged: str, new_passwords: bool, as_json: bool) -> None:
    """Create the owner and app roles in a database and print both addresses."""
    from app.db.boot import check_server
    from app.db.connect import connect
    from app.db.roles import ensure_roles

    owner_password, app_password = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    with connect(privileged, "the database of --url") as connection:
        check_server(connection)
        known = connection.execute("select 1 from pg_roles where rolname = 'upshot_app'").fetchone()
        if known and not new_passwords:
            raise Unusable(
                "The roles are on this server already; --new-passwords gives them new ones, and every Upshot that uses"
                " them needs the new addresses then."
            )
        connection.rollback()
        connection.autocommit = True
        try:
            ensure_roles(
                connection, owner_password=owner_password, app_password=app_password, dbname=connection.info.dbname
            )
        except psycopg.errors.InsufficientPrivilege:
            raise Unusable(f"The role {connection.info.user} may not make roles; use a superuser's address.") from None
        owner = _address(connection, "upshot_owner", owner_password)
        app = _address(connection, "upshot_app", app_password)
    lines = [f"UPSHOT_OWNER_DATABASE_URL={owner}", f"UPSHOT_DATABASE_URL={app}"]
    emit({"owner": owner, "app": app}, "\n".join(lines), as_json)


@db.command()
@click.option("--role", type=click.Choice(["app", "owner"]), default="app", show_default=True)
@json_option
@plain_failures
def url(role: str, as_json: bool) -> None:
    """Print the database address, including the embedded server's."""
    settings = Settings.from_env()
    if settings.embedded:
        found = _embedded(settings).url(role)
    else:
        found = settings.database_url if role == "app" else settings.owner_database_url
    if not found:
        raise Unusable("UPSHOT_OWNER_DATABASE_URL is not set.")
    emit({"url": found, "role": role}, found, as_json)


def _revision(url: str) -> str | None:
    from app.db.connect import current

    with psycopg.connect(url) as connection:
        return current(connection)


def _address(connection: psycopg.Connection[Any], user: str, password: str) -> str:
    """The same server and database for another role, as a URL."""
    from urllib.parse import quote

    info = connection.info
    host = f"[{info.host}]" if ":" in info.host else quote(info.host, safe="")
    return f"postgresql://{user}:{quote(password, safe='')}@{host}:{info.port}/{quote(info.dbname, safe='')}"
