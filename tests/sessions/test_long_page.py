"""Long sessions and conversations in parts, and flags in place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.db import acting_as, transaction
from app.services.chats import store as chat_store
from app.services.feedback import intake as feedback_intake
from app.services.feedback.intake import NewFeedback
from app.services.sessions import store as session_store
from app.services.sessions.events import NewEvent
from app.services.sessions.store import NewSession
from tests.conftest import Workspace, soup
from tests.lists.filling import fill

SignIn = Callable[..., FlaskClient]
URL = "/admin/agent-review/sessions"
CHATS = "/admin/agent-review/conversations"
NOON = datetime(2026, 11, 13, 12, 0, tzinfo=UTC)
HTMX = {"HX-Request": "true", "HX-Request-Type": "partial"}
EVENTS = 2000


def long_session(app: Flask, workspace: Workspace) -> tuple[UUID, list[UUID]]:
    """2,000 events of the worst kind: calls with results that are all quotes, records changed, texts in between."""
    admin, member = workspace.actor(), workspace.actor("member")
    heavy = {"rows": [{"id": f"{n}", "name": '"<&>"', "tags": ["a", "b", "c"]} for n in range(30)]}
    events: list[NewEvent] = [NewEvent("context.loaded", {"row_ids": [str(uuid4())], "token_count": 9}, NOON)]
    for n in range(1, EVENTS):
        at = NOON + timedelta(seconds=n)
        kinds: list[tuple[str, dict[str, Any]]] = [
            ("tool.call", {"id": f"c{n}", "name": "searchDeals", "arguments": heavy}),
            ("tool.result", {"call_id": f"c{n - 1}", "output": heavy}),
            ("agent.message", {"text": f"step {n} " + "word " * 40}),
            ("user.message", {"text": f"and then {n}"}),
        ]
        events.append(NewEvent(*kinds[n % 4 - 1], at))
    with app.app_context():
        with acting_as(admin), transaction():
            session, _ = session_store.create_session(NewSession(agent="long-runner", title="A long day"), actor=admin)
            ids: list[UUID] = []
            for start in range(0, EVENTS, 1000):
                ids += session_store.append_events(session.id, events[start : start + 1000], actor=admin)
        with acting_as(member), transaction():
            for comment, event in (("near the end", str(ids[1900])), ("about all of it", None)):
                feedback_intake.record_feedback(
                    NewFeedback(
                        source_type="session",
                        rating="negative",
                        comment=comment,
                        session_id=session.id,
                        context={"event_id": event} if event else {},
                    ),
                    actor=member,
                )
    return session.id, ids


@pytest.mark.exhaustive
def test_a_session_of_2000_events_answers_quickly_and_loads_the_rest(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    session_id, ids = long_session(app, workspace)
    client = sign_in(workspace.actor())
    with count_queries() as seen:
        answer = client.get(f"{URL}/{session_id}")
    assert len(seen) <= 8, seen
    assert len(answer.data) <= 300_000
    page = soup(answer)
    assert page.select_one(".u-wave svg") is not None
    assert "about all of it" in page.select_one(".u-about").text
    assert not page.select(".u-margin .u-note")
    further = page.select_one(".u-rail a[href*='at=']")
    assert "near the end" in further.text

    texts, notes, link = [], 0, page.select_one(".u-next a")["href"]
    while link:
        assert link == page.select_one(".u-next")["hx-get"]
        with count_queries() as seen:
            answer = client.get(link, headers=HTMX)
        assert len(seen) <= 8
        assert len(answer.data) <= 300_000
        page = soup(answer)
        assert page.html is None
        assert not page.select(".u-tool .is-fail"), "every call has its result"
        notes += len(page.select(".u-margin .u-note"))
        texts += [said.text.strip() for said in page.select(".u-say")]
        link = page.select_one(".u-next a")["href"] if page.select_one(".u-next") else None
    assert notes == 1
    assert texts[-1].startswith(f"step {EVENTS - 1}")
    assert len(texts) == len(set(texts))

    with count_queries() as seen:
        begins = soup(client.get(further["href"]))
    assert len(seen) <= 9
    anchor = further["href"].split("#")[1]
    assert begins.select_one(".u-turn")["id"] == anchor
    assert "near the end" in begins.select_one(f"#notes-{anchor}").text
    assert begins.select_one(".u-since a")["href"] == f"{URL}/{session_id}"
    assert str(ids[1900]) in further["href"]


def test_a_member_reads_the_same_in_parts_with_their_own_feedback(
    app: Flask, workspace: Workspace, sign_in: SignIn
) -> None:
    session_id, _ = long_session(app, workspace)
    for role, about in (("member", 1), ("other", 0)):
        client = sign_in(workspace.actor(role))
        page = soup(client.get(f"/sessions/{session_id}"))
        assert len(page.select(".u-about .u-note")) == about
        following = page.select_one(".u-next a")["href"]
        assert following.startswith(f"/sessions/{session_id}?after=")
        part = soup(client.get(following, headers=HTMX))
        assert part.select(".u-turn")
        assert not part.select("a[href*='/admin/']")


def test_what_is_very_long_is_cut_and_read_elsewhere(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    admin = workspace.actor()
    events = [
        NewEvent("user.message", {"text": "long " * 5000}),
        NewEvent("tool.call", {"id": "1", "name": "look", "arguments": {"q": "x" * 9000}}),
        NewEvent("tool.result", {"call_id": "1", "output": {"rows": ["<b>"] * 5000}}),
    ]
    with app.app_context(), acting_as(admin), transaction():
        session_id = session_store.create_session(NewSession(agent="a", events=events), actor=admin)[0].id
    for actor, base in ((admin, URL), (workspace.actor("member"), "/sessions")):
        client = sign_in(actor)
        answer = client.get(f"{base}/{session_id}")
        assert len(answer.data) < 60_000
        links = [link["href"] for link in soup(answer).select(".u-rest a")]
        assert len(links) == 3
        for link, text in zip(links, ("long long", "xxx", "&lt;b&gt;"), strict=True):
            whole = client.get(link, headers=HTMX)
            assert text in whole.get_data(as_text=True)
            assert soup(client.get(link)).select_one("h1") is not None
        assert client.get(f"{base}/{session_id}/events/{uuid4()}").status_code == 404


def test_places_that_are_none_are_refused(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    client = sign_in(workspace.actor())

    assert client.get(f"{URL}/{filled.session}?after=garbage").status_code == 400
    assert client.get(f"{CHATS}/{filled.chat}?after=x").status_code == 400
    for query in ("at=garbage", f"at={uuid4()}"):
        assert "searchDeals" in client.get(f"{URL}/{filled.session}?{query}").get_data(as_text=True)


def test_a_long_conversation_comes_in_parts(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    member = workspace.actor("member")
    with app.app_context(), acting_as(member), transaction():
        chat = chat_store.create_chat(actor=member, agent_slug="sales-ops", title="Long talk")
        said = [chat_store.NewMessage(role="user" if n % 2 else "agent", content=f"line {n}") for n in range(250)]
        chat_store.append_messages(chat.id, said, actor=member)
        new = NewFeedback(
            source_type="chat",
            kind="comment",
            rating="negative",
            comment="Here",
            context={"chat_id": str(chat.id), "message_index": 220},
        )
        feedback_intake.record_feedback(new, actor=member)
        url = f"{CHATS}/{chat.id}"
    client = sign_in(workspace.actor())
    page = soup(client.get(url))
    seen = [turn["id"] for turn in page.select(".u-turn")]
    assert not page.select(".u-note")
    while page.select_one(".u-next"):
        page = soup(client.get(page.select_one(".u-next")["hx-get"], headers=HTMX))
        seen += [turn["id"] for turn in page.select(".u-turn")]
    assert seen == [f"m-{n}" for n in range(250)]
    assert "Here" in page.select_one("#notes-m-220").text


def test_every_message_and_the_whole_can_be_flagged_in_place(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    client = sign_in(workspace.actor())
    sent = {"csrf_token": client.csrf, "rating": "positive", "comment": "Keep"}  # type: ignore[attr-defined]
    for url in (f"{URL}/{filled.session}", f"{CHATS}/{filled.chat}"):
        turns = [turn["id"] for turn in soup(client.get(url)).select(".u-turn")]
        for at in turns:
            form = soup(client.get(f"{url}?flag={at}", headers=HTMX)).select_one("form")
            assert form["hx-target"] == f"#flag-{at}"
            away = soup(client.get(f"{url}?flag={at}&put=away", headers=HTMX))
            assert away.select_one("form") is None
            wrong = client.post(f"{url}/flag", data={**sent, "at": at, "comment": ""}, headers=HTMX)
            assert wrong.status_code == 422
            assert soup(wrong).html is None
            answer = soup(client.post(f"{url}/flag", data={**sent, "at": at}, headers=HTMX))
            assert "Keep" in answer.select_one(f"hx-partial[hx-target='#notes-{at}'] .u-note").text
            assert "Flagged" in answer.text
    whole = client.post(f"{URL}/{filled.session}/flag", data={**sent, "at": "whole"}, headers=HTMX)
    assert "Keep" in soup(whole).select_one(".u-about .u-note").text
    nowhere = client.post(f"{URL}/{filled.session}/flag", data={**sent, "at": "e-%"}, headers=HTMX)
    assert nowhere.status_code == 422
