"""Trying an agent from its page: the run starts, is followed to its end or stopped, and belongs to its agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from app.db import acting_as, transaction
from app.services.entities import store as entity_store
from tests.agents.test_edit_page import BASE, form_at, make
from tests.conftest import Workspace, soup

SignIn = Callable[..., FlaskClient]
HTMX = {"HX-Request": "true", "HX-Request-Type": "partial"}


def records(app: Flask, workspace: Workspace) -> None:
    actor = workspace.actor()
    with app.app_context(), acting_as(actor), transaction():
        entity_store.create_type(slug="deal", name="Deal", fields={"stage": {"type": "string"}}, actor=actor)
        for name in ("Halden Health", "Kestrel", "Kestrel"):
            entity_store.create_entity(entity_type="deal", name=name, fields={"stage": "ioi"}, actor=actor)


def test_a_message_runs_and_the_page_follows_it(
    app: Flask,
    workspace: Workspace,
    sign_in: SignIn,
    run_sessions: Callable[[], int],
    count_queries: Callable[[], Any],
) -> None:
    records(app, workspace)
    client: Any = sign_in(workspace.actor())
    where = make(client)
    sent = {"csrf_token": client.csrf, "message": "Search entities for Halden Health", "record": "halden health"}
    started = client.post(f"{where}/try", data=sent)
    assert started.status_code == 303
    page = soup(client.get(started.location))
    assert page.select_one("noscript meta[http-equiv=refresh]")
    more = page.select_one("#run-more")
    assert more["hx-get"] == started.location
    assert page.select_one("#run-stop")
    seen = more.select_one("input")["value"]
    assert client.get(f"{started.location}?seen={seen}", headers=HTMX).status_code == 204
    assert run_sessions() >= 1
    with count_queries() as counted:
        answer = client.get(f"{started.location}?seen={seen}", headers=HTMX)
    assert len(counted) <= 8
    news = soup(answer)
    assert news.select_one("#run-status[hx-swap-oob]").text == "The run is completed."
    assert not news.select("#run-more, #run-stop")
    assert news.select_one(".u-tool b").text == "searchEntities"
    assert "Halden Health" in news.select(".u-say")[-1].text
    link = next(link["href"] for link in news.select("a") if link.text == "Open session")
    assert "Halden Health" in soup(client.get(link)).select_one(".u-rail").text
    assert not soup(client.get(started.location)).select("noscript meta")


def test_a_run_is_stopped_before_it_begins(workspace: Workspace, sign_in: SignIn) -> None:
    client: Any = sign_in(workspace.actor())
    where = make(client)
    started = client.post(f"{where}/try", data={"csrf_token": client.csrf, "message": "Hello"}).location
    answer = client.post(f"{started}/stop", data={"csrf_token": client.csrf}, headers=HTMX)
    assert soup(answer).select_one(".u-run-head .u-badge").text.endswith("cancelled")
    assert not soup(answer).select("#run-more")
    again = client.post(f"{started}/stop", data={"csrf_token": client.csrf})
    assert (again.status_code, again.location) == (303, started)


def test_an_earlier_version_can_be_tried(workspace: Workspace, sign_in: SignIn) -> None:
    client: Any = sign_in(workspace.actor())
    where = make(client)
    edited = form_at(client.get(f"{where}/edit")) | {"instructions": "Other."}
    client.post(f"{where}/edit", data=edited)
    assert soup(client.get(f"{where}/try?version=1")).select_one("#try-version")["value"] == "1"
    started = client.post(f"{where}/try", data={"csrf_token": client.csrf, "message": "Hello", "version": "1"})
    assert "triage v1" in soup(client.get(started.location)).select_one(".u-run-head").text


def test_what_cannot_be_run_is_reported_in_place(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    records(app, workspace)
    client: Any = sign_in(workspace.actor())
    where = make(client)
    for given, place in (
        ({"message": " "}, "try-message"),
        ({"record": "Nobody"}, "try-record"),
        ({"record": "Kestrel"}, "try-record"),
        ({"version": "9"}, "try-version"),
    ):
        sent = {"csrf_token": client.csrf, "message": "Hello there"} | given
        answer = client.post(f"{where}/try", data=sent)
        assert answer.status_code == 422, given
        assert soup(answer).select_one(f"#{place}")["aria-invalid"] == "true"
        if "message" not in given:
            assert soup(answer).select_one("#try-message").text.strip() == "Hello there"
    outside = make(client, slug="outside", kind="external")
    answer = client.post(f"{outside}/try", data={"csrf_token": client.csrf, "message": "Hello"})
    assert answer.status_code == 409
    assert "runs outside Upshot" in soup(answer).select_one("#try-message-error").text
    review = soup(client.get(BASE)).select("tbody .u-main a")[-1]["href"]
    answer = client.post(f"{review}/try", data={"csrf_token": client.csrf, "message": "Hello"})
    assert answer.status_code == 409
    assert "runs as a scheduled task" in soup(answer).select_one("#try-message-error").text


def test_a_run_belongs_to_its_agent(workspace: Workspace, sign_in: SignIn) -> None:
    client: Any = sign_in(workspace.actor())
    where, other = make(client), make(client, slug="other")
    started = client.post(f"{where}/try", data={"csrf_token": client.csrf, "message": "Hello"}).location
    session = started.rsplit("/", 1)[1]
    assert client.get(f"{other}/runs/{session}").status_code == 404
    assert client.post(f"{other}/runs/{session}/stop", data={"csrf_token": client.csrf}).status_code == 404
    assert BASE in started
