"""What every JSON route does before and after its own work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from flask import Flask
from sqlalchemy import text
from werkzeug.test import TestResponse

from app.api.kit.fields import Query
from app.api.kit.limits import Buckets
from app.api.kit.route import read_query
from app.db import db
from app.errors import Invalid
from app.services.workspaces import store as workspace_store
from tests.conftest import Api, Workspace

PATH = "/api/admin/settings"
MIB = 1024 * 1024


@pytest.fixture
def admin(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("admin"), "admin")


def problem(response: TestResponse, status: int) -> dict[str, Any]:
    """The problem document of an answer, checked for what every one has."""
    assert response.status_code == status, response.get_data(as_text=True)
    assert response.mimetype == "application/problem+json"
    document: dict[str, Any] = json.loads(response.data)
    assert document["status"] == status
    assert document["title"]
    assert document["detail"].endswith((".", "`"))
    assert document["request_id"] == response.headers["X-Request-Id"] != ""
    assert document["type"] == f"/api/docs#problem-{status}"
    return document


def send(admin: Api, data: bytes, **headers: str) -> TestResponse:
    sent = {"Authorization": f"Bearer {admin.key}", "Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    return admin.client.patch(PATH, data=data, headers=sent)


def test_only_plain_json_is_read(admin: Api) -> None:
    good = b'{"context_top_n": 9}'
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "",
    ):
        problem(send(admin, good, Content_Type=kind), 415)
    for coding in ("gzip", "br", "deflate", "identity, gzip", "GZIP"):
        assert "compressed" in problem(send(admin, good, Content_Encoding=coding), 415)["detail"]
    assert admin.get(PATH).get_json()["context_top_n"] == 8
    assert send(admin, good, Content_Type="application/json; charset=utf-8").status_code == 200


def test_a_body_is_at_most_a_mebibyte(admin: Api) -> None:
    def sized(size: int) -> bytes:
        return b'{"context_top_n": 9' + b" " * (size - 20) + b"}"

    assert send(admin, sized(MIB - 1)).status_code == 200
    assert send(admin, sized(MIB)).status_code == 200
    problem(send(admin, sized(MIB + 1)), 413)
    problem(send(admin, b"[" * (MIB + 1)), 413)


def test_what_does_not_fit_is_named_and_never_repeated(admin: Api) -> None:
    response = send(admin, b'{"knowledge_gate": "sekret", "context_top_n": "sekret", "tenant_id": "sekret"}')
    document = problem(response, 400)
    assert [error["field"] for error in document["errors"]] == ["knowledge_gate", "context_top_n", "tenant_id"]
    for raw in (b"[]", b'"sekret"', b"null", b"7", b'{"a": sekret}', b"\xff", b'{"a": NaN}', b"[" * 3000):
        response = send(admin, raw)
        problem(response, 400)
        assert b"sekret" not in response.data
        assert b"pydantic" not in response.data


def test_text_in_a_query_is_text_that_can_be_stored(app: Flask) -> None:
    class Search(Query):
        q: str | None = None

    def read(query: str) -> Any:
        with app.test_request_context(f"/api/feedback?{query}"):
            return read_query(Search)

    assert read("q=caf%C3%A9").q == "café"
    for query in ("q=%00", "q=a%00b", "%00=a", "q=a&q=b", "other=a"):
        with pytest.raises(Invalid):
            read(query)


def test_addresses_and_methods_that_do_not_exist(admin: Api, app: Flask) -> None:
    for path in (
        "/api/nothing",
        "/api/",
        "/v1/nothing",
        "/conversations/x",
        "/mcp/nothing",
        "/api/%00",
        "/api/feedback/no-uuid",
    ):
        problem(admin.get(path), 404)
    refused = admin.delete(PATH)
    problem(refused, 405)
    assert {"GET", "PATCH"} <= set(refused.headers["Allow"].split(", "))
    assert app.test_client().get("/nothing").mimetype == "text/html"


def test_who_is_not_let_in(admin: Api, workspace: Workspace, api: Callable[..., Api], app: Flask) -> None:
    client = app.test_client()
    for header in (None, "Bearer", "Bearer ", "Bearer up_unknown", f"Basic {admin.key}", admin.key, "Bearer \xff"):
        response = client.get(PATH, headers={} if header is None else {"Authorization": header})
        problem(response, 401)
        assert response.headers["WWW-Authenticate"] == "Bearer"
    assert "scope" in problem(api(workspace.actor("admin"), "feedback", "ingest").get(PATH), 403)["detail"]


def test_a_key_that_asks_too_often_waits(admin: Api, app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(app.extensions, "upshot.buckets", Buckets(per_minute=2, clock=lambda: 0.0))
    assert [admin.get(PATH).status_code for _ in range(2)] == [200, 200]
    response = admin.get(PATH)
    problem(response, 429)
    assert int(response.headers["Retry-After"]) == 30


def test_a_fault_of_ours_tells_nothing_but_its_number(admin: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: Any) -> None:
        raise RuntimeError("sekret")

    monkeypatch.setattr(workspace_store, "get_settings", break_down)
    response = admin.get(PATH)
    problem(response, 500)
    assert b"sekret" not in response.data


def test_a_connection_that_dies_at_work_is_a_503(admin: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> None:
        db.session.execute(text("select pg_terminate_backend(pg_backend_pid())"))

    with monkeypatch.context() as patched:
        patched.setattr(workspace_store, "get_settings", die)
        response = admin.get(PATH)
    problem(response, 503)
    assert int(response.headers["Retry-After"]) > 0
    assert admin.get(PATH).status_code == 200


def test_connections_that_died_in_the_pool_are_not_noticed(admin: Api, superuser_url: str) -> None:
    assert admin.get(PATH).status_code == 200
    ours = "from pg_stat_activity where datname = current_database() and usename = 'upshot_app'"
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        connection.execute(f"select pg_terminate_backend(pid) {ours}")
        deadline = time.monotonic() + 60
        while connection.execute(f"select 1 {ours}").fetchone() and time.monotonic() < deadline:
            time.sleep(0.02)
    assert admin.get(PATH).status_code == 200


def test_nothing_is_kept_of_what_fails(admin: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.api.admin import settings

    def fail(_: Any) -> None:
        raise RuntimeError("after the work")

    with monkeypatch.context() as patched:
        patched.setattr(settings, "settings_answer", fail)
        problem(admin.patch(PATH, {"context_top_n": 17}), 500)
    assert admin.get(PATH).get_json()["context_top_n"] == 8


def test_browsers_may_use_it_with_their_token(workspace: Workspace, sign_in: Callable[..., Any]) -> None:
    browser = sign_in(workspace.actor("admin"))
    assert browser.get(PATH).status_code == 200
    problem(browser.patch(PATH, json={"context_top_n": 9}), 403)
    assert browser.patch(PATH, json={"context_top_n": 9}, headers={"X-CSRFToken": browser.csrf}).status_code == 200
