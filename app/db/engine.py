"""The database as the app sees it: one session per request or job, bound to who acts at the start of each transaction.

Binding is one statement, local to the transaction (`set_config(…, true)`), so nothing leaks through the pool. Without
an actor nothing is bound and row-level security shows no rows.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from flask_sqlalchemy.session import Session as FlaskSession
from sqlalchemy import Connection, ExceptionContext, event, select
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.orm import Session, SessionTransaction

from app.actor import Actor
from app.config import Settings
from app.db import direct
from app.db.boot import Opened
from app.db.connect import BIND, bound
from app.db.types import Base
from app.db.watch import DatabaseWatch
from app.errors import NotFound

Row = TypeVar("Row")
# A server that vanished is noticed within ten seconds. Connections by socket file ignore all but the first.
NETWORK_TIMEOUTS: dict[str, Any] = {
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
# Until the transaction ends, the app is a role that may not write to the workspace.
BIND_REPLAY = f"{BIND}, set_config('role', 'upshot_replay', true)"


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
    connection.exec_driver_sql(BIND_REPLAY if actor.hermetic else BIND, bound(actor))


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
    """Run a statement in the session's transaction without building SQLAlchemy objects. For the hot paths, where those
    cost more than PostgreSQL does. `first` begins the transaction in the same round trip; `last` commits it, and the
    session's own commit then has nothing to do."""
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


def get_own(model: type[Row], row_id: UUID | None, noun: str, *, actor: Actor, lock: bool = False) -> Row:
    """Return the row or raise NotFound. `lock` holds it until the transaction ends and reads it again."""
    columns: Any = model
    statement = select(model).where(columns.tenant_id == actor.tenant_id, columns.id == row_id)
    if lock:
        statement = statement.with_for_update().execution_options(populate_existing=True)
    found = db.session.scalar(statement)
    if found is None:
        raise NotFound(f"There is no such {noun} in this workspace.")
    return found


def connect_app(app: Flask, opened: Opened, settings: Settings) -> None:
    """Give the app its pool. psycopg gets the address as it is, whatever form the operator wrote it in. The pool never
    runs dry before the threads do, and gives up in time to answer 503. Connections are not pinged, which would cost a
    round trip on every request: the statement that signs a request in is tried once more on a dead one."""

    def connect() -> direct.Connection:
        connection = direct.Connection.connect(opened.app_url, application_name="upshot", **NETWORK_TIMEOUTS)
        connection.use_statements(prepared=settings.prepares_statements)
        return connection

    app.config["SQLALCHEMY_DATABASE_URI"] = "postgresql+psycopg://"
    app.config["SQLALCHEMY_ENGINE_OPTIONS"] = {
        "creator": connect,
        # Runs have threads of their own that ask the database.
        "pool_size": settings.threads + (settings.run_threads if settings.runs_agents else 0),
        "max_overflow": 4,
        "pool_timeout": 2,
        "pool_use_lifo": True,
        "pool_recycle": 1800,
    }
    app.extensions["upshot.opened"] = opened
    app.extensions["upshot.watch"] = DatabaseWatch(opened.app_url)
    db.init_app(app)
    with app.app_context():
        event.listen(db.engine, "handle_error", _drop_outdated)


def _drop_outdated(context: ExceptionContext) -> None:
    """Give up the connections of the pool after an upgrade under a running server changed what a prepared statement
    returns: they would refuse that statement for as long as they live. The next transaction gets a new one."""
    if isinstance(context.original_exception, psycopg.errors.FeatureNotSupported):
        context.is_disconnect = True
