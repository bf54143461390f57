"""Statements straight to libpq: values, transactions and failures are as through a cursor."""

from __future__ import annotations

from collections.abc import Iterator
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
                          %(text)s::text || '!', ARRAY['a', NULL]"""
    given = {"id": some, "text": "x'é%", "yes": True, "none": None, "n": 7}
    for _ in range(2):
        [row] = direct.execute(connection, statement, given)
        assert row == (some, "x'é%", True, None, 7, "x'é%!", ["a", None])
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


def test_an_upgrade_of_the_database_changes_what_is_prepared(connection: direct.Connection, superuser_url: str) -> None:
    """A statement whose columns are others now fails once, and works in the next transaction."""
    ask = "SELECT * FROM upgraded WHERE %(n)s <> ''"
    with psycopg.connect(superuser_url, autocommit=True) as owner:
        owner.execute("CREATE TABLE upgraded AS SELECT 1 AS a")
        owner.execute("GRANT SELECT ON upgraded TO PUBLIC")
        try:
            assert direct.execute(connection, ask, {"n": "x"}) == [(1,)]
            connection.rollback()
            owner.execute("ALTER TABLE upgraded ADD b text DEFAULT 'new'")
            assert direct.begin_with(connection, ask, {"n": "x"}) == [(1, "new")]
            connection.rollback()
            with pytest.raises(psycopg.errors.FeatureNotSupported):
                direct.execute(connection, ask, {"n": "x"})
            connection.rollback()
            assert direct.execute(connection, ask, {"n": "x"}) == [(1, "new")]
            connection.rollback()
        finally:
            owner.execute("DROP TABLE upgraded")


def test_failures_have_their_names(connection: direct.Connection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        direct.execute(connection, "SELECT 1 / %(n)s::integer", {"n": 0})
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        direct.execute(connection, "SELECT 1 / %(n)s::integer", {"n": 1})
    connection.rollback()
    assert direct.execute(connection, "SELECT 1 / %(n)s::integer", {"n": 1}) == [(1,)]
    with pytest.raises(psycopg.DataError):
        direct.execute(connection, "SELECT %(text)s::text", {"text": "a\x00b"})
    connection.rollback()


def test_a_connection_that_died_says_so(connection: direct.Connection, superuser_url: str) -> None:
    direct.execute(connection, "SELECT %(n)s::integer", {"n": 1})
    with psycopg.connect(superuser_url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        direct.execute(connection, "SELECT %(n)s::integer", {"n": 1})
    assert connection.closed
