"""Saved views on the tabs: the menu, saving what the address says, opening with one, and the page that keeps order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from tests.conftest import Workspace, soup
from tests.lists.filling import fill

SignIn = Callable[..., FlaskClient]
BASE = "/admin/agent-review"
VIEWS = f"{BASE}/views"
TABS = ("conversations", "sessions", "feedback", "knowledge")


def send(client: Any, path: str, **fields: str) -> Any:
    return client.post(path, data={"csrf_token": client.csrf, **fields})


def save(client: Any, name: str, query: str = "status=pending", tab: str = "feedback", **more: str) -> Any:
    return send(client, VIEWS, tab=tab, name=name, query=query, **more)


def menu(client: Any, path: str) -> dict[str, str]:
    """The names in the menu and where they lead."""
    items = soup(client.get(path)).select("#views .u-menu-item")
    return {item.select_one(".u-grow").text: item["href"] for item in items if item.select_one(".u-grow")}


def test_what_the_address_says_is_saved_and_found_again(workspace: Workspace, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor())

    for tab in TABS:
        form = soup(client.get(f"{BASE}/{tab}?q=ltm")).select_one("#views form")
        hidden = {field["name"]: field["value"] for field in form.select("input[type=hidden]")}
        answer = send(client, form["action"], **{**hidden, "name": f"My {tab}"})
        assert (answer.status_code, answer.location) == (303, f"{BASE}/{tab}?q=ltm")
        html = soup(client.get(answer.location))
        assert html.select_one("#views summary").get_text(strip=True) == f"My {tab}"
        assert not html.select("#views form"), "what is saved already is not offered again"
        assert menu(client, f"{BASE}/{tab}") == {f"My {tab}": f"{BASE}/{tab}?q=ltm"}


def test_the_menu_costs_one_query_and_follows_the_address(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())
    save(client, "Pending")
    asked = {"HX-Request": "true", "HX-Request-Type": "partial"}

    for tab in TABS:
        with count_queries() as seen:
            client.get(f"{BASE}/{tab}?q=kestrel&from=2020-01-01")
        assert len(seen) <= 8, (tab, seen)
        assert sum("saved_views" in statement for statement in seen) == 1
    html = soup(client.get(f"{BASE}/feedback?status=pending", headers=asked))
    assert html.select_one("hx-partial[hx-target='#views'] summary").get_text(strip=True) == "Pending"
    assert not soup(client.get(f"{BASE}/feedback?status=pending")).select("hx-partial")


def test_a_tab_opens_with_its_view_and_there_is_a_way_out(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())
    save(client, "Pending", default="1")

    assert client.get(f"{BASE}/feedback").location == f"{BASE}/feedback?status=pending"
    assert client.get(f"{BASE}/sessions").status_code == 200
    fragment = {"HX-Request": "true", "HX-Request-Type": "partial"}
    assert client.get(f"{BASE}/feedback", headers=fragment).status_code == 200
    html = soup(client.get(f"{BASE}/feedback?status=pending"))
    everything = f"{BASE}/feedback?view=all"
    assert html.select_one(".u-chip a")["href"] == everything
    assert soup(client.get(f"{BASE}/feedback?q=zanzibar")).select_one(".u-blank a")["href"] == everything
    answer = client.get(everything)
    assert answer.status_code == 200
    assert not soup(answer).select(".u-chip")
    assert client.get(f"{BASE}/feedback?q=").status_code == 200
    assert sign_in(workspace.actor("owner")).get(f"{BASE}/feedback").status_code == 200


def test_views_are_renamed_shared_taken_over_and_deleted(workspace: Workspace, sign_in: SignIn) -> None:
    client, other = sign_in(workspace.actor("admin")), sign_in(workspace.actor("owner"))
    save(client, "Pending")
    form = soup(client.get(VIEWS)).select_one("form.u-view-form")

    assert send(client, form["action"], name="To do", shared="1").location == VIEWS
    assert menu(client, f"{BASE}/feedback") == {"To do": f"{BASE}/feedback?status=pending"}
    assert menu(other, f"{BASE}/feedback") == {"To do": f"{BASE}/feedback?status=pending"}
    assert not soup(other.get(VIEWS)).select("form.u-view-form")
    assert send(other, form["action"], name="Mine").status_code == 404
    assert send(other, f"{form['action']}/delete").status_code == 404
    assert send(other, f"{form['action']}/copy").location == VIEWS
    assert other.get(f"{BASE}/feedback").location == f"{BASE}/feedback?status=pending"
    assert send(client, f"{form['action']}/delete").location == VIEWS
    assert menu(client, f"{BASE}/feedback") == {}
    assert "No saved views yet" in soup(client.get(VIEWS)).text


def test_invalid_input_is_reported_where_it_was_typed(workspace: Workspace, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor())
    save(client, "One")
    save(client, "Two", "q=ltm", shared="1")

    answer = save(client, "x" * 61)
    assert answer.status_code == 422
    assert soup(answer).select_one("#f-name")["value"] == "x" * 61
    assert soup(answer).select_one("#f-name-error")
    assert save(client, "Three", "colour=red").status_code == 422
    assert save(client, "Three", tab="nowhere").status_code == 422
    first = soup(client.get(VIEWS)).select_one("form.u-view-form")["action"]
    answer = send(client, first, name="Two")
    assert answer.status_code == 409
    assert soup(answer).select_one("form.u-view-form [aria-invalid]")["value"] == "Two"
    assert "already" in soup(answer).select_one(".invalid-feedback").text


def test_the_page_needs_few_queries(workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]) -> None:
    client = sign_in(workspace.actor())
    for number in range(5):
        save(client, f"View {number}", shared="1")

    with count_queries() as seen:
        assert client.get(VIEWS).status_code == 200
    assert len(seen) <= 8
