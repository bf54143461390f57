"""The page of agents: what each did, renaming one, and merging one that a typo made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import update

from app.db import acting_as, db, transaction
from app.models import AgentSession
from app.services import agents, sessions
from app.services.sessions import NewSession
from tests.conftest import Workspace, soup
from tests.views.filling import fill

SignIn = Callable[..., FlaskClient]
BASE = "/admin/agents"


def agent_id(app: Flask, actor: Any, slug: str) -> UUID:
    with app.app_context(), acting_as(actor):
        found = agents.find_agent(slug, actor=actor)
        assert found is not None
        return found.id


def typo(app: Flask, workspace: Workspace, slug: str = "deal-analist") -> UUID:
    actor = workspace.actor()
    with app.app_context(), acting_as(actor), transaction():
        session, _ = sessions.create_session(NewSession(agent=slug, title="Misspelt", status="completed"), actor=actor)
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
    assert "0 % of" in rows["deal-analyst"]
    assert "not rated" in rows["feedback-review-agent"]
    assert "system" in rows["feedback-review-agent"]
    assert html.select_one(".u-nav [aria-current=page]").text.strip() == "Agents"
    for link in html.select("tbody a"):
        assert client.get(link["href"]).status_code == 200


def test_renaming_keeps_the_old_name_alive(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    row = typo(app, workspace)
    client: Any = sign_in(workspace.actor())

    form = {"csrf_token": client.csrf, "slug": "deal-analyst", "name": "Deal analyst"}
    assert client.post(f"{BASE}/{row}/rename", data=form).status_code == 303
    with count_queries() as seen:
        html = soup(client.get(f"{BASE}/{row}"))
    assert len(seen) <= 8
    assert html.h1.text == "deal-analyst"
    assert "deal-analist" in html.select_one(".u-facts").text
    assert typo(app, workspace) == row
    old = agent_id(app, workspace.actor(), "deal-analist")
    assert client.get(f"{BASE}/{old}").location == f"{BASE}/{row}"


def test_a_name_that_does_not_fit_is_said_under_its_field(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = typo(app, workspace)
    client: Any = sign_in(workspace.actor())

    answer = client.post(f"{BASE}/{row}/rename", data={"csrf_token": client.csrf, "slug": "Not A Slug", "name": "X"})
    assert answer.status_code == 422
    assert soup(answer).select_one("#f-slug")["value"] == "Not A Slug"
    assert soup(answer).select_one("#f-slug-error")
    review = agent_id(app, workspace.actor(), "feedback-review-agent")
    answer = client.post(f"{BASE}/{review}/rename", data={"csrf_token": client.csrf, "slug": "x", "name": "X"})
    assert answer.status_code == 409
    assert not soup(client.get(f"{BASE}/{review}")).select("#page form")


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
    rows = [line.text for line in soup(client.get(BASE)).select("tbody .u-main a")]
    assert rows == ["deal-analyst", "sales-ops", "feedback-review-agent"]
    again = client.post(form["action"], data=sent)
    assert again.status_code == 409


def test_golden_sessions_stay_where_they_are(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    row = typo(app, workspace)
    actor = workspace.actor()
    with app.app_context(), acting_as(actor), transaction():
        golden = update(AgentSession).where(AgentSession.agent_id == row).values(meta={"golden": {"set": "smoke"}})
        db.session.execute(golden)
    client: Any = sign_in(actor)

    assert client.get(f"{BASE}/{row}/merge?into=deal-analyst").status_code == 409
    answer = client.post(f"{BASE}/{row}/merge", data={"csrf_token": client.csrf, "into": "deal-analyst"})
    assert answer.status_code == 409
    assert "golden" in soup(answer).select_one("[role=alert]").text
    assert not soup(answer).select("#page form")


def test_what_does_not_exist_is_not_merged(
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
        for action in ("merge", "rename"):
            assert client.post(f"{BASE}/{unknown}/{action}", data=data).status_code == 404
