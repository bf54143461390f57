"""The roles and the database of Upshot on a PostgreSQL server: who owns, who works, who opens the doors.

`upshot_owner` owns the database and runs migrations, `upshot_app` serves requests and owns nothing, `upshot_door`
owns the functions that look past the tenant, `upshot_replay` is what the app becomes while it replays a golden: it
reads, and writes nothing of the workspace. None of them is a superuser and none bypasses row-level security.
"""

from typing import Any

import psycopg
from psycopg import sql

from app.errors import Unusable

OWNER, APP, DOOR, REPLAY = "upshot_owner", "upshot_app", "upshot_door", "upshot_replay"

# Raise it with every change of what ensure_roles does, so that databases made before are brought up to it.
MARK = "Upshot, roles 2"
_LOCK = 0x75707368  # Any number; the same for everyone who sets up roles on a server.

# The owner does not inherit: a policy written TO upshot_door must not show the owner a row. Membership alone is
# enough to hand a function over to the door with ALTER FUNCTION … OWNER TO.
_ATTRIBUTES = "NOINHERIT NOCREATEDB NOCREATEROLE"

Connection = psycopg.Connection[Any]


def ensure_roles(superuser_connection: Connection, *, owner_password: str, app_password: str, dbname: str) -> None:
    """Make the roles and the database, or bring existing ones up to date. Safe to repeat and to run twice at once."""
    with _another(superuser_connection, superuser_connection.info.dbname) as admin:
        admin.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        for role in (OWNER, APP, DOOR, REPLAY):
            _ensure_role(admin, role)
        explicit = " WITH INHERIT FALSE, SET TRUE" if admin.info.server_version >= 160000 else ""
        _run(admin, "GRANT {} TO {}" + explicit, DOOR, OWNER)
        _run(admin, "GRANT {} TO {}" + explicit, REPLAY, APP)
        _ensure_database(admin, dbname)
        with _another(superuser_connection, dbname) as inside, inside.transaction():
            _ensure_grants(inside, dbname)
            # The passwords come last: a role that can log in finds everything else in place.
            _set_password(inside, OWNER, owner_password)
            _set_password(inside, APP, app_password)


def are_ready(superuser_connection: Connection, dbname: str) -> bool:
    """Whether ensure_roles, as it is now, has finished for this database."""
    row = superuser_connection.execute(
        "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s", (dbname,)
    ).fetchone()
    return row is not None and row[0] == MARK


def _another(connection: Connection, dbname: str) -> Connection:
    """A second connection of the same user, in autocommit: CREATE DATABASE cannot run inside a transaction."""
    return psycopg.connect(connection.info.dsn, password=connection.info.password, dbname=dbname, autocommit=True)


def _run(connection: Connection, statement: str, *names: str) -> None:
    """Run a statement with identifiers in its places."""
    connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def _ensure_role(admin: Connection, role: str) -> None:
    row = admin.execute("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = %s", (role,)).fetchone()
    verb = "CREATE" if row is None else "ALTER"
    login = "LOGIN" if role in (OWNER, APP) else "NOLOGIN"
    _run(admin, f"{verb} ROLE {{}} {login} {_ATTRIBUTES}", role)
    if row is not None and row[0]:
        _weaken(admin, role)


def _weaken(admin: Connection, role: str) -> None:
    """Said only when it is needed: on most servers only a superuser may even mention these attributes."""
    try:
        _run(admin, "ALTER ROLE {} NOSUPERUSER NOBYPASSRLS", role)
    except psycopg.errors.InsufficientPrivilege as error:
        raise Unusable(
            f"The role {role} is a superuser or bypasses row-level security: "
            f"have a superuser run ALTER ROLE {role} NOSUPERUSER NOBYPASSRLS."
        ) from error


def _ensure_database(admin: Connection, dbname: str) -> None:
    superuser = admin.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
    if superuser is not None and not superuser[0]:
        _run(admin, "GRANT {} TO CURRENT_USER", OWNER)
    owner = admin.execute("SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = %s", (dbname,)).fetchone()
    if owner is None:
        _run(admin, "CREATE DATABASE {} OWNER {} TEMPLATE template0 ENCODING 'UTF8'", dbname, OWNER)
    elif owner[0] != OWNER:
        _run(admin, "ALTER DATABASE {} OWNER TO {}", dbname, OWNER)


def _ensure_grants(inside: Connection, dbname: str) -> None:
    _run(inside, "REVOKE ALL ON DATABASE {} FROM PUBLIC", dbname)
    _run(inside, "GRANT CONNECT ON DATABASE {} TO {}, {}", dbname, OWNER, APP)
    _own_schema(inside)
    _run(inside, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    _run(inside, "GRANT USAGE ON SCHEMA public TO {}, {}, {}", APP, DOOR, REPLAY)
    _run(inside, "ALTER ROLE {} IN DATABASE {} SET statement_timeout = '10s'", APP, dbname)
    _run(inside, "ALTER ROLE {} IN DATABASE {} SET lock_timeout = '5s'", APP, dbname)
    _run(inside, "ALTER ROLE {} IN DATABASE {} SET idle_in_transaction_session_timeout = '30s'", APP, dbname)
    inside.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(sql.Identifier(dbname), sql.Literal(MARK)))


def _own_schema(inside: Connection) -> None:
    """On PostgreSQL 15 an administrator who is no superuser reaches the schema only through an owner who inherits."""
    owner = inside.execute("SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'public'").fetchone()
    if owner != (OWNER,):
        _run(inside, "ALTER ROLE {} INHERIT", OWNER)
        _run(inside, "ALTER SCHEMA public OWNER TO {}", OWNER)
        _run(inside, "ALTER ROLE {} NOINHERIT", OWNER)


def _set_password(inside: Connection, role: str, password: str) -> None:
    """Only the hash travels, so that no log of statements can hold the password."""
    digest = inside.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    inside.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(digest)))
