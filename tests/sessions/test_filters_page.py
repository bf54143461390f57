"""Every filter of sessions and conversations, and pages of what no index knows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.db import acting_as, transaction
from app.db.paging import Page
from app.services.chats import lists as chat_lists
from app.services.chats import store as chat_store
from app.services.chats.lists import ChatFilters
from app.services.feedback import intake as feedback_intake
from app.services.feedback.intake import NewFeedback
from app.services.sessions import store as session_store
from app.services.sessions.lists import SessionFilters
from app.services.sessions.store import NewSession
from tests.conftest import Workspace, soup
from tests.lists.filling import fill, several

SignIn = Callable[..., FlaskClient]
URL = "/admin/agent-review/sessions"
CHATS = "/admin/agent-review/conversations"
NOON = datetime(2026, 11, 13, 12, 0, tzinfo=UTC)


def test_every_filter_of_sessions(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    made, import_id = several(app, workspace)
    client = sign_in(workspace.actor())
    wanted = {
        "longer=1": {"slow"},
        "shorter=1.5": {"quick"},
        "longer=0.9&shorter=0.9": {"quick"},
        "error=yes": {"failed"},
        "error=no&tag=test": {"quick"},
        "tag=b": {"slow"},
        "type=chat": {"slow"},
        f"import={import_id}": {"brought"},
        "version=1": set(made),
        "version=2": set(),
        f"person_id={workspace.actor().id}&status=failed": {"failed"},
    }
    for query, names in wanted.items():
        page = soup(client.get(f"{URL}?{query}"))
        assert {row["id"] for row in page.select("[data-row]")} == {f"session-{made[name]}" for name in names}, query
        if names:
            assert f"{len(names)} session" in page.select_one(".u-filters [role=status]").text
    chip = soup(client.get(f"{URL}?import={import_id}")).select_one(".u-chip")
    assert "runs.ndjson" in chip.text
    for query in ("longer=soon", "version=x", "shorter=-1", "import=1", "error=maybe"):
        assert client.get(f"{URL}?{query}").status_code == 400, query


def test_conversations_by_person_and_by_how_they_were_received(
    app: Flask, workspace: Workspace, sign_in: SignIn
) -> None:
    filled = fill(app, workspace)
    member = workspace.actor("member")
    with app.app_context(), acting_as(member), transaction():
        named = chat_store.create_chat(
            actor=member, agent_slug="sales-ops", title="Outside", external_id="conv-1", project="x"
        )
        chat_store.append_messages(named.id, [chat_store.NewMessage(role="agent", content="A reply")], actor=member)
        new = NewFeedback(
            source_type="chat", rating="positive", chat_id="conv-1", context={"chat_id": "conv-1", "message_index": 0}
        )
        feedback_intake.record_feedback(new, actor=member)
        other = named.id
    client = sign_in(workspace.actor())
    wanted = {
        "rating=negative": {filled.chat},
        "rating=positive": {other},
        "rating=neutral": set(),
        "project=x": {other},
        f"person_id={member.id}": {filled.chat, other},
        f"person_id={workspace.actor('other').id}": set(),
        "q=reply": {other},
    }
    for query, found in wanted.items():
        page = soup(client.get(f"{CHATS}?{query}"))
        assert {row["id"] for row in page.select("[data-row]")} == {f"chat-{chat}" for chat in found}, query
    chip = soup(client.get(f"{CHATS}?person_id={member.id}")).select_one(".u-chip")
    assert member.name in chip.text


def test_sessions_by_their_feedback(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    member = workspace.actor("member")
    with app.app_context(), acting_as(member), transaction():
        new = NewSession(agent="a", title="Liked", status="completed")
        liked = session_store.create_session(new, actor=member)[0].id
        new = NewFeedback(source_type="session", rating="positive", session_id=liked)
        feedback_intake.record_feedback(new, actor=member)
        quiet = session_store.create_session(NewSession(agent="a", title="Quiet"), actor=member)[0].id
    client = sign_in(workspace.actor())
    wanted = {
        "positive": {liked},
        "negative": {filled.session, filled.failed},
        "none": {quiet},
        "-none": {liked, filled.session, filled.failed},
        "-negative": {liked, quiet},
    }
    for value, found in wanted.items():
        page = soup(client.get(f"{URL}?rating={value}"))
        assert {row["id"] for row in page.select("[data-row]")} == {f"session-{one}" for one in found}, value
    row = soup(client.get(f"{URL}?rating=positive")).select_one(f"#session-{liked}")
    assert row.select_one("a.is-pass")["title"] == "1 positive"
    assert client.get(f"{URL}?q=feedback:negative").location.endswith("?rating=negative")


def test_pages_of_what_no_index_knows(
    app: Flask, workspace: Workspace, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page scans a window; its cursors lead through the whole list, forth and back."""
    from app.services.sessions import lists as session_lists

    admin = workspace.actor()
    with app.app_context(), acting_as(admin):
        with transaction():
            for n in range(40):
                tags = ("rare",) if n in (3, 4, 20, 39) else ()
                new = NewSession(agent="a", title=str(n), tags=tags, created_at=NOON + timedelta(minutes=n))
                session_store.create_session(new, actor=admin)
        monkeypatch.setattr(session_lists, "SCAN_LIMIT", 10)
        filters, cursor, titles, cursors = SessionFilters(tag="rare"), None, [], []
        while True:
            page = session_lists.list_sessions(filters, Page(50, cursor), actor=admin)
            titles.append([row.title for row in page.items])
            cursors.append(page.prev_cursor)
            cursor = page.next_cursor
            if cursor is None:
                break
        assert titles == [["39"], ["20"], [], ["4", "3"], []]
        assert page.count_is_more
        back = session_lists.list_sessions(filters, Page(50, cursors[3]), actor=admin)
        assert [row.title for row in back.items] == ["20"] or back.items == []
        assert [row.title for row in session_lists.list_sessions(filters, Page(1), actor=admin).items] == ["39"]
    page = soup(sign_in(admin).get(f"{URL}?tag=nowhere"))
    assert "No matches yet" in page.select_one(".u-blank").text
    assert "after=" in page.select_one(".u-blank a.btn-primary")["href"]


def test_chats_are_filtered_alike_for_programs(app: Flask, workspace: Workspace) -> None:
    filled = fill(app, workspace)
    admin = workspace.actor()
    with app.app_context(), acting_as(admin):
        found = chat_lists.list_chats(ChatFilters(rating="negative", project="default"), Page(), actor=admin)
        assert [row.id for row in found.items] == [filled.chat]
        assert found.count == 1
        assert not found.count_is_more
