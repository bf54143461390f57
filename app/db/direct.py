"""Statements that go straight to libpq: for what happens with every request and every thumb.

psycopg's cursors adapt, prepare and wait in Python, which costs more than PostgreSQL does. Here a statement is prepared
on its connection the first time, and from then on is one call that leaves the other threads alone while it waits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus

Rows = list[tuple[Any, ...]]


class Connection(psycopg.Connection[Any]):
    """A connection of the app's pool, which ends its transactions as directly."""

    def commit(self) -> None:
        self._end(b"COMMIT")

    def rollback(self) -> None:
        self._end(b"ROLLBACK")

    def _end(self, command: bytes) -> None:
        if self.pgconn.transaction_status != TransactionStatus.IDLE:
            _good(self, self.pgconn.exec_(command))


# The statements that a connection knows, by their text: the name there, and what reads its rows.
_known: WeakKeyDictionary[Connection, dict[str, tuple[bytes, Any]]] = WeakKeyDictionary()


def begin_with(connection: Connection, statement: str) -> Rows:
    """Begin a transaction with a statement that has no parameters, in one round trip."""
    result = _good(connection, connection.pgconn.exec_(f"BEGIN; {statement}".encode()))
    return _rows(result, Transformer(connection))


def execute(connection: Connection, statement: str, parameters: Mapping[str, Any]) -> Rows:
    """What a statement with `%(name)s` parameters gives, in the transaction of the connection."""
    inner = connection.pgconn
    if inner.transaction_status == TransactionStatus.IDLE:
        _good(connection, inner.exec_(b"BEGIN"))
    numbered, names = _numbered(statement)
    statements = _known.setdefault(connection, {})
    if statement not in statements:
        name = f"upshot_{len(statements)}".encode()
        _good(connection, inner.prepare(name, numbered))
        statements[statement] = (name, Transformer(connection))
    name, reader = statements[statement]
    values: list[Any] = [_text(parameters[one]) for one in names]
    return _rows(_good(connection, inner.exec_prepared(name, values)), reader)


@cache
def _numbered(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """The statement as PostgreSQL numbers parameters, and which of ours is which."""
    names: dict[str, int] = {}
    numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${names.setdefault(found[1], len(names) + 1)}", statement)
    return numbered.encode(), tuple(names)


def _text(value: Any) -> bytes | None:
    if value is None:
        return None
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    if "\x00" in text:
        raise psycopg.DataError("PostgreSQL stores no NUL.")
    return text.encode()


def _good(connection: Connection, result: Any) -> Any:
    if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        return result
    if connection.pgconn.status == ConnStatus.BAD:
        raise psycopg.OperationalError(connection.pgconn.get_error_message())
    raise error_from_result(result, connection.info.encoding)


def _rows(result: Any, reader: Any) -> Rows:
    reader.set_pgresult(result)
    found: Rows = reader.load_rows(0, result.ntuples, tuple)
    return found
