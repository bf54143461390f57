"""Alive, ready, and the figures: with a database, without one, and with one that says nothing."""

from __future__ import annotations

import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy.exc import OperationalError

from app import create_app
from app.config import Settings
from app.db import watch
from app.db.boot import Opened
from tests.conftest import Api, Server, Workspace

ELSEWHERE = {"REMOTE_ADDR": "203.0.113.9"}


@contextmanager
def a_port(*, listens: bool) -> Iterator[int]:
    """A port where nobody answers: refused, or taken and then silent."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if listens:
            taken.listen()
        yield taken.getsockname()[1]


def app_on(url: str, directory: Path) -> FlaskClient:
    settings = Settings(data_dir_text=str(directory), threads=2)
    return create_app(settings, Opened(url, secrets.token_urlsafe(48))).test_client()


def test_alive_and_ready(app: Flask) -> None:
    client = app.test_client()
    assert client.get("/healthz").get_json() == {"status": "ok"}
    assert client.get("/readyz").get_json() == {"status": "ready"}


def test_without_a_database_it_lives_and_says_so(tmp_path: Path) -> None:
    with a_port(listens=False) as port:
        client = app_on(f"host=127.0.0.1 port={port} user=upshot_app dbname=upshot", tmp_path)
        assert client.get("/healthz").status_code == 200
        assert client.get("/api/openapi.json").status_code == 200
        assert client.get("/api/docs").status_code == 200
        for path in ("/readyz", "/api/admin/settings"):
            response = client.get(path, headers={"Authorization": "Bearer up_any"})
            assert response.status_code == 503
            assert response.mimetype == "application/problem+json"
            assert int(response.headers["Retry-After"]) > 0
        assert "upshot_database_up 0" in client.get("/metrics").get_data(as_text=True)


def test_a_silent_database_holds_nobody(tmp_path: Path) -> None:
    with a_port(listens=True) as port:
        client = app_on(f"host=127.0.0.1 port={port} user=upshot_app dbname=upshot", tmp_path)
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200


def test_probes_read_what_was_seen_last_while_a_question_hangs(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was stopped after it let us in: only the thread that asks it is held."""
    freed, answered = threading.Event(), threading.Event()
    monkeypatch.setattr(watch, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(watch, "EVERY_SECONDS", 0.01)
    asking = watch.DatabaseWatch(app.extensions["upshot.opened"].app_url)
    usual = asking._ask

    def ask(connection: psycopg.Connection[Any]) -> str | None:
        if answered.is_set():
            freed.wait(60)
        answered.set()
        return usual(connection)

    monkeypatch.setattr(asking, "_ask", ask)
    assert asking.trouble() is None
    time.sleep(0.5)
    began = time.monotonic()
    assert [asking.trouble() for _ in range(100)] == [watch.SILENT] * 100
    assert not asking.answers()
    assert time.monotonic() - began < 0.2
    freed.set()


def test_a_full_disk_counts_until_something_can_be_written(app: Flask) -> None:
    asking = watch.DatabaseWatch(app.extensions["upshot.opened"].app_url)
    asking.note_error(OperationalError("INSERT", None, psycopg.errors.DiskFull("no space left on device")))
    assert not asking.answers()
    deadline = time.monotonic() + 30
    while asking.trouble() is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_another_schema_is_not_ready(server: Server, empty_database: str, tmp_path: Path) -> None:
    response = app_on(server.conninfo("app", empty_database), tmp_path).get("/readyz")
    assert response.status_code == 503
    assert "schema" in response.get_json()["detail"]


def test_figures_of_the_server_are_for_this_machine_and_for_its_operator(
    app: Flask, workspace: Workspace, api: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = app.test_client()
    assert client.get("/metrics").status_code == 200
    assert client.get("/metrics", environ_overrides=ELSEWHERE).status_code == 401
    for name in ("X-Forwarded-For", "X-Forwarded-Proto", "Forwarded", "X-Real-IP", "Via"):
        assert client.get("/metrics", headers={name: "127.0.0.1"}).status_code == 401
    for host in ("127.0.0.1:8000", "localhost", "localhost:8000"):
        assert client.get("/metrics", headers={"Host": host}).status_code == 200
    assert client.get("/metrics", headers={"Host": "example.test"}).status_code in {400, 401}

    token = secrets.token_urlsafe(32)
    bearer = {"Authorization": f"Bearer {token}"}
    assert client.get("/metrics", environ_overrides=ELSEWHERE, headers=bearer).status_code == 401
    monkeypatch.setitem(app.config, "SETTINGS", replace(app.config["SETTINGS"], metrics_token=token))
    told = client.get("/metrics", environ_overrides=ELSEWHERE, headers=bearer)
    assert told.status_code == 200
    assert "upshot_tenants " in told.text
    for wrong in ("", "x", token[:-1], f"{token}x"):
        headers = {"Authorization": f"Bearer {wrong}"}
        assert client.get("/metrics", environ_overrides=ELSEWHERE, headers=headers).status_code == 401, wrong
    assert client.get("/api/admin/settings", headers=bearer).status_code == 401


def test_an_admin_key_gets_the_figures_of_its_own_workspace(
    app: Flask, make_workspace: Callable[..., Workspace], api: Callable[..., Api]
) -> None:
    client, mine, other = app.test_client(), make_workspace(), make_workspace()
    for workspace in (mine, other):
        sent = api(workspace.actor("admin"), "ingest").post("/api/v1/sessions", {"agent": "elsewhere"})
        assert sent.status_code == 201

    def ask(key: Api) -> Any:
        return client.get("/metrics", environ_overrides=ELSEWHERE, headers={"Authorization": f"Bearer {key.key}"})

    told = ask(api(mine.actor("admin"), "admin"))
    figures = dict(re.findall(r"^(upshot_[a-z_]+) ([0-9]+)$", told.text, re.MULTILINE))
    assert figures == {
        "upshot_database_up": "1", "upshot_feedback_pending": "0", "upshot_sessions_pending": "1",
        "upshot_sessions_running": "0", "upshot_tasks_due": "0",
    }  # fmt: skip
    assert "upshot_requests_total" not in told.text
    assert ask(api(mine.actor("admin"), "feedback")).status_code == 403
    assert ask(api(mine.actor("member"), "admin")).status_code == 403
    unknown = {"Authorization": "Bearer up_unknown"}
    assert client.get("/metrics", environ_overrides=ELSEWHERE, headers=unknown).status_code == 401


def test_figures_count_what_happened(app: Flask, workspace: Workspace, superuser_url: str) -> None:
    client = app.test_client()

    def figure(name: str) -> float:
        body = client.get("/metrics").get_data(as_text=True)
        found = re.search(rf"^{re.escape(name)} ([0-9.]+)$", body, re.MULTILINE)
        return float(found[1]) if found else 0.0

    served = 'upshot_requests_total{method="GET",route="/healthz",status="200"}'
    before, timed = figure(served), figure("upshot_request_seconds_count")
    for _ in range(3):
        client.get("/healthz")
    assert figure(served) == before + 3
    assert figure("upshot_request_seconds_count") > timed + 3
    with psycopg.connect(superuser_url) as connection:
        row = connection.execute("select count(*) from tenants").fetchone()
    assert row is not None
    assert figure("upshot_tenants") == row[0]
    assert figure("upshot_database_up") == 1


def test_addresses_that_lead_nowhere_do_not_grow_the_figures(app: Flask) -> None:
    client = app.test_client()
    for _ in range(3):
        client.get(f"/nothing/{secrets.token_hex(4)}")
        client.open("/healthz", method=f"M{secrets.token_hex(2)}")
    body = client.get("/metrics").get_data(as_text=True)
    routes = set(re.findall(r'route="([^"]*)"', body))
    assert routes <= {rule.rule for rule in app.url_map.iter_rules()} | {"none"}
    methods = set(re.findall(r'method="([^"]*)"', body))
    assert methods <= {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "other"}


def test_a_process_whose_leases_or_clock_stand_still_is_not_ready(app: Flask) -> None:
    from app.jobs.process import TICK_SECONDS, Jobs

    jobs = Jobs(app)
    app.extensions["upshot.jobs"] = jobs
    client = app.test_client()
    try:
        assert client.get("/readyz").status_code == 200
        jobs.ticked_at -= 2 * TICK_SECONDS + 1
        answer = client.get("/readyz")
        assert (answer.status_code, "scheduled work" in answer.text) == (503, True)
        jobs.ticked_at += 2 * TICK_SECONDS + 1
        jobs.executor.beaten_at -= 2 * jobs.executor.beat + 1
        answer = client.get("/readyz")
        assert (answer.status_code, "leases" in answer.text) == (503, True)
    finally:
        del app.extensions["upshot.jobs"]
        jobs.executor.stop()
    assert client.get("/readyz").status_code == 200
