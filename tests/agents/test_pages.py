"""The pages of agents: the list, one agent, archiving, and merging one that a typo made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import update

from app.db import acting_as, db, transaction
from app.models import AgentSession
from app.services.agents import versions
from app.services.sessions import store as session_store
from app.services.sessions.events import NewEvent
from app.services.sessions.store import NewSession
from tests.conftest import Workspace, golden_mark, soup
from tests.lists.filling import fill

SignIn = Callable[..., FlaskClient]
BASE = "/admin/agents"


def agent_id(app: Flask, actor: Any, slug: str) -> UUID:
    with app.app_context(), acting_as(actor):
        found = versions.find_agent(slug, actor=actor)
        assert found is not None
        return found.id


def typo(app: Flask, workspace: Workspace, slug: str = "deal-analist") -> UUID:
    actor = workspace.actor()
    with app.app_context(), acting_as(actor), transaction():
        said = [NewEvent("user.message", {"text": "Hello"})]
        new = NewSession(agent=slug, title="Misspelt", status="completed", events=said)
        session, _ = session_store.create_session(new, actor=actor)
        return session.agent_id


def test_the_list_says_who_did_how_much(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())

    with count_queries() as seen:
        html = soup(client.get(BASE))
    assert len(seen) <= 8
    rows = {row.select_one(".u-main a").text: row.get_text(" ", strip=True) for row in html.select("tbody tr")}
    assert list(rows) == ["deal-analyst", "sales-ops", "feedback-review-agent"]
    for words in ("external", "offline", "$0.0042", "8.0 s", "0% of", "v1"):
        assert words in rows["deal-analyst"]
    assert "not rated" in rows["feedback-review-agent"]
    assert "system" in rows["feedback-review-agent"]
    assert html.select_one(".u-nav [aria-current=page]").text.strip() == "Agents"
    for link in html.select("tbody a"):
        assert client.get(link["href"]).status_code == 200


def test_one_agent_in_few_queries(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    fill(app, workspace)
    actor = workspace.actor()
    with app.app_context(), acting_as(actor), transaction():
        made = versions.ensure_agent("own", actor=actor, kind="builtin", config={"instructions": "<b>Look</b>"}).id
    client = sign_in(actor)
    with count_queries() as seen:
        html = soup(client.get(f"{BASE}/{made}"))
    assert len(seen) <= 8
    assert html.select_one(".u-told").text == "<b>Look</b>"
    assert html.select_one("#try-message")
    assert [option["value"] for option in html.select("#try-records option")] == ["Halden"]
    outside = soup(client.get(f"{BASE}/{agent_id(app, actor, 'deal-analyst')}"))
    assert not outside.select("#try-message")
    review = soup(client.get(f"{BASE}/{agent_id(app, actor, 'feedback-review-agent')}"))
    assert not review.select("#page form")
    assert review.select_one("a[href$='/edit']")


def test_archiving_and_back(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = typo(app, workspace)
    client: Any = sign_in(workspace.actor())
    sent = {"csrf_token": client.csrf}

    assert client.post(f"{BASE}/{row}/archive", data=sent).status_code == 303
    assert [line.text for line in soup(client.get(BASE)).select("tbody .u-main a")] == ["feedback-review-agent"]
    assert [line.text for line in soup(client.get(f"{BASE}?show=archived")).select("tbody .u-main a")] == [
        "deal-analist"
    ]
    page = soup(client.get(f"{BASE}/{row}"))
    assert "Archived" in page.select_one(".u-alert").text
    assert not page.select("a[href$='/edit']")
    assert client.get(f"{BASE}/{row}/edit").status_code == 303
    assert client.post(f"{BASE}/{row}/archive", data=sent | {"do": "restore"}).status_code == 303
    assert len(soup(client.get(BASE)).select("tbody tr")) == 2
    assert "No archived agents" in soup(client.get(f"{BASE}?show=archived")).text
    review = agent_id(app, workspace.actor(), "feedback-review-agent")
    client.post(f"{BASE}/{review}/archive", data=sent)
    assert "is built in" in soup(client.get(f"{BASE}/{review}")).select_one("#toasts").text


def test_a_merge_is_confirmed_and_done(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    fill(app, workspace)
    row = typo(app, workspace)
    meant = agent_id(app, workspace.actor(), "deal-analyst")
    client: Any = sign_in(workspace.actor())

    choices = [option["value"] for option in soup(client.get(f"{BASE}/{row}")).select("#f-into option")]
    assert choices == ["", "deal-analyst", "sales-ops"]
    with count_queries() as seen:
        page = soup(client.get(f"{BASE}/{row}/merge?into=deal-analyst"))
    assert len(seen) <= 8
    assert "1 session" in page.select_one(".u-confirm").text
    form = page.select_one("#page form")
    sent = {field["name"]: field["value"] for field in form.select("input")}
    answer = client.post(form["action"], data=sent)
    assert (answer.status_code, answer.location) == (303, f"{BASE}/{meant}")
    assert typo(app, workspace) == meant
    assert client.get(f"{BASE}/{row}").location == f"{BASE}/{meant}"
    rows = [line.text for line in soup(client.get(BASE)).select("tbody .u-main a")]
    assert rows == ["deal-analyst", "sales-ops", "feedback-review-agent"]
    again = client.post(form["action"], data=sent)
    assert again.status_code == 409


def test_golden_sessions_stay_where_they_are(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    row = typo(app, workspace)
    actor = workspace.actor()
    with app.app_context(), acting_as(actor), transaction():
        golden = update(AgentSession).where(AgentSession.agent_id == row).values(meta=golden_mark())
        db.session.execute(golden)
    client: Any = sign_in(actor)

    assert client.get(f"{BASE}/{row}/merge?into=deal-analyst").status_code == 409
    answer = client.post(f"{BASE}/{row}/merge", data={"csrf_token": client.csrf, "into": "deal-analyst"})
    assert answer.status_code == 409
    assert "golden" in soup(answer).select_one("[role=alert]").text
    assert not soup(answer).select("#page form")


def test_what_does_not_exist_is_not_changed(
    app: Flask, workspace: Workspace, make_workspace: Callable[..., Workspace], sign_in: SignIn
) -> None:
    row = typo(app, workspace)
    foreign = typo(app, make_workspace())
    client: Any = sign_in(workspace.actor())

    assert client.get(f"{BASE}/{row}/merge?into=nobody").status_code == 422
    assert client.post(f"{BASE}/{row}/merge", data={"csrf_token": client.csrf, "into": ""}).status_code == 422
    for unknown in (foreign, uuid4()):
        assert client.get(f"{BASE}/{unknown}").status_code == 404
        assert client.get(f"{BASE}/{unknown}/merge?into=deal-analist").status_code == 404
        data = {"csrf_token": client.csrf, "into": "deal-analist", "slug": "x", "name": "x"}
        for action in ("merge", "archive", "edit", "versions", "try"):
            assert client.post(f"{BASE}/{unknown}/{action}", data=data).status_code == 404
