"""Reactions to turns: one for each person and turn, replaced, retracted, and never another workspace's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from flask import Flask
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.models import AuditEntry, Feedback
from app.services.chats import store as chat_store
from app.services.chats.store import NewMessage
from app.services.feedback import review as feedback_review
from tests.conftest import Api, Workspace


@dataclass(frozen=True)
class Talk:
    id: UUID
    external_id: str
    turns: list[str]
    project: str = "support"

    def path(self, workspace: Workspace, turn: int = 0, name: str | None = None) -> str:
        name = name or self.external_id
        return f"/conversations/{workspace.slug}/{self.project}/{name}/turns/{self.turns[turn]}/feedback"


@pytest.fixture
def talk(app: Flask) -> Callable[..., Talk]:
    """A conversation of the member's, of two turns."""

    def make(workspace: Workspace, turns: list[str] | None = None) -> Talk:
        actor = workspace.actor("member")
        external = f"conv-{uuid4().hex}"
        turns = turns or [f"turn_{uuid4().hex}" for _ in range(2)]
        with app.app_context(), acting_as(actor), transaction():
            chat = chat_store.create_chat(
                actor=actor, agent_slug="helper", title="Talk", external_id=external, project="support"
            )
            said = [
                NewMessage(role=role, content=f"{role} {turn}", turn_id=turn)
                for turn in turns
                for role in ("user", "agent")
            ]
            chat_store.append_messages(chat.id, said, actor=actor)
            return Talk(chat.id, external, turns)

    return make


@pytest.fixture
def member(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("member"), "feedback")


@pytest.fixture
def rows(app: Flask, workspace: Workspace) -> Callable[[], list[Feedback]]:
    def read() -> list[Feedback]:
        with app.app_context(), acting_as(workspace.actor("admin")):
            found = list(db.session.scalars(select(Feedback).order_by(Feedback.created_at)))
            db.session.expunge_all()
            return found

    return read


def test_a_reaction_is_stored_with_all_that_is_known_of_the_turn(
    workspace: Workspace, member: Api, talk: Callable[..., Talk], rows: Callable[[], list[Feedback]]
) -> None:
    one = talk(workspace)
    at = datetime.now(UTC) - timedelta(days=2)
    sent = {"reaction": "ok", "text": "Great explanation!", "ts": at.isoformat()}
    response = member.post(one.path(workspace), sent)
    assert response.status_code == 200, response.get_data(as_text=True)
    answer = response.get_json()
    [row] = rows()
    assert (row.kind, row.origin, row.rating, row.source_type) == ("reaction", "user", "positive", "chat")
    assert (row.comment, row.occurred_at, row.turn_id) == ("Great explanation!", at, one.turns[0])
    assert (row.chat_id, row.project, row.context["chat_id"]) == (str(one.id), "support", one.external_id)
    assert row.agent_id is not None
    rn = f"up:{workspace.slug}:support:{one.external_id}:{one.turns[0]}:reaction:{row.id}"
    assert (answer["id"], answer["rn"], answer["meta"]["rn"]) == (str(row.id), rn, rn)
    assert answer["reaction"] == {
        "turn_id": one.turns[0],
        "text": "Great explanation!",
        "confidence": 1.0,
        "ts": at.isoformat().replace("+00:00", "Z"),
        "reaction": "ok",
        "origin": "user",
    }


def test_another_replaces_it_and_null_takes_it_back(
    workspace: Workspace, member: Api, talk: Callable[..., Talk], rows: Callable[[], list[Feedback]]
) -> None:
    one = talk(workspace)
    first = member.post(one.path(workspace), {"reaction": "ok", "text": "Fine"}).get_json()
    second = member.post(one.path(workspace, name=str(one.id)), {"reaction": "not_ok"}).get_json()
    assert second["id"] == first["id"]
    assert [(row.rating, row.comment) for row in rows()] == [("negative", None)]
    member.post(one.path(workspace, 1), {"reaction": "neutral"})
    assert [row.rating for row in rows()] == ["negative", "neutral"]
    for _ in range(2):
        gone = member.post(one.path(workspace), {"reaction": None})
        assert (gone.status_code, gone.get_json()["reaction"]) == (200, None)
    assert [row.rating for row in rows()] == ["neutral"]


def test_everyone_has_a_reaction_of_their_own(
    workspace: Workspace, api: Callable[..., Api], talk: Callable[..., Talk], rows: Callable[[], list[Feedback]]
) -> None:
    one = talk(workspace)
    member, admin = api(workspace.actor("member"), "feedback"), api(workspace.actor("admin"), "admin")
    member.post(one.path(workspace), {"reaction": "ok"})
    assert admin.post(one.path(workspace), {"reaction": "not_ok"}).status_code == 200
    assert admin.post(one.path(workspace), {"reaction": None}).status_code == 200
    [row] = rows()
    assert (row.created_by, row.rating) == (workspace.actor("member").id, "positive")


def test_what_was_decided_about_stays_marked(
    app: Flask,
    workspace: Workspace,
    member: Api,
    talk: Callable[..., Talk],
    rows: Callable[[], list[Feedback]],
) -> None:
    one = talk(workspace)
    member.post(one.path(workspace), {"reaction": "not_ok"})
    admin = workspace.actor("admin")
    with app.app_context(), acting_as(admin), transaction():
        feedback_review.review([rows()[0].id], "dismissed", actor=admin, notes="Known")
    assert member.post(one.path(workspace), {"reaction": None}).status_code == 200
    [row] = rows()
    assert (row.status, "retracted_at" in row.details) == ("dismissed", True)
    with app.app_context(), acting_as(admin):
        actions = list(db.session.scalars(select(AuditEntry.action).where(AuditEntry.subject_id == row.id)))
    assert sorted(actions) == ["feedback.created", "feedback.dismissed", "feedback.retracted"]


def test_what_is_unknown_or_elsewhere_is_404(
    make_workspace: Callable[..., Workspace], api: Callable[..., Api], talk: Callable[..., Talk]
) -> None:
    home, elsewhere = make_workspace(), make_workspace()
    ours, foreign = talk(home), talk(elsewhere)
    key = api(home.actor("member"), "feedback")
    good = ours.path(home)
    wrong = [
        ours.path(elsewhere),
        foreign.path(elsewhere),
        foreign.path(home),
        good.replace(ours.turns[0], "turn_unknown"),
        good.replace(ours.turns[0], foreign.turns[0]),
        good.replace("/support/", "/sales/"),
        good.replace(ours.external_id, "nothing"),
        good.replace(ours.external_id, str(foreign.id)),
        good.replace(ours.turns[0], "t" * 5000),
    ]
    bodies = set()
    for path in wrong:
        response = key.post(path, {"reaction": "ok"})
        assert response.status_code == 404, path
        bodies.add(response.get_json()["detail"])
    assert len(bodies) == 1
    assert key.post(good, {"reaction": "ok"}).status_code == 200


def test_bad_bodies_are_400_and_store_nothing(
    workspace: Workspace, member: Api, talk: Callable[..., Talk], rows: Callable[[], list[Feedback]]
) -> None:
    one = talk(workspace)
    ahead = (datetime.now(UTC) + timedelta(minutes=6)).isoformat()
    for body in (
        {},
        {"reaction": "OK"},
        {"reaction": "like"},
        {"reaction": 1},
        {"reaction": "ok", "text": "x" * 4097},
        {"reaction": "ok", "ts": "2026-01-01T00:00:00"},
        {"reaction": "ok", "ts": "yesterday"},
        {"reaction": "ok", "ts": ahead},
        {"reaction": "ok", "origin": "machine"},
        {"reaction": "ok", "confidence": 0.5},
    ):
        assert member.post(one.path(workspace), body).status_code == 400, body
    assert rows() == []
    for length in (4095, 4096):
        assert member.post(one.path(workspace), {"reaction": "ok", "text": "x" * length}).status_code == 200


def test_the_same_turn_id_in_two_conversations_is_two_turns(
    app: Flask, workspace: Workspace, member: Api, talk: Callable[..., Talk], rows: Callable[[], list[Feedback]]
) -> None:
    one, other = talk(workspace, ["turn_1"]), talk(workspace, ["turn_1"])
    for reaction in ("neutral", "ok"):
        assert member.post(one.path(workspace), {"reaction": reaction}).status_code == 200
    assert member.post(other.path(workspace), {"reaction": "not_ok", "text": "Wrong year"}).status_code == 200
    found = {row.chat_id: row for row in rows()}
    assert {chat: row.rating for chat, row in found.items()} == {str(one.id): "positive", str(other.id): "negative"}
    for talked in (one, other):
        row = found[str(talked.id)]
        with app.app_context(), acting_as(workspace.actor("admin")):
            answer = str(chat_store.messages_of(talked.id, actor=workspace.actor("admin"))[1].id)
        assert row.message_id == answer, "each is about the answer of its own conversation"
        path = f"/conversations/{workspace.slug}/support/{talked.external_id}/turns-with-feedbacks"
        [turn] = member.post(path, {"turn_ids": ["turn_1"]}).get_json()["turns"]
        assert (turn["assistant"]["message_id"], len(turn["reactions"])) == (answer, 1)
    period = {"start": "2020-01-01T00:00:00Z", "end": "2100-01-01T00:00:00Z", "include_turns": True}
    report = member.post(f"/conversations/{workspace.slug}/support/feedback/conversations-in-period", period).get_json()
    assert sorted((item["conversation_id"], len(item["turns"])) for item in report["items"]) == sorted(
        [(one.external_id, 1), (other.external_id, 1)]
    )
    assert member.post(other.path(workspace), {"reaction": None}).status_code == 200
    assert [(row.chat_id, row.rating) for row in rows()] == [(str(one.id), "positive")]


def test_a_turn_id_of_two_conversations_alone_links_to_neither(
    workspace: Workspace, member: Api, talk: Callable[..., Talk]
) -> None:
    one, other = talk(workspace, ["turn_1", "turn_2"]), talk(workspace, ["turn_1"])

    def given(**values: str) -> str | None:
        response = member.post("/api/feedback", {"source_type": "chat", "rating": "negative", **values})
        assert response.status_code == 201, response.get_data(as_text=True)
        chat_id: str | None = response.get_json()["chat_id"]
        return chat_id

    assert given(turn_id="turn_1") is None
    assert given(turn_id="turn_2") == str(one.id)
    assert given(turn_id="turn_1", chat_id=str(other.id)) == str(other.id)


def test_the_path_may_name_the_workspace_by_its_id(
    workspace: Workspace, member: Api, talk: Callable[..., Talk]
) -> None:
    path = talk(workspace).path(workspace).replace(workspace.slug, str(workspace.id))
    assert member.post(path, {"reaction": "ok"}).get_json()["rn"].startswith(f"up:{workspace.slug}:support:")
