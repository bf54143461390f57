"""Search anything as a page and as the lines of the dialog: what is found, where it leads, and for whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from tests.conftest import Workspace, soup
from tests.lists.filling import HOSTILE, fill

SignIn = Callable[..., FlaskClient]


def titles(html: Any) -> dict[str, list[str]]:
    """Group → what it lists, on the page and in the dialog alike."""
    groups = html.select("[role=group]") or html.select(".u-hits section")
    return {
        group.select_one(".u-cap, h2").text: [line.b.text for line in group.select("[role=option], li a")]
        for group in groups
    }


def test_every_page_has_the_way_in(workspace: Workspace, sign_in: SignIn) -> None:
    html = soup(sign_in(workspace.actor("member")).get("/account"))

    assert html.select_one(".u-top a[data-palette]")["href"] == "/search"
    dialog = html.select_one("dialog#palette")
    assert dialog.form["action"] == "/search"
    assert dialog.input["hx-get"] == "/palette"
    assert dialog.select_one(f"#{dialog.input['aria-controls']}")["role"] == "listbox"


def test_an_admin_finds_pages_and_records(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    filled = fill(app, workspace)
    client = sign_in(workspace.actor())

    with count_queries() as seen:
        html = soup(client.get("/palette?q=ebitda"))
    assert len(seen) <= 5
    found = titles(html)
    assert set(found) == {"Conversations", "Feedback", "Knowledge"}
    assert found["Knowledge"] == ["Use LTM EBITDA when comparing deals."]
    assert not html.select("html, script")
    options = html.select("[role=option]")
    assert len({option["id"] for option in options}) == len(options)
    for option in options:
        assert client.get(option["href"]).status_code == 200, option["href"]
    page = soup(client.get("/search?q=ebitda"))
    assert titles(page) == found
    assert page.select_one(".u-filters input")["value"] == "ebitda"
    by_id = soup(client.get(f"/palette?q={filled.session}"))
    assert list(titles(by_id)) == ["ID"]
    assert by_id.select_one("[role=option]")["href"].endswith(f"/sessions/{filled.session}")


def test_without_words_there_are_the_pages(workspace: Workspace, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor())

    pages = titles(soup(client.get("/palette")))["Pages"]
    assert pages[:5] == ["Conversations", "Sessions", "Feedback", "Knowledge", "Evals"]
    assert {"Agents", "Settings", "Members", "API keys", "Saved views", "Your account", "Keyboard"} <= set(pages)
    assert titles(soup(client.get("/palette?q=INVITE")))["Pages"] == ["Members"]
    for link in soup(client.get("/search")).select(".u-hits a"):
        assert client.get(link["href"]).status_code == 200, link["href"]


def test_members_are_offered_only_what_they_may_open(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    member, other = sign_in(workspace.actor("member")), sign_in(workspace.actor("other"))

    for client in (member, other):
        for path in ("/search", "/search?q=a", "/search?q=kestrel", "/search?q=halden", f"/search?q={filled.session}"):
            for link in soup(client.get(path)).select(".u-hits a"):
                assert not link["href"].startswith("/admin/"), link["href"]
                assert client.get(link["href"]).status_code == 200, link["href"]
    assert "Sessions" in titles(soup(member.get("/search?q=kestrel")))
    assert "Sessions" not in titles(soup(other.get("/search?q=kestrel")))
    assert not titles(soup(other.get(f"/search?q={filled.ids['correction']}")))


def test_messages_are_text_and_nothing_else(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())

    html = soup(client.get("/palette?q=alert"))
    assert any(HOSTILE in title for title in titles(html)["Feedback"])
    assert not html.select("script, img")


def test_nothing_found_and_nothing_sensible_asked(workspace: Workspace, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor())

    assert "No matches for “zanzibar”" in soup(client.get("/palette?q=zanzibar")).text
    assert soup(client.get("/search?q=zanzibar")).select_one(".u-blank h2").text == "No matches"
    for path in ("/palette", "/search"):
        assert client.get(f"{path}?q=%00").status_code == 400
        assert client.get(f"{path}?q={'x' * 201}").status_code == 400
        assert client.get(f"{path}?q={'x' * 200}").status_code == 200
