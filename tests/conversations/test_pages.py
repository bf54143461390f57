"""Conversations: the list, the transcript with feedback in its margin, flagging an answer."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask
from flask.testing import FlaskClient

from app.db import acting_as, transaction
from app.services.chats import store as chat_store
from app.services.feedback import intake as feedback_intake
from app.services.feedback.intake import NewFeedback
from tests.conftest import Workspace, soup
from tests.lists.filling import fill

SignIn = Callable[..., FlaskClient]
URL = "/admin/agent-review/conversations"


def test_the_list_shows_who_asked_and_how_it_was_received(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    row = soup(sign_in(workspace.actor()).get(URL)).select_one(f"#chat-{filled.chat}")

    assert workspace.actor("member").name in row.text
    assert "deal-analyst v1" in row.get_text(" ", strip=True)
    assert row.select_one(".u-state.is-fail")["title"] == "3 negative"


def test_the_page_has_the_work_before_the_answer_and_the_notes_beside_it(
    app: Flask, workspace: Workspace, sign_in: SignIn
) -> None:
    filled = fill(app, workspace)
    page = soup(sign_in(workspace.actor()).get(f"{URL}/{filled.chat}"))

    answer = page.select_one("#m-1")
    kinds = [part["class"][0] for part in answer.select(".u-tool-line, .u-tool, .u-change, .u-say")]
    assert kinds == ["u-tool-line", "u-tool", "u-change", "u-say"]
    assert len(answer.parent.select(".u-note")) == 3
    assert not page.select_one("#m-0").parent.select(".u-note")
    assert page.select_one(f"#chat-sessions a[href$='{filled.session}']") is not None


def test_feedback_that_names_the_chat_by_its_own_id(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    member = workspace.actor("member")
    with app.app_context(), acting_as(member), transaction():
        chat = chat_store.create_chat(
            actor=member, agent_slug="sales-ops", title="From elsewhere", external_id="conv-7"
        )
        chat_store.append_messages(
            chat.id, [chat_store.NewMessage(role="agent", content="Hi", external_id="msg-1")], actor=member
        )
        new = NewFeedback(kind="signal", signal="helpful", message_id="msg-1", chat_id="conv-7", comment="Nice")
        feedback_intake.record_feedback(new, actor=member)
        chat_id = chat.id
    page = soup(sign_in(workspace.actor()).get(f"{URL}/{chat_id}"))

    assert "“Nice”" in page.select_one(".u-note").text
    assert "conv-7" in page.select_one(".u-facts").text


def test_flagging_an_answer(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    client = sign_in(workspace.actor())
    url = f"{URL}/{filled.chat}"
    part = soup(client.get(f"{url}?flag=m-1", headers={"HX-Request": "true", "HX-Request-Type": "partial"}))
    assert part.select_one("form")["action"] == f"{url}/flag"
    sent = {"csrf_token": client.csrf, "rating": "positive", "comment": "Keep doing this"}  # type: ignore[attr-defined]

    assert client.post(f"{url}/flag", data={**sent, "at": "m-99"}).status_code == 422
    answer = client.post(f"{url}/flag", data={**sent, "at": "m-1"})
    assert answer.status_code == 303
    note = soup(client.get(answer.location)).select_one("#m-1").parent.select_one(".u-note.is-pass")
    assert "Keep doing this" in note.text


def test_an_empty_conversation(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    member = workspace.actor("member")
    with app.app_context(), acting_as(member), transaction():
        chat_id = chat_store.create_chat(actor=member, agent_slug="sales-ops", title="").id
    assert "No messages yet." in soup(sign_in(workspace.actor()).get(f"{URL}/{chat_id}")).text
