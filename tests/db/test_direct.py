"""Statements straight to libpq: values, transactions and failures are as through a cursor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from app.db import direct

pytestmark = pytest.mark.core


@pytest.fixture
def connection(app_url: str) -> Iterator[direct.Connection]:
    with direct.Connection.connect(app_url, prepare_threshold=None) as connection:
        yield connection


def test_values_come_back_as_they_were_given(connection: direct.Connection) -> None:
    some = uuid4()
    statement = """SELECT %(id)s::uuid, %(text)s::text, %(yes)s::boolean, %(none)s::text, %(n)s::integer,
                          %(text)s::text || '!', ARRAY['a', NULL], %(list)s::text[], %(ids)s::uuid[]"""
    odd = ['a"b', "c\\d", "e,f}", "", "NULL", "{g}"]
    given = {"id": some, "text": "x'é%", "yes": True, "none": None, "n": 7, "list": odd, "ids": [some, None]}
    for _ in range(2):
        [row] = direct.execute(connection, statement, given)
        assert row == (some, "x'é%", True, None, 7, "x'é%!", ["a", None], odd, [some, None])
    assert direct.execute(connection, "SELECT 1 WHERE %(yes)s::boolean", {"yes": False}) == []


def test_statements_outlive_transactions(connection: direct.Connection) -> None:
    """Both ends of a transaction leave prepared statements alone, and what was set for it is gone."""
    ask = "SELECT current_setting('app.tenant_id', true), %(n)s::integer"
    for end in (connection.commit, connection.rollback, connection.rollback):
        direct.begin_with(connection, "SELECT set_config('app.tenant_id', %(id)s, true)", {"id": "a"})
        assert direct.execute(connection, ask, {"n": 1}) == [("a", 1)]
        end()
        assert connection.info.transaction_status == TransactionStatus.IDLE
        assert direct.execute(connection, ask, {"n": 2}) == [("", 2)]
        assert connection.info.transaction_status == TransactionStatus.INTRANS
        connection.rollback()


def test_the_first_statement_takes_any_text(connection: direct.Connection) -> None:
    for text in ("", "it's", "\\'; DROP TABLE feedback; --", "é€", None):
        found = direct.begin_with(connection, "SELECT %(a)s::text, %(b)s::text", {"a": text, "b": "b"})
        assert found == [(text, "b")]
        connection.rollback()


def test_the_last_statement_is_committed_with_what_went_before(
    connection: direct.Connection, superuser_url: str
) -> None:
    with psycopg.connect(superuser_url, autocommit=True) as owner:
        owner.execute("CREATE TABLE ended (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        owner.execute("GRANT ALL ON ended TO PUBLIC")
        put = "INSERT INTO ended VALUES (%(n)s::integer) RETURNING n"
        try:
            direct.begin_with(connection, put, {"n": 1})
            assert direct.end_with(connection, put, {"n": 2}) == [(2,)]
            assert connection.info.transaction_status == TransactionStatus.IDLE
            direct.begin_with(connection, put, {"n": 3})
            with pytest.raises(psycopg.errors.InvalidTextRepresentation):
                direct.end_with(connection, put, {"n": "four"})
            connection.rollback()
            direct.begin_with(connection, put, {"n": 5})
            with pytest.raises(psycopg.errors.UniqueViolation):
                direct.end_with(connection, put, {"n": 2})
            connection.rollback()
            assert owner.execute("SELECT n FROM ended ORDER BY n").fetchall() == [(1,), (2,)]
        finally:
            connection.rollback()
            owner.execute("DROP TABLE ended")


def test_an_upgrade_of_the_database_changes_what_is_prepared(connection: direct.Connection, superuser_url: str) -> None:
    """A statement whose columns are others now fails once, and works in the next transaction; the first of a
    transaction works at once."""
    ask = "SELECT * FROM upgraded WHERE %(n)s <> ''"
    with psycopg.connect(superuser_url, autocommit=True) as owner:
        owner.execute("CREATE TABLE upgraded AS SELECT 1 AS a")
        owner.execute("GRANT SELECT ON upgraded TO PUBLIC")
        try:
            assert direct.execute(connection, ask, {"n": "x"}) == [(1,)]
            connection.rollback()
            owner.execute("ALTER TABLE upgraded ADD b text DEFAULT 'new'")
            with pytest.raises(psycopg.errors.FeatureNotSupported):
                direct.execute(connection, ask, {"n": "x"})
            connection.rollback()
            assert direct.execute(connection, ask, {"n": "x"}) == [(1, "new")]
            connection.rollback()
            owner.execute("ALTER TABLE upgraded ADD c text DEFAULT 'newer'")
            assert direct.begin_with(connection, ask, {"n": "x"}) == [(1, "new", "newer")]
            connection.rollback()
        finally:
            connection.rollback()
            owner.execute("DROP TABLE upgraded")


def test_failures_have_their_names(connection: direct.Connection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        direct.execute(connection, "SELECT 1 / %(n)s::integer", {"n": 0})
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        direct.execute(connection, "SELECT 1 / %(n)s::integer", {"n": 1})
    connection.rollback()
    assert direct.execute(connection, "SELECT 1 / %(n)s::integer", {"n": 1}) == [(1,)]
    for ask in (direct.execute, direct.end_with, direct.begin_with):
        with pytest.raises(psycopg.DataError):
            ask(connection, "SELECT %(text)s::text", {"text": "a\x00b"})
        connection.rollback()
        assert direct.begin_with(connection, "SELECT %(text)s::text", {"text": "b"}) == [("b",)]
        connection.rollback()


@pytest.mark.parametrize("ask", [direct.begin_with, direct.execute, direct.end_with])
def test_a_connection_that_died_says_so(connection: direct.Connection, superuser_url: str, ask: Any) -> None:
    direct.execute(connection, "SELECT %(n)s::integer", {"n": 1})
    connection.rollback()
    with psycopg.connect(superuser_url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        ask(connection, "SELECT %(n)s::integer", {"n": 1})
    assert connection.closed
