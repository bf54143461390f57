"""Evals: golden sessions by set, and an honest page where there are none."""

from __future__ import annotations

import json
from collections.abc import Callable

import psycopg
from flask import Flask
from flask.testing import FlaskClient

from tests.conftest import Workspace, soup
from tests.views.filling import fill

SignIn = Callable[..., FlaskClient]
URL = "/admin/agent-review/evals"


def promote(owner_url: str, workspace: Workspace, session_id: object, set_name: str) -> None:
    """Mark a session as golden, as promotion does; until that exists there is no verb for it."""
    with psycopg.connect(owner_url) as connection:
        connection.execute("select set_config('app.tenant_id', %s, true)", (str(workspace.id),))
        connection.execute(
            "update sessions set metadata = jsonb_set(metadata, '{golden}', %s::jsonb) where id = %s",
            (json.dumps({"set": set_name}), session_id),
        )


def test_no_golden_sessions_yet(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    html = soup(sign_in(workspace.actor()).get(URL))

    assert html.select_one(".u-blank h2").text == "No golden sessions yet"
    assert not html.select(".u-seg")
    assert "%" not in html.select_one("main").text


def test_golden_sessions_are_listed_by_set(app: Flask, workspace: Workspace, sign_in: SignIn, owner_url: str) -> None:
    filled = fill(app, workspace)
    promote(owner_url, workspace, filled.session, "pe-analyst")
    client = sign_in(workspace.actor())
    html = soup(client.get(URL))

    assert [link.get_text(" ", strip=True) for link in html.select(".u-seg a")] == ["All 1", "pe-analyst 1"]
    row = html.select_one("[data-row]")
    assert row["id"] == f"golden-{filled.session}"
    htmx = {"HX-Request": "true", "HX-Request-Type": "partial"}
    assert "golden" in soup(client.get(f"{row['data-href']}?panel=1", headers=htmx)).select_one("aside").text
    assert client.get(row["data-href"]).location.endswith(f"/sessions/{filled.session}")
    assert len(soup(client.get(f"{URL}?set=pe-analyst&q=kestrel")).select("[data-row]")) == 1
    assert soup(client.get(f"{URL}?set=other")).select_one(".u-blank h2").text == "Nothing matches"
    assert client.get(f"{URL}/{filled.failed}").status_code == 404
