"""Conversations: messages in order, turns named, lists that say who asked and how it was received."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from app.db import acting_as, transaction
from app.db.paging import Page
from app.errors import Invalid, NotFound
from app.services.chats import lists as chat_lists
from app.services.chats import store as chat_store
from app.services.chats.lists import ChatFilters
from app.services.chats.store import NewMessage
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.sessions import store as session_store
from app.services.sessions.store import NewSession
from tests.threads import run_at_once

pytestmark = [pytest.mark.usefixtures("app_context"), pytest.mark.core]


def make(actor: Any, *said: str, **more: Any) -> Any:
    with transaction():
        chat = chat_store.create_chat(actor=actor, agent_slug="deal-analyst", **({"title": said[0]} | more))
        chat_store.append_messages(
            chat.id,
            [NewMessage(role="agent" if place % 2 else "user", content=text) for place, text in enumerate(said)],
            actor=actor,
        )
    return chat


def test_messages_keep_their_order_and_share_their_turn(workspace: Any) -> None:
    actor = workspace.actor("member")
    with acting_as(actor):
        chat = make(actor, "What is LTM?", "The last twelve months.", "And NTM?")
        with transaction():
            chat_store.append_messages(chat.id, [NewMessage(role="agent", content="The next twelve.")], actor=actor)
        detail = chat_store.get_chat(actor, chat.id)
        rows = detail.messages
        assert [(row.message_index, row.role) for row in rows] == [
            (0, "user"),
            (1, "agent"),
            (2, "user"),
            (3, "agent"),
        ]
        assert rows[0].turn_id == rows[1].turn_id != rows[2].turn_id == rows[3].turn_id
        assert (detail.chat.message_count, detail.agent, detail.person) == (4, "deal-analyst", actor.name)


def test_the_same_external_id_is_one_conversation(workspace: Any) -> None:
    actor = workspace.actor("member")
    with acting_as(actor):
        first = make(actor, "Hello", external_id="c-1")
        with transaction():
            again = chat_store.create_chat(actor=actor, agent_slug="other", title="Else", external_id="c-1")
        assert again.id == first.id


def test_two_writers_never_take_the_same_place(app: Any, workspace: Any) -> None:
    actor = workspace.actor("member")
    with acting_as(actor):
        chat_id = make(actor, "Hello").id

    def write() -> None:
        with app.app_context(), acting_as(actor):
            for _ in range(5):
                with transaction():
                    chat_store.append_messages(chat_id, [NewMessage(role="user", content="x")] * 2, actor=actor)

    run_at_once(*[write] * 3)
    with acting_as(actor):
        places = [row.message_index for row in chat_store.messages_of(chat_id, actor=actor)]
    assert places == list(range(31))


def test_what_does_not_fit_is_refused(make_workspace: Any) -> None:
    here, there = make_workspace(), make_workspace()
    with acting_as(there.actor("admin")):
        foreign = make(there.actor("admin"), "Theirs").id
    actor = here.actor("admin")
    with acting_as(actor):
        chat = make(actor, "Ours")
        for unknown in (foreign, uuid4()):
            with pytest.raises(NotFound, match="no such conversation"):
                chat_store.get_chat(actor, unknown)
            with pytest.raises(NotFound, match="no such conversation"), transaction():
                chat_store.append_messages(unknown, [NewMessage(role="user", content="x")], actor=actor)
        with pytest.raises(Invalid, match=r"messages\.0\.role"), transaction():
            chat_store.append_messages(chat.id, [NewMessage(role="robot", content="x")], actor=actor)
        with pytest.raises(Invalid, match="no session"), transaction():
            chat_store.append_messages(chat.id, [NewMessage(role="user", content="x", session_id=uuid4())], actor=actor)


def test_the_list_finds_words_people_and_signals(workspace: Any, count_queries: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        early = datetime.now(UTC) - timedelta(days=3)
        kestrel = make(admin, "Compare Kestrel and Bluefin", "Kestrel is cheaper.", user_id=member.id, created_at=early)
        make(admin, "Log my call", "Logged on Tessera.", external_id="ext-2", project="crm")
        with transaction():
            session_store.create_session(NewSession(agent="deal-analyst", chat_id=kestrel.id), actor=admin)
            answer = chat_store.messages_of(kestrel.id, actor=admin)[1]
            record_feedback(NewFeedback(kind="signal", signal="helpful", message_id=str(answer.id)), actor=admin)
            record_feedback(
                NewFeedback(kind="comment", source_type="chat", rating="negative", chat_id="ext-2"), actor=admin
            )

        def found(**args: str) -> set[str]:
            page = chat_lists.list_chats(ChatFilters.from_args(args), Page(), actor=admin)
            return {row.title.split()[0] for row in page.items}

        assert found() == {"Compare", "Log"}
        assert found(q="Bluefin") == found(q="cheaper") == found(person_id=str(member.id)) == {"Compare"}
        assert found(project="crm") == found(q="tessera") == {"Log"}
        assert found(agent="deal-analyst") == {"Compare", "Log"}
        assert found(agent="nobody") == found(q="nothing") == set()
        with count_queries() as seen:
            page = chat_lists.list_chats(ChatFilters.from_args({"q": "call OR kestrel"}), Page(), actor=admin)
        assert len(seen) <= 4
        rows = {row.title.split()[0]: row for row in page.items}
        assert (rows["Compare"].positive, rows["Compare"].negative) == (1, 0)
        assert (rows["Compare"].turns, rows["Compare"].agent_version) == (1, 1)
        assert rows["Compare"].person == member.name
        assert (rows["Log"].positive, rows["Log"].negative) == (0, 1)
