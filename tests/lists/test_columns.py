"""The columns of lists: chosen by each person, and hidden where they say the same in every row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from app.db import acting_as, transaction
from app.services.lists.columns import COLUMNS
from app.services.sessions import store as session_store
from app.services.sessions.store import NewSession
from tests.conftest import Workspace, soup
from tests.lists.filling import fill

SignIn = Callable[..., FlaskClient]
BASE = "/admin/agent-review"


def hidden(page: Any) -> set[str]:
    return {one.removeprefix("no-") for one in page.select_one(".u-table")["class"] if one.startswith("no-")}


def choose(client: FlaskClient, name: str, page: Any, **form: Any) -> Any:
    action, token = f"{BASE}/columns/{name}", page.select_one("meta[name=csrf]")["content"]
    return client.post(action, data={"csrf_token": token, "next": f"{BASE}/{name}?view=all", **form})


def test_columns_with_one_value_hide_themselves(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    member = workspace.actor("member")
    with app.app_context(), acting_as(member), transaction():
        for title in ("One", "Two"):
            session_store.create_session(NewSession(agent="a", title=title, status="completed"), actor=member)
    client = sign_in(workspace.actor())
    page = soup(client.get(f"{BASE}/sessions?agent=a"))
    assert hidden(page) == {"status", "agent", "type", "model", "feedback", "took", "tokens", "cost"}
    assert not {"agent", "status"} & hidden(soup(client.get(f"{BASE}/sessions")))
    assert hidden(soup(client.get(f"{BASE}/sessions?q=kestrel"))) == set(), "one row repeats nothing"

    menu = page.select_one("form.u-columns")
    assert "Agent same in every row" in " ".join(menu.text.split())
    assert [one["value"] for one in menu.select("[name=shown][checked]")] == list(COLUMNS["sessions"])
    choose(client, "sessions", page, shown=list(COLUMNS["sessions"]))
    assert hidden(soup(client.get(f"{BASE}/sessions?agent=a"))) == set()


def test_each_person_chooses_columns(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    client, other = sign_in(workspace.actor()), sign_in(workspace.actor("owner"))
    for name in ("conversations", "sessions", "feedback"):
        page = soup(client.get(f"{BASE}/{name}"))
        cells = {one for cell in page.select("td[class]") for one in cell["class"] if one.startswith("k-")}
        assert cells == {f"k-{column}" for column in COLUMNS[name]}
        answer = choose(client, name, page, shown=["agent"])
        assert answer.status_code == 303
        assert answer.location == f"{BASE}/{name}?view=all"
        assert hidden(soup(client.get(f"{BASE}/{name}"))) == COLUMNS[name].keys() - {"agent"}
        assert hidden(soup(other.get(f"{BASE}/{name}"))) != COLUMNS[name].keys() - {"agent"}
        choose(client, name, page, reset="1")
        assert hidden(soup(client.get(f"{BASE}/{name}"))) == hidden(page)

    assert choose(client, "sessions", page, shown=["colour"]).status_code == 400
    assert choose(client, "knowledge", page, shown=[]).status_code == 404
    member = sign_in(workspace.actor("member"))
    assert choose(member, "sessions", page, shown=[]).status_code in (400, 403)
