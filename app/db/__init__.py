"""The database as the app sees it: one session per request or job, bound to who acts at the start of each transaction.

Binding is one statement, local to the transaction (`set_config(…, true)`), so nothing leaks through the pool. Without
an actor nothing is bound and row-level security shows no rows.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from flask_sqlalchemy import SQLAlchemy
from flask_sqlalchemy.session import Session as FlaskSession
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.orm import Session, SessionTransaction

from app.actor import Actor
from app.db import direct
from app.db.types import Base

BIND = text(
    "select set_config('app.tenant_id', :tenant, true), set_config('app.user_id', :user, true),"
    " set_config('app.role', :role, true)"
)
# Until the transaction ends, the app is a role that may not write to the workspace.
BIND_REPLAY = text(f"{BIND.text}, set_config('role', 'upshot_replay', true)")


class RequestSession(FlaskSession):
    def close(self) -> None:
        """Give the connection back, if it is still alive."""
        with suppress(OperationalError, InterfaceError):
            super().close()


db = SQLAlchemy(
    model_class=Base, session_options={"class_": RequestSession, "autoflush": True, "expire_on_commit": False}
)


@event.listens_for(Session, "after_begin")
def bind_actor(session: Session, transaction: SessionTransaction, connection: Connection) -> None:
    """Tell PostgreSQL who acts. Savepoints inherit it from their transaction."""
    actor: Actor | None = session.info.get("actor")
    if actor is None or transaction.nested:
        return
    connection.execute(BIND_REPLAY if actor.hermetic else BIND, bound(actor))


def bound(actor: Actor) -> dict[str, str]:
    return {"tenant": str(actor.tenant_id), "user": str(actor.id), "role": actor.bound_role}


@contextmanager
def transaction() -> Iterator[Session]:
    """Commit what happens inside, or nothing of it."""
    session = db.session()
    try:
        yield session
        session.commit()
    except BaseException:
        session.rollback()
        raise


def run(
    statement: str, parameters: Mapping[str, Any], *, first: bool = False, last: bool = False
) -> list[tuple[Any, ...]]:
    """Run a statement in the session's transaction without building SQLAlchemy objects.

    For the hot paths, where those cost more than PostgreSQL does. `first` begins the transaction in the same round
    trip; `last` commits it, and the session's own commit then has nothing to do.
    """
    session = db.session()
    session.flush()
    connection, driver = _connection_of(session)
    actor: Actor | None = session.info.get("actor")
    try:
        if first:
            return direct.begin_with(driver, statement, parameters)
        if last:
            return direct.end_with(driver, statement, parameters)
        return direct.execute(driver, statement, parameters, in_replay=actor is not None and actor.hermetic)
    except psycopg.Error as error:
        dead = bool(driver.closed)
        if dead:
            # What killed this connection killed those that wait in the pool as well.
            connection.invalidate(error)
            connection.engine.dispose()
        raise DBAPIError.instance(statement, None, error, psycopg.Error, connection_invalidated=dead) from error


def _connection_of(session: Session) -> tuple[Connection, Any]:
    """The SQLAlchemy connection of the session's transaction and psycopg's under it, looked up once per transaction."""
    known = session.info.get("direct")
    if known is None or known[0] is not session.get_transaction():
        connection = session.connection()
        known = (session.get_transaction(), connection, connection.connection.driver_connection)
        session.info["direct"] = known
    return known[1], known[2]


def act_as(actor: Actor | None) -> None:
    """Work for the actor from the next transaction on. Rolls back what is open."""
    db.session.rollback()
    db.session().info["actor"] = actor


@contextmanager
def acting_as(actor: Actor | None) -> Iterator[None]:
    """Work for the actor inside the block, and for the previous actor again after it."""
    before = db.session().info.get("actor")
    act_as(actor)
    try:
        yield
    finally:
        act_as(before)


def engine_options(threads: int) -> dict[str, Any]:
    """A pool that never runs dry before the threads do, and gives up in time to answer 503.

    The connection that came back last goes out first: its server process still has at hand what a request needs.

    Connections are not pinged before use: that would cost a round trip on every request. The statement that signs a
    request in is the first on its connection and is simply tried once more when the connection turns out dead.
    """
    return {
        "pool_size": threads,
        "max_overflow": 4,
        "pool_timeout": 2,
        "pool_use_lifo": True,
        "pool_recycle": 1800,
    }
