"""With `author_private`, no page and no answer tells admins whose a conversation is, so who gave feedback in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.models import (
    Agent,
    AgentSession,
    ApiKey,
    Chat,
    Entity,
    EntityResponse,
    Feedback,
    SessionEvent,
    SharedContext,
    User,
)
from app.services.entities import responses
from app.services.evals import promotion
from app.services.feedback import teamwork
from app.services.sessions import store as session_store
from app.services.workspaces import store as workspace_store
from tests.conftest import Api, Workspace, soup
from tests.lists.filling import Filled, fill

TABS = "/admin/agent-review"
PANEL = {"HX-Request": "true", "HX-Request-Type": "partial"}
# People and their keys are managed there, whatever they said.
MANAGED = {"settings.list_members", "settings.list_keys"}
# What the audit log says of people that is about no conversation and no feedback.
ELSEWHERE = ("added a member", "created an API key", "signed in")


class Site:
    """A member's conversation with feedback, a golden and a response from it; and an admin who reads it."""

    def __init__(self, app: Flask, workspace: Workspace, member_key: Api, filled: Filled) -> None:
        self.app, self.workspace, self.filled = app, workspace, filled
        self.member = workspace.actor("member")
        admin = workspace.actor()
        answer = str(filled.ids["answer"])
        for given in ({"signal": "not_helpful"}, {"signal": "helpful"}):
            assert member_key.post("/api/v1/feedback", {"message_id": answer, **given}).status_code < 300
        with app.app_context(), acting_as(self.member), transaction():
            values = {"valuation": {"value": 9}}
            new = responses.NewResponse(entity_id=filled.ids["deal"], values=values, session_id=filled.session)
            row = responses.submit_response(new, actor=self.member)
            responses.decide_response(row.id, "rejected", reason="Last year's", actor=self.member)
            started = session_store.NewSession(agent="deal-analyst", title="Goes on", status="pending")
            session_store.begin_session(
                session_store.create_session(started, actor=self.member)[0].id, actor=self.member
            )
        with app.app_context(), acting_as(admin), transaction():
            given = promotion.Promotion(set_name="smoke", recorded_is_right=True)
            promotion.promote_session(filled.session, given, actor=admin)
            teamwork.assign([filled.ids["reaction"]], admin.id, actor=admin)
            teamwork.add_comment(filled.ids["reaction"], "Who knows the deal?", actor=admin)

    def hide(self, hides: bool = True) -> None:
        owner = self.workspace.actor("owner")
        with self.app.app_context(), acting_as(owner), transaction():
            workspace_store.change_settings({"author_private": hides}, actor=owner)

    def addresses(self) -> Iterator[tuple[str, str]]:
        """Every address that can be read, with the ids of what was said."""
        with self.app.app_context(), acting_as(self.workspace.actor()):
            known = {name: self._ids(model) for name, model in MODELS.items()}
        known |= {"golden_id": [self.filled.session], "replay_id": [self.filled.failed]}
        texts = {"name": "smoke", "index": 0, "rest": str(self.filled.chat)}
        for rule in self.app.url_map.iter_rules():
            if "GET" not in (rule.methods or ()) or rule.endpoint in MANAGED | {"static"} or "token" in rule.arguments:
                continue
            names = sorted(rule.arguments)
            choices = [[texts[name]] if name in texts else known.get(name, [self.filled.chat]) for name in names]
            for values in product(*choices):
                with self.app.test_request_context():
                    yield rule.endpoint, str(rule.build(dict(zip(names, values, strict=True)))[1])  # type: ignore[index]

    def _ids(self, model: Any) -> list[UUID]:
        return list(db.session.scalars(select(model.id).where(model.tenant_id == self.workspace.id).limit(8)))

    def tells(self, text: str) -> list[str]:
        email = f"member-{self.workspace.slug}@example.test"
        return [word for word in (self.member.name, email, str(self.member.id)) if word in text]


MODELS: dict[str, Any] = {
    "chat_id": Chat,
    "session_id": AgentSession,
    "feedback_id": Feedback,
    "event_id": SessionEvent,
    "response_id": EntityResponse,
    "agent_id": Agent,
    "entity_id": Entity,
    "row_id": SharedContext,
}


@pytest.fixture
def site(app: Flask, workspace: Workspace, api: Callable[..., Api]) -> Site:
    return Site(app, workspace, api(workspace.actor("member"), "feedback"), fill(app, workspace))


@pytest.mark.exhaustive
def test_no_page_and_no_answer_tells_whose_conversation_it_is(
    site: Site, sign_in: Callable[..., Any], api: Callable[..., Api]
) -> None:
    browser, key = sign_in(site.workspace.actor()), api(site.workspace.actor())
    usual = (f"{TABS}/conversations", f"{TABS}/conversations/{site.filled.chat}")
    assert all(site.tells(browser.get(path).text) for path in usual), "without the setting they tell"

    site.hide()
    read: set[str] = set()
    leaks = []
    for endpoint, path in site.addresses():
        asked = [key.get(path)] if path.startswith(("/api/", "/conversations/")) else [
            browser.get(path), browser.get(f"{path}?panel=1", headers=PANEL)
        ]  # fmt: skip
        for response in asked:
            assert response.status_code < 500, path
            if response.status_code == 200:
                read.add(endpoint)
            if endpoint != "settings.audit_trail" and (words := site.tells(response.text)):
                leaks.append((path, words))
    assert not leaks
    assert {
        "conversations.index", "conversations.detail", "sessions.index", "sessions.detail", "sessions.event",
        "feedback.index", "feedback.detail", "knowledge.index", "entities.detail", "api_members.read_chat",
        "api_members.list_messages", "api_agents.read_session", "api_members.index", "api_members.read_feedback",
        "layout.palette", "agents.detail", "agents.versions", "evals.show_diff", "settings.audit_trail",
    } <= read, sorted(read)  # fmt: skip


def test_the_conversation_is_with_a_member(site: Site, sign_in: Callable[..., Any], count_queries: Any) -> None:
    site.hide()
    browser = sign_in(site.workspace.actor())
    for path in (
        f"{TABS}/conversations?rating=negative",
        f"{TABS}/conversations/{site.filled.chat}",
        f"{TABS}/sessions/{site.filled.session}",
        f"{TABS}/feedback/{site.filled.ids['reaction']}",
    ):
        with count_queries() as seen:
            html = soup(browser.get(path))
        assert len(seen) <= 8 or "/feedback/" in path, (path, seen)
        assert "a member" in html.select_one("main").text, path
    page = soup(browser.get(f"{TABS}/conversations/{site.filled.chat}"))
    assert not page.select("#chat-facts dd a[href*=person_id]")
    assert "a member with deal-analyst" in " ".join(page.text.split())


def offered(browser: Any) -> set[str]:
    page = soup(browser.get(f"{TABS}/filters/conversations"))
    values = (str(option["value"]) for option in page.select("select[name=person_id] option"))
    return {value for value in values if not value.startswith("-")}


def test_nobody_is_found_by_their_conversations(site: Site, sign_in: Callable[..., Any]) -> None:
    browser, path = sign_in(site.workspace.actor()), f"{TABS}/conversations?person_id={site.member.id}"
    title = "Compare Kestrel and Bluefin"
    sessions_of = f"{TABS}/sessions?person_id={site.member.id}"
    assert title in browser.get(path).text
    assert title in browser.get(sessions_of).text
    assert site.member.name in soup(browser.get(path)).select_one(".u-chip").text
    assert str(site.member.id) in offered(browser)

    site.hide()
    for closed in (path, sessions_of):
        page = browser.get(closed)
        assert title not in soup(page).select_one("main").text
        assert site.member.name not in page.text
    assert offered(browser) == {"", str(site.workspace.actor().id)}


def test_the_audit_log_names_people_only_for_other_things(site: Site, sign_in: Callable[..., Any]) -> None:
    site.hide()
    with site.app.app_context(), acting_as(site.workspace.actor()):
        key = db.session.scalar(select(ApiKey.name).join(User).where(User.id == site.member.id))
    lines = [
        " ".join(row.text.split())
        for row in soup(sign_in(site.workspace.actor()).get("/admin/settings/audit")).select("tr")
    ]
    naming = [line for line in lines if site.tells(line) or key in line]
    assert naming
    assert [line for line in naming if not any(words in line for words in ELSEWHERE)] == []
    for words in ("created feedback", "began a session", "submitted a response", "rejected a response"):
        assert any("a member" in line for line in lines if words in line), words


def test_people_read_their_own_name(site: Site, sign_in: Callable[..., Any]) -> None:
    site.hide()
    own = sign_in(site.member).get(f"/sessions/{site.filled.session}")
    assert site.member.name in soup(own).select_one("#session-facts").text
    others = sign_in(site.workspace.actor("other")).get(f"/sessions/{site.filled.session}")
    assert site.tells(others.text) == []
