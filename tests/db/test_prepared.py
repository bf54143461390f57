"""Statements stay prepared on pooled connections: bounded, for every workspace alike, and through an upgrade."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from flask import Flask
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app import create_app
from app.actor import Actor
from app.db import acting_as, db, direct, run, transaction
from tests.conftest import soup

KNOWN = text("SELECT count(*), coalesce(sum(generic_plans), 0), coalesce(sum(custom_plans), 0)"
             " FROM pg_prepared_statements")  # fmt: skip
FEEDBACK = "/admin/agent-review/feedback"


@pytest.fixture
def in_app(app: Flask) -> Iterator[None]:
    with app.app_context():
        yield
        db.session.rollback()


def known() -> tuple[int, int, int]:
    return tuple(db.session.execute(KNOWN).one())  # type: ignore[return-value]


def test_one_plan_keeps_workspaces_and_people_apart(
    app: Flask, make_workspace: Callable[..., Any], sign_in: Any, api: Any
) -> None:
    """The same connection and the same plans serve one workspace, another one, and a member of the first in turn."""
    ours, theirs = make_workspace("Ours"), make_workspace("Theirs")
    people = {"ours": ours.actor(), "theirs": theirs.actor(), "mine": ours.actor("member")}
    for word, actor in people.items():
        body = {"source_type": "observation", "rating": "negative", "comment": f"said by {word}"}
        assert api(actor, "feedback").post("/api/feedback", json=body).status_code == 201
    seen = {"ours": {"ours", "mine"}, "theirs": {"theirs"}, "mine": {"mine"}}
    clients = {word: sign_in(actor) for word, actor in people.items()}
    for _ in range(4):
        for word, client in clients.items():
            page = client.get("/feedback/mine" if word == "mine" else FEEDBACK).get_data(as_text=True)
            assert {other for other in people if f"said by {other}" in page} == seen[word]
    with app.app_context(), transaction():
        _, generic, custom = known()
    assert generic > 50
    assert custom == 0


def test_a_savepoint_that_is_rolled_back_drops_no_statement(in_app: None) -> None:
    for number in range(3):
        assert run("SELECT %(n)s::integer", {"n": number}) == [(number,)]
        assert db.session.scalar(text("SELECT CAST(:n AS integer)"), {"n": number}) == number
    before = known()[0]
    with pytest.raises(DBAPIError), db.session.begin_nested():
        db.session.execute(text("SELECT 1 / 0"))
    assert run("SELECT %(n)s::integer", {"n": 4}) == [(4,)]
    assert known()[0] >= before


def test_a_connection_keeps_so_many_statements(in_app: None) -> None:
    for number in range(direct.MAX_PREPARED + 20):
        for _ in range(2):
            assert run(f"SELECT {number}, %(n)s::integer", {"n": 1}) == [(number, 1)]
            assert db.session.scalar(text(f"SELECT {number} + CAST(:n AS integer)"), {"n": 1}) == number + 1
    assert direct.MAX_PREPARED < known()[0] <= 2 * direct.MAX_PREPARED + 2
    assert run("SELECT 0, %(n)s::integer", {"n": 2}) == [(0, 2)]


def test_an_upgrade_under_a_running_server(in_app: None, superuser_url: str) -> None:
    """New indexes and columns are used at once. Where a column's type changed, one request fails and the next does
    not."""
    ask = text("SELECT a FROM upgraded WHERE a > :least ORDER BY a")

    def first() -> Any:
        with transaction():
            return db.session.scalar(ask, {"least": 0})

    with psycopg.connect(superuser_url, autocommit=True) as owner:
        owner.execute("CREATE TABLE upgraded AS SELECT 1 AS a")
        owner.execute("GRANT SELECT ON upgraded TO PUBLIC")
        try:
            assert [first() for _ in range(3)] == [1, 1, 1]
            for change in ("CREATE INDEX one ON upgraded (a)", "ALTER TABLE upgraded ADD b text", "DROP INDEX one"):
                owner.execute(change)
                assert first() == 1
            owner.execute("ALTER TABLE upgraded ALTER a TYPE numeric(9, 1)")
            with pytest.raises(DBAPIError, match="cached plan"):
                first()
            assert [str(first()) for _ in range(3)] == ["1.0"] * 3
        finally:
            owner.execute("DROP TABLE upgraded")


def test_nothing_is_prepared_for_a_pooler_that_knows_no_prepared_statements(
    app: Flask, workspace: Any, sign_in: Any, api: Any
) -> None:
    key = api(workspace.actor(), "feedback").key
    cookie = sign_in(workspace.actor()).get_cookie("upshot").value
    settings = replace(app.config["SETTINGS"], prepared_statements_text="off")
    plain = create_app(settings, app.extensions["upshot.opened"])
    client = plain.test_client()
    client.set_cookie("upshot", cookie, domain="localhost")
    for number in range(3):
        body = {"signal": "not_helpful", "message_id": f"m{number}", "reason": f"wrong {number}"}
        told = client.post("/api/v1/feedback", json=body, headers={"Authorization": f"Bearer {key}"})
        assert told.status_code == 201
        assert f"wrong {number}" in soup(client.get(FEEDBACK)).text
    with plain.app_context():
        actor: Actor = workspace.actor()
        with acting_as(actor), transaction():
            assert known()[0] == 0
            assert run("SHOW plan_cache_mode", {}) == [("auto",)]
        db.engine.dispose()
