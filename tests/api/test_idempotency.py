"""The same request twice happens once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select, update
from werkzeug.test import TestResponse

from app.db import acting_as, db, transaction
from app.models.feedback import Feedback
from app.models.people import IdempotencyKey
from app.services import audit_entry, idempotency
from tests.conftest import Api, Workspace

PATH = "/api/feedback"
GOOD = {"source_type": "chat", "rating": "positive", "comment": "Right, and quick."}


@pytest.fixture
def member(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("member"), "feedback")


@pytest.fixture
def count(app: Flask, workspace: Workspace) -> Callable[..., int]:
    def counting(model: Any = Feedback) -> int:
        with app.app_context(), acting_as(workspace.actor("admin")):
            return db.session.scalar(select(func.count()).select_from(model)) or 0

    return counting


def give(key: Api, name: str, body: Any = GOOD) -> TestResponse:
    return key.post(PATH, body, headers={"Idempotency-Key": name})


def age(app: Flask, workspace: Workspace, by: timedelta) -> None:
    with app.app_context(), acting_as(workspace.actor("admin")), transaction():
        db.session.execute(update(IdempotencyKey).values(created_at=func.now() - by))


def test_the_second_gets_the_first_answer(member: Api, count: Callable[..., int]) -> None:
    first, second = give(member, "a"), give(member, "a", dict(reversed(GOOD.items())))
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.get_json() == second.get_json()
    assert "Idempotent-Replay" not in first.headers
    assert second.headers["Idempotent-Replay"] == "true"
    assert count() == 1
    assert give(member, "b").get_json()["id"] != first.get_json()["id"]


def test_another_body_under_the_same_key_is_refused(member: Api, count: Callable[..., int]) -> None:
    give(member, "a")
    response = give(member, "a", GOOD | {"rating": "negative"})
    assert response.status_code == 409
    assert response.mimetype == "application/problem+json"
    assert count() == 1


def test_keys_are_everyones_own(workspace: Workspace, member: Api, api: Callable[..., Api]) -> None:
    mine = give(member, "a").get_json()["id"]
    theirs = give(api(workspace.actor("other"), "feedback"), "a")
    assert theirs.status_code == 201
    assert theirs.get_json()["id"] != mine
    assert "Idempotent-Replay" not in theirs.headers


def test_twenty_at_once_write_one_row(app: Flask, member: Api, count: Callable[..., int]) -> None:
    together = Barrier(20)

    def one(_: int) -> TestResponse:
        key = Api(app.test_client(), member.key)
        together.wait(60)
        return give(key, "same")

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(one, range(20)))
    done = [answer for answer in answers if answer.status_code == 201]
    # A request that finds no free connection in time may say so; none may write a second row or tell another id.
    assert all(answer.status_code in {201, 503} for answer in answers)
    assert len({answer.get_json()["id"] for answer in done}) == 1
    assert sum("Idempotent-Replay" not in answer.headers for answer in done) == 1
    assert count() == 1


def test_what_failed_is_not_remembered(member: Api, count: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert give(member, "a", GOOD | {"rating": "great"}).status_code == 400

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(audit_entry, "details_of", fail)
        assert give(member, "a").status_code == 500
    assert (count(), count(IdempotencyKey)) == (0, 0)
    assert give(member, "a").status_code == 201


def test_after_a_day_a_key_is_new_again(
    app: Flask, workspace: Workspace, member: Api, count: Callable[..., int]
) -> None:
    first = give(member, "a").get_json()["id"]
    age(app, workspace, timedelta(hours=23, minutes=59))
    assert give(member, "a").get_json()["id"] == first
    age(app, workspace, timedelta(hours=24, minutes=1))
    again = give(member, "a", GOOD | {"rating": "negative"})
    assert again.status_code == 201
    assert again.get_json()["id"] != first
    assert give(member, "a", GOOD | {"rating": "negative"}).get_json()["id"] == again.get_json()["id"]
    assert (count(), count(IdempotencyKey)) == (2, 1)


def test_old_keys_go_and_young_ones_stay(
    app: Flask, workspace: Workspace, member: Api, count: Callable[..., int]
) -> None:
    give(member, "old")
    age(app, workspace, timedelta(hours=25))
    give(member, "young")
    with app.app_context(), acting_as(workspace.actor("admin")), transaction():
        idempotency.purge_answers()
    assert count(IdempotencyKey) == 1
    assert give(member, "young").headers["Idempotent-Replay"] == "true"


def test_a_key_is_a_short_plain_text(member: Api, count: Callable[..., int]) -> None:
    for name in ("", "x" * 256, "é", "a\tb"):
        assert give(member, name).status_code == 400, name
    assert count() == 0
    assert give(member, "x" * 255).status_code == 201
