"""Events over the API: in pages that are bounded in number and in bytes, and refused beyond the session's budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask

from app.db import acting_as, transaction
from app.formats.session_limits import SESSION_BYTES
from app.services.sessions import events as session_events
from tests.conftest import Api, Workspace, soup

PATH = "/api/v1/sessions"


@pytest.fixture
def ingest(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("member"), "ingest")


@pytest.fixture
def small_budget() -> Iterator[None]:
    session_events.use_budget(1_000_000)
    yield
    session_events.use_budget(SESSION_BYTES)


def user_message(text: str, at: str | None = None) -> dict[str, Any]:
    return {"event_type": "user.message", "payload": {"text": text}, **({"occurred_at": at} if at else {})}


def store(ingest: Api, *batches: list[dict[str, Any]]) -> str:
    session = ingest.post(PATH, {"agent": "a"}).json["id"]
    for batch in batches:
        assert ingest.post(f"{PATH}/{session}/events", {"events": batch}).status_code == 201
    return str(session)


def walk(ingest: Api, session: str, query: str = "") -> list[list[dict[str, Any]]]:
    pages, cursor = [], None
    while True:
        address = f"{PATH}/{session}/events?{query}" + (f"&cursor={cursor}" if cursor else "")
        answer = ingest.get(address)
        assert answer.status_code == 200, answer.text
        assert len(answer.data) < 2_500_000
        pages.append(answer.json["events"])
        cursor = answer.json["next_cursor"]
        if cursor is None:
            return pages


def test_every_event_comes_once_in_order_of_time(ingest: Api) -> None:
    times = [f"2026-03-01T10:{n // 60:02}:{n % 60:02}Z" for n in range(60)]
    session = store(
        ingest, [user_message(f"{n}", times[n]) for n in (5, 1, 3)], [user_message(f"{n}", times[n]) for n in (2, 4, 0)]
    )
    for query, sizes in (("limit=4", [4, 2]), ("limit=6", [6]), ("", [6]), ("limit=1", [1] * 6)):
        pages = walk(ingest, session, query)
        assert [len(page) for page in pages] == sizes, query
        assert [event["payload"]["text"] for page in pages for event in page] == list("012345")
    whole = ingest.get(f"{PATH}/{session}").json
    assert (whole["events"], whole["next_cursor"]) == (walk(ingest, session)[0], None)
    for wrong in ("limit=x", "cursor=zzz", "order=up"):
        assert ingest.get(f"{PATH}/{session}/events?{wrong}").status_code == 400, wrong


def test_the_detail_has_the_first_thousand(ingest: Api) -> None:
    session = store(ingest, [user_message(str(n)) for n in range(1000)], [user_message("last")])
    detail = ingest.get(f"{PATH}/{session}").json
    assert (len(detail["events"]), detail["event_count"]) == (1000, 1001)
    rest = ingest.get(f"{PATH}/{session}/events?cursor={detail['next_cursor']}").json
    assert [event["payload"]["text"] for event in rest["events"]] == ["last"]
    assert rest["next_cursor"] is None


def test_a_page_is_bounded_in_bytes_and_holds_at_least_one_event(ingest: Api) -> None:
    large = [user_message(str(n) + "x" * 250_000) for n in range(3)]
    session = store(ingest, *[large] * 6)
    pages = walk(ingest, session)
    assert [len(page) for page in pages] == [7, 7, 4]
    detail = ingest.get(f"{PATH}/{session}")
    assert (len(detail.json["events"]), detail.json["next_cursor"] is None) == (7, False)
    assert len(detail.data) < 2_500_000


def test_payloads_are_passed_on_to_the_letter(ingest: Api) -> None:
    payload = {
        "call_id": "c",
        "output": {"ä": '"\\\n\u2028\U0001f4c8', "n": [1, 1.5, None, True, {}]},
        "is_error": False,
    }
    session = store(ingest, [{"event_type": "tool.result", "payload": payload}])
    assert ingest.get(f"{PATH}/{session}").json["events"][0]["payload"] == payload


@pytest.mark.usefixtures("small_budget")
def test_beyond_the_budget_events_are_refused_and_the_session_says_so(
    app: Flask, workspace: Workspace, ingest: Api, sign_in: Callable[..., Any]
) -> None:
    session = store(ingest, [user_message("x" * 240_000)] * 4)
    url, key = f"{PATH}/{session}/events", {"Idempotency-Key": "once"}
    before = ingest.get(f"{PATH}/{session}").json
    assert (before["full_at"], before["max_event_bytes"]) == (None, 1_000_000)
    assert 960_000 < before["event_bytes"] < 961_000
    for headers in ({}, key, key):
        refused = ingest.post(url, {"events": [user_message("small"), user_message("x" * 100_000)]}, headers=headers)
        assert refused.status_code == 413
        assert "budget of 1 MB" in refused.json["detail"]
        assert refused.json["budget_bytes"] == 1_000_000
    after = ingest.get(f"{PATH}/{session}").json
    assert after["full_at"] is not None
    assert {**after, "full_at": None} == before
    for role, path in (("admin", "/admin/agent-review/sessions/"), ("member", "/sessions/")):
        text = soup(sign_in(workspace.actor(role)).get(path + session)).get_text(" ", strip=True)
        assert "This session is full" in text, role
    assert ingest.post(url, {"events": [user_message("small")]}).status_code == 201
    assert ingest.patch(f"{PATH}/{session}", {"status": "completed"}).status_code == 200


def test_a_session_that_was_larger_before_stays_readable(app: Flask, workspace: Workspace, ingest: Api) -> None:
    session = store(ingest, *[[user_message("x" * 250_000)] * 3] * 2)
    session_events.use_budget(1_000_000)
    try:
        assert len([event for page in walk(ingest, session) for event in page]) == 6
        assert ingest.post(f"{PATH}/{session}/events", {"events": [user_message("more")]}).status_code == 413
    finally:
        session_events.use_budget(SESSION_BYTES)


@pytest.mark.usefixtures("small_budget")
def test_a_line_beyond_the_budget_is_named_in_an_import(workspace: Workspace, app: Flask) -> None:
    import io
    import json

    from app.services.ingest import imports as ingest_imports

    actor = workspace.actor("admin")
    lines = [
        {"external_id": name, "agent": "a", "messages": [{"role": "user", "content": "x" * size}] * 5}
        for name, size in (("small", 10), ("large", 205_000), ("other", 20))
    ]
    data = "\n".join(json.dumps(line) for line in lines).encode()
    with app.app_context(), acting_as(actor):
        result = ingest_imports.import_messages(io.BytesIO(data), within=transaction, actor=actor)
    assert (result.created, result.failed) == (2, 1)
    assert result.errors[0].line == 2
    assert "budget" in result.errors[0].message
