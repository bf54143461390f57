"""Statements that go straight to libpq: for what happens with every request and every thumb.

psycopg's cursors adapt, prepare and wait in Python, which costs more than PostgreSQL does. Here a statement is prepared
on its connection the first time, and from then on is one call that leaves the other threads alone while it waits.
"""

import re
import select
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from itertools import count
from typing import Any, Self

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, Escaping, ExecStatus, TransactionStatus

Rows = list[tuple[Any, ...]]


# How many statements a connection keeps prepared of ours, and as many of SQLAlchemy's.
MAX_PREPARED = 100
# The second time a statement comes, SQLAlchemy's cursor prepares it.
PREPARE_AFTER = 1
# Planning takes several times as long as running what pages ask. Queries are written so that one plan is right for
# every workspace: by an index in the order of the list, or over a window of so many rows.
ONE_PLAN = b"SET plan_cache_mode = force_generic_plan"


class Connection(psycopg.Connection[Any]):
    """A connection of the app's pool, which ends its transactions as directly. `prepared` has the statements that it
    knows, by whether a replay asks and by their text: the name there, the parameters in order, and what reads the rows.
    A replay acts as another role, and a plan is made anew whenever another role than before uses it. `reader` reads the
    rows of what is not prepared. Nothing is, where `prepares` is false."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.prepared: OrderedDict[tuple[bool, str], tuple[bytes, tuple[str, ...], Any]] = OrderedDict()
        self.reader = Transformer(self)
        self.prepares = True
        self.cursor_factory = Cursor

    def use_statements(self, *, prepared: bool) -> None:
        """Prepare statements, each with one plan for all its values, or send each anew."""
        self.prepares, self.prepared_max = prepared, MAX_PREPARED
        self.prepare_threshold = PREPARE_AFTER if prepared else None
        if prepared:
            _good(self, self.pgconn.exec_(ONE_PLAN))

    def commit(self) -> None:
        self._end(b"COMMIT")

    def rollback(self) -> None:
        self._end(b"ROLLBACK")

    def _end(self, command: bytes) -> None:
        if self.pgconn.transaction_status != TransactionStatus.IDLE:
            _good(self, self.pgconn.exec_(command))


class Cursor(psycopg.Cursor[Any]):
    """SQLAlchemy's cursor. psycopg would drop every statement of the connection, ours too, once it saw a rollback;
    PostgreSQL keeps them."""

    def execute(self, query: Any, params: Any = None, **more: Any) -> Self:
        if isinstance(query, str) and query.startswith("ROLLBACK TO SAVEPOINT "):
            _good(self.connection, self.connection.pgconn.exec_(query.encode()))
            return self
        return super().execute(query, params, **more)


_numbers = count()


def begin_with(connection: Connection, statement: str, parameters: Mapping[str, Any]) -> Rows:
    """Begin a transaction with a statement that has `%(name)s` parameters, in one round trip. It is for texts: each is
    written into the command as a literal. Nothing is prepared, since two commands in one message cannot be."""
    literals = {name: _literal(connection, value).decode() for name, value in parameters.items()}
    result = connection.pgconn.exec_(f"BEGIN; {statement % literals}".encode())
    return _rows(_good(connection, result), connection.reader)


def execute(connection: Connection, statement: str, parameters: Mapping[str, Any], *, in_replay: bool = False) -> Rows:
    """What a statement with `%(name)s` parameters gives, in the transaction of the connection."""
    inner = connection.pgconn
    if inner.transaction_status == TransactionStatus.IDLE:
        _good(connection, inner.exec_(b"BEGIN"))
    if not connection.prepares:
        numbered, names = _numbered(statement)
        given = inner.exec_params(numbered, [_text(parameters[one]) for one in names])
        return _rows(_good(connection, given), connection.reader)
    key = (in_replay, statement)
    name, names, reader = _prepared(connection, key)
    values: list[Any] = [_text(parameters[one]) for one in names]
    return _rows(_good(connection, inner.exec_prepared(name, values), key), reader)


def end_with(connection: Connection, statement: str, parameters: Mapping[str, Any]) -> Rows:
    """What a statement gives that is the last of its transaction, in one round trip with the commit: when it comes
    back, the transaction is committed. A statement that fails ends nothing."""
    if not connection.prepares:
        rows = execute(connection, statement, parameters)
        connection.commit()
        return rows
    inner = connection.pgconn
    key = (False, statement)
    name, names, reader = _prepared(connection, key)
    values: list[Any] = [_text(parameters[one]) for one in names]
    try:
        inner.enter_pipeline_mode()
        inner.send_query_prepared(name, values)
        inner.send_query_params(b"COMMIT", None)
        inner.pipeline_sync()
        given, committed = _answers(inner)
        inner.exit_pipeline_mode()
    except BaseException:
        # Nobody knows what is still under way on this connection.
        connection.close()
        raise
    rows = _rows(_good(connection, given, key), reader)
    _good(connection, committed)
    return rows


def _answers(inner: Any) -> list[Any]:
    """One result for each statement that was sent. Waiting is left to `poll`, which leaves the other threads alone."""
    waiting = select.poll()
    waiting.register(inner.socket, select.POLLIN | select.POLLOUT)
    while inner.flush():
        waiting.poll()
        inner.consume_input()
    waiting.modify(inner.socket, select.POLLIN)
    found: list[Any] = []
    while True:
        while inner.is_busy():
            waiting.poll()
            inner.consume_input()
        result = inner.get_result()
        if result is None:
            continue
        if result.status == ExecStatus.PIPELINE_SYNC:
            return found
        found.append(result)


def _prepared(connection: Connection, key: tuple[bool, str]) -> tuple[bytes, tuple[str, ...], Any]:
    """What the connection knows of the statement, which stays prepared when the transaction is rolled back. The one
    that was not used for the longest time makes room for another."""
    known = connection.prepared
    if key in known:
        known.move_to_end(key)
        return known[key]
    numbered, names = _numbered(key[1])
    name = f"upshot_{next(_numbers)}".encode()
    _good(connection, connection.pgconn.prepare(name, numbered))
    known[key] = (name, names, Transformer(connection))
    if len(known) > MAX_PREPARED:
        _good(connection, connection.pgconn.close_prepared(known.popitem(last=False)[1][0]))
    return known[key]


@cache
def _numbered(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """The statement as PostgreSQL numbers parameters, and which of ours is which."""
    names: dict[str, int] = {}
    numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${names.setdefault(found[1], len(names) + 1)}", statement)
    return numbered.encode(), tuple(names)


def _text(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = _array(value) if isinstance(value, list) else str(value)
    if "\x00" in text:
        raise psycopg.DataError("PostgreSQL stores no NUL.")
    return text.encode()


def _array(values: list[Any]) -> str:
    """A list as PostgreSQL writes arrays. Every element but NULL is quoted, so that none can end it."""
    return "{" + ",".join("NULL" if value is None else _quoted(str(value)) for value in values) + "}"


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _literal(connection: Connection, value: Any) -> bytes:
    text = _text(value)
    return b"NULL" if text is None else bytes(Escaping(connection.pgconn).escape_literal(text))


def _good(connection: Any, result: Any, key: tuple[bool, str] | None = None) -> Any:
    """The result, or its error raised. A prepared statement that cannot be used any more is forgotten."""
    if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        return result
    if connection.pgconn.status == ConnStatus.BAD:
        raise psycopg.OperationalError(connection.pgconn.get_error_message())
    error = error_from_result(result, connection.info.encoding)
    if key in connection.prepared and isinstance(error, psycopg.errors.FeatureNotSupported):
        connection.pgconn.close_prepared(connection.prepared.pop(key)[0])
    raise error


def _rows(result: Any, reader: Any) -> Rows:
    reader.set_pgresult(result)
    found: Rows = reader.load_rows(0, result.ntuples, tuple)
    return found
