"""`/api/v1/feedback`: six signals, one row each, private to their author, and in the right workspace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import select

from app.actor import Actor
from app.db import acting_as, db, transaction
from app.models import AuditEntry, Feedback, User
from app.services.chats import store as chat_store
from app.services.chats.store import NewMessage
from app.services.feedback import review as feedback_review
from app.services.sessions import store as session_store
from app.services.sessions.store import NewSession
from app.services.workspaces import people
from tests.conftest import Api, Workspace

PATH = "/api/v1/feedback"
SIGNALS = ("helpful", "not_helpful", "inaccurate", "unsafe", "edit", "regenerate")


@pytest.fixture
def member(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("member"), "feedback")


@pytest.fixture
def rows(app: Flask) -> Callable[..., list[Feedback]]:
    """The rows of a workspace, as its admin's queries see them."""

    def read(workspace: Workspace, *where: Any) -> list[Feedback]:
        with app.app_context(), acting_as(workspace.actor("admin")):
            found = list(db.session.scalars(select(Feedback).where(*where).order_by(Feedback.created_at)))
            db.session.expunge_all()
            return found

    return read


@pytest.fixture
def talk(app: Flask) -> Callable[..., Any]:
    """A chat of someone's, the member's unless said otherwise, with one answered question; gives the answer's
    message."""

    def make(
        workspace: Workspace, answer: str = "The fee is 2 %.", external_id: str | None = None, whose: str = "member"
    ) -> Any:
        actor = workspace.actor(whose)
        with app.app_context(), acting_as(actor), transaction():
            chat = chat_store.create_chat(
                actor=actor, agent_slug="helper", title="Fees", external_id=external_id, project="support"
            )
            said = [
                NewMessage(role="user", content="What is the fee?"),
                NewMessage(role="agent", content=answer, external_id=f"m-{uuid4().hex}", trace_id=uuid4().hex),
            ]
            message = chat_store.append_messages(chat.id, said, actor=actor)[1]
            db.session.expunge_all()
            return message

    return make


def send(key: Api, status: int = 201, **body: Any) -> dict[str, Any]:
    response = key.post(PATH, body)
    assert response.status_code == status, response.get_data(as_text=True)
    answer: dict[str, Any] = response.get_json()
    return answer


def own(key: Any, query: str = "", **more: Any) -> list[dict[str, Any]]:
    response = key.get(f"{PATH}?{query}", **more)
    assert response.status_code == 200, response.get_data(as_text=True)
    items: list[dict[str, Any]] = response.get_json()["items"]
    return items


def test_each_signal_means_what_it_means(member: Api, workspace: Workspace, rows: Callable[..., Any]) -> None:
    for signal in SIGNALS:
        answer = send(member, message_id=f"m-{signal}", signal=signal)
        assert answer["rating"] == ("positive" if signal == "helpful" else "negative")
        assert answer["weight"] == (0.3 if signal == "regenerate" else 1.0)
    stored = rows(workspace)
    assert {row.signal for row in stored} == set(SIGNALS)
    for row in stored:
        assert (row.kind, row.origin, row.status, row.confidence) == ("signal", "user", "pending", 1)
        assert (row.source_type, row.created_by) == ("session", workspace.actor("member").id)


def test_again_changes_the_row_that_is_there(member: Api, workspace: Workspace, rows: Callable[..., Any]) -> None:
    first = send(member, message_id="m", signal="inaccurate", reason="Old figure", trace_id="t-1", chat_id="c-1")
    second = send(member, 200, message_id="m", signal="inaccurate", reason="Wrong year")
    assert (second["id"], second["reason"]) == (first["id"], "Wrong year")
    assert (second["trace_id"], second["chat_id"]) == ("t-1", "c-1")
    third = send(member, 200, message_id="m", signal="inaccurate", trace_id="t-2")
    assert (third["reason"], third["trace_id"], third["chat_id"]) == (None, "t-2", "c-1")
    [row] = rows(workspace)
    assert (str(row.id), row.comment, row.trace_id, row.source_type) == (first["id"], None, "t-2", "chat")


def test_a_chat_that_becomes_known_later_is_learned(
    member: Api, workspace: Workspace, rows: Callable[..., Any], talk: Callable[..., Any]
) -> None:
    send(member, message_id="widget-1", signal="unsafe")
    answer = send(member, 200, message_id="widget-1", signal="unsafe", chat_id="chat-9")
    [row] = rows(workspace)
    assert (row.source_type, row.chat_id, answer["chat_id"]) == ("chat", "chat-9", "chat-9")
    assert row.context == {"chat_id": "chat-9"}


def test_the_server_fills_in_what_it_knows_of_the_message(
    member: Api, workspace: Workspace, rows: Callable[..., Any], talk: Callable[..., Any]
) -> None:
    message = talk(workspace)
    other = talk(workspace)
    for sent in (
        {"message_id": str(message.id), "signal": "helpful"},
        {"message_id": message.external_id, "signal": "unsafe"},
        {"trace_id": message.trace_id, "signal": "regenerate"},
    ):
        send(member, **sent)
    for row in rows(workspace):
        assert (row.turn_id, row.trace_id, row.chat_id) == (message.turn_id, message.trace_id, str(message.chat_id))
        assert (row.source_type, row.project) == ("chat", "support")
        assert row.agent_id is not None
    send(member, message_id=message.external_id, chat_id=str(other.chat_id), signal="inaccurate")
    [row] = rows(workspace, Feedback.signal == "inaccurate")
    assert (row.turn_id, row.agent_id) == (None, None)


def test_a_run_without_a_chat_is_a_session(
    app: Flask, member: Api, workspace: Workspace, rows: Callable[..., Any]
) -> None:
    actor = workspace.actor("admin")
    trace = uuid4().hex
    with app.app_context(), acting_as(actor), transaction():
        session, _ = session_store.create_session(
            NewSession(agent="runner", status="completed", trace_id=trace), actor=actor
        )
        session_id = session.id
    answer = send(member, trace_id=trace, signal="not_helpful")
    [row] = rows(workspace)
    assert (row.source_type, row.session_id, row.message_id) == ("session", session_id, trace)
    assert answer["message_id"] == trace
    assert send(member, 200, trace_id=trace, signal="not_helpful")["id"] == answer["id"]


def test_an_edit_keeps_the_wanted_answer_and_how_far_it_is(
    member: Api, workspace: Workspace, rows: Callable[..., Any], talk: Callable[..., Any]
) -> None:
    message = talk(workspace, answer="abcd")
    answer = send(member, message_id=str(message.id), signal="edit", reason="abxd")
    assert answer["edit_distance"] == 40
    unknown = send(member, message_id="elsewhere", signal="edit", reason="abxd")
    assert unknown["edit_distance"] is None
    bare = send(member, message_id="bare", signal="edit")
    assert bare["edit_distance"] is None
    stored = {row.message_id: row.details for row in rows(workspace)}
    assert stored[str(message.id)] == {
        "preferred_answer": "abxd",
        "output_review": {"verdict": "changes_requested", "edit_distance": 40},
    }
    assert stored["elsewhere"] == {"preferred_answer": "abxd"}
    assert stored["bare"] == {}


def test_limits_at_their_edges(member: Api, workspace: Workspace, rows: Callable[..., Any]) -> None:
    for length in (4095, 4096):
        send(member, message_id=f"r-{length}", signal="helpful", reason="é" * length)
    for name in ("message_id", "chat_id", "trace_id"):
        for length in (255, 256):
            send(member, **{"message_id": f"{name}-{length}", "signal": "unsafe", name: "i" * length})
    before = len(rows(workspace))
    good = {"message_id": "m", "signal": "helpful"}
    bad: list[dict[str, Any]] = [
        good | {"reason": "x" * 4097},
        *(good | {name: "i" * 257} for name in ("message_id", "chat_id", "trace_id")),
        *(good | {name: ""} for name in ("message_id", "chat_id", "trace_id")),
        {"signal": "helpful"},
        {"signal": "helpful", "message_id": None, "trace_id": None},
        {"message_id": "m"},
        good | {"signal": "Helpful"},
        good | {"signal": None},
        good | {"message_id": 7},
        good | {"reason": "a\x00b"},
        good | {"reason": "\ud800"},
        good | {"status": "applied"},
        good | {"origin": "machine"},
        good | {"created_by": str(uuid4())},
    ]
    for body in bad:
        response = member.post(PATH, body)
        assert response.status_code == 400, body
        assert response.mimetype == "application/problem+json"
    assert len(rows(workspace)) == before


def test_a_thumb_takes_its_opposite_back(member: Api, workspace: Workspace, rows: Callable[..., Any]) -> None:
    send(member, message_id="m", signal="inaccurate")
    send(member, message_id="other", signal="helpful")
    send(member, message_id="m", signal="helpful")
    send(member, message_id="m", signal="not_helpful")
    assert {(row["message_id"], row["signal"]) for row in own(member)} == {
        ("m", "inaccurate"),
        ("m", "not_helpful"),
        ("other", "helpful"),
    }
    send(member, message_id="m", signal="helpful")
    assert {row.signal for row in rows(workspace, Feedback.message_id == "m")} == {"inaccurate", "helpful"}


def test_taking_back_is_idempotent_and_leaves_decisions_their_reasons(
    app: Flask, member: Api, workspace: Workspace, rows: Callable[..., Any]
) -> None:
    admin = workspace.actor("admin")
    pending = send(member, message_id="m-1", signal="not_helpful")
    decided = send(member, message_id="m-2", signal="not_helpful", reason="Wrong tool")
    with app.app_context(), acting_as(admin), transaction():
        feedback_review.review(
            [rows(workspace, Feedback.message_id == "m-2")[0].id], "dismissed", actor=admin, notes="Known"
        )
    for _ in range(2):
        for message in ("m-1", "m-2", "never"):
            gone = member.delete(f"{PATH}?message_id={message}&signal=not_helpful")
            assert (gone.status_code, gone.data) == (204, b"")
    assert own(member) == []
    [kept] = rows(workspace)
    assert (str(kept.id), kept.status, kept.comment) == (decided["id"], "dismissed", "Wrong tool")
    assert "retracted_at" in kept.details
    with app.app_context(), acting_as(admin):
        noted = select(AuditEntry.subject_id).where(AuditEntry.action == "feedback.retracted")
        assert {str(one) for one in db.session.scalars(noted)} == {pending["id"], decided["id"]}
    again = send(member, 200, message_id="m-2", signal="not_helpful")
    assert (again["id"], again["status"]) == (decided["id"], "dismissed")
    assert [row["id"] for row in own(member)] == [decided["id"]]
    for query in ("message_id=m-1", "signal=helpful", "message_id=m-1&signal=ok", "message_id=&signal=helpful", "a=b"):
        assert member.delete(f"{PATH}?{query}").status_code == 400, query


def test_two_people_each_see_their_own_and_the_admin_both(
    workspace: Workspace, api: Callable[..., Api], talk: Callable[..., Any]
) -> None:
    message = talk(workspace)
    one, other = (api(workspace.actor(who), "feedback") for who in ("member", "other"))
    owner, admin = api(workspace.actor("owner"), "admin"), api(workspace.actor("admin"), "admin")
    first = send(one, message_id=str(message.id), signal="not_helpful", reason="mine alone")
    second = send(other, message_id=str(message.id), signal="not_helpful", reason="and mine")
    assert first["id"] != second["id"]
    for key, seen in ((one, [first["id"]]), (other, [second["id"]]), (owner, []), (admin, [])):
        assert [row["id"] for row in own(key, f"message_id={message.id}")] == seen
    assert other.delete(f"{PATH}?message_id={message.id}&signal=not_helpful").status_code == 204
    send(other, message_id=str(message.id), signal="not_helpful", reason="and mine")
    everything = admin.get("/api/feedback?signal=not_helpful").get_json()["items"]
    assert {row["comment"] for row in everything} == {"mine alone", "and mine"}
    assert [row["comment"] for row in one.get("/api/feedback").get_json()["items"]] == ["mine alone"]
    hidden = [row["id"] for row in everything if row["comment"] == "and mine"]
    assert one.get(f"/api/feedback/{hidden[0]}").status_code == 404


def test_lists_filter_and_page(member: Api) -> None:
    for number in range(5):
        send(member, message_id=f"m-{number}", signal="unsafe", chat_id=f"c-{number % 2}", trace_id=f"t-{number}")
    send(member, message_id="m-0", signal="regenerate")
    assert [row["signal"] for row in own(member, "message_id=m-0")] == ["regenerate", "unsafe"]
    assert {row["message_id"] for row in own(member, "chat_id=c-1")} == {"m-1", "m-3"}
    assert [row["message_id"] for row in own(member, "trace_id=t-4")] == ["m-4"]
    assert [row["message_id"] for row in own(member, "signal=regenerate")] == ["m-0"]
    seen: list[str] = []
    cursor = ""
    for _ in range(3):
        page = member.get(f"{PATH}?limit=2&cursor={cursor}").get_json()
        seen += [row["id"] for row in page["items"]]
        cursor = page["next_cursor"] or ""
    assert cursor == ""
    assert seen == [row["id"] for row in own(member)]
    for query in ("signal=ok", "limit=x", "cursor=%21", "status=pending", f"message_id={'i' * 257}"):
        assert member.get(f"{PATH}?{query}").status_code == 400, query


def test_foreign_and_unknown_chats_are_alike(
    make_workspace: Callable[..., Workspace], api: Callable[..., Api], talk: Callable[..., Any]
) -> None:
    home, elsewhere = make_workspace(), make_workspace()
    foreign = talk(elsewhere)
    key = api(home.actor("member"), "feedback")
    told = []
    for message, chat in (("m-1", str(foreign.chat_id)), ("m-2", str(uuid4()))):
        answer = send(key, message_id=message, chat_id=chat, signal="helpful")
        told.append({**answer, "id": "", "chat_id": "", "message_id": "", "created_at": "", "occurred_at": ""})
    assert told[0] == told[1]
    answer = send(key, message_id=str(foreign.id), signal="helpful")
    assert (answer["trace_id"], answer["chat_id"]) == (None, None)


class Browser:
    """Someone signed in, as the product's own pages call the API."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def post(self, path: str, body: Any) -> Any:
        return self.client.post(path, json=body, headers={"X-CSRFToken": self.client.csrf})

    def get(self, path: str) -> Any:
        return self.client.get(path)

    def delete(self, path: str) -> Any:
        return self.client.delete(path, headers={"X-CSRFToken": self.client.csrf})


@pytest.fixture
def of_two(
    app: Flask, make_workspace: Callable[..., Workspace], sign_in: Callable[..., Any]
) -> tuple[Workspace, Workspace, Browser]:
    """Someone of two workspaces who is signed in to the older one."""
    older, newer = make_workspace("Older"), make_workspace("Newer")
    person: Actor = older.actor("member")
    with app.app_context():
        with acting_as(person):
            email = db.session.scalar(select(User.email).where(User.id == person.id))
        with acting_as(newer.actor("system")), transaction():
            people.create_person(email=email or "", name="Same", role="member", actor=newer.actor("system"))
    return older, newer, Browser(sign_in(person))


def test_without_a_chat_it_is_the_newest_membership_and_with_one_it_moves(
    of_two: tuple[Workspace, Workspace, Browser], rows: Callable[..., Any], talk: Callable[..., Any]
) -> None:
    older, newer, browser = of_two
    chat = talk(older, external_id=f"chat-{uuid4().hex}")
    first = browser.post(PATH, {"message_id": "m", "signal": "not_helpful", "reason": "no", "trace_id": "t"})
    assert first.status_code == 201
    [there] = rows(newer)
    assert rows(older) == []
    unknown = browser.post(PATH, {"message_id": "m", "signal": "not_helpful", "chat_id": str(uuid4())})
    assert (unknown.status_code, [row.id for row in rows(newer)]) == (200, [there.id])
    moved = browser.post(PATH, {"message_id": "m", "signal": "not_helpful", "chat_id": str(chat.chat_id)})
    assert (moved.status_code, moved.get_json()["id"]) == (200, str(there.id))
    assert rows(newer) == []
    [here] = rows(older)
    assert (here.id, here.created_at, here.trace_id) == (there.id, there.created_at, "t")
    assert (here.chat_id, here.comment, here.source_type) == (str(chat.chat_id), None, "chat")
    stays = browser.post(PATH, {"message_id": "m", "signal": "not_helpful", "reason": "still"})
    assert (stays.status_code, [row.comment for row in rows(older)], rows(newer)) == (200, ["still"], [])


def test_a_person_finds_and_takes_back_their_own_in_every_workspace(
    of_two: tuple[Workspace, Workspace, Browser], rows: Callable[..., Any], talk: Callable[..., Any]
) -> None:
    older, newer, browser = of_two
    chat = talk(older)
    for message, chat_id in (("here", str(chat.chat_id)), ("there", None), ("here too", str(chat.chat_id))):
        sent = browser.post(PATH, {"message_id": message, "signal": "unsafe", "chat_id": chat_id})
        assert sent.status_code == 201
    assert (len(rows(older)), len(rows(newer))) == (2, 1)
    assert [row["message_id"] for row in own(browser)] == ["here too", "there", "here"]
    page = browser.get(f"{PATH}?limit=2").get_json()
    rest = browser.get(f"{PATH}?limit=2&cursor={page['next_cursor']}").get_json()
    assert [row["message_id"] for row in rest["items"]] == ["here"]
    for message in ("here", "there"):
        assert browser.delete(f"{PATH}?message_id={message}&signal=unsafe").status_code == 204
    assert (len(rows(older)), len(rows(newer))) == (1, 0)


def test_what_was_decided_in_one_workspace_stays_there_as_a_reason(
    app: Flask, of_two: tuple[Workspace, Workspace, Browser], rows: Callable[..., Any], talk: Callable[..., Any]
) -> None:
    older, newer, browser = of_two
    chat = talk(older)
    browser.post(PATH, {"message_id": "m", "signal": "edit", "reason": "better"})
    [decided] = rows(newer)
    admin = newer.actor("admin")
    with app.app_context(), acting_as(admin), transaction():
        feedback_review.review([decided.id], "reviewed", actor=admin)
    moved = browser.post(PATH, {"message_id": "m", "signal": "edit", "chat_id": str(chat.chat_id), "reason": "best"})
    assert moved.status_code == 200
    [kept], [fresh] = rows(newer), rows(older)
    assert (kept.id, kept.comment, kept.status) == (decided.id, "better", "reviewed")
    assert "retracted_at" in kept.details
    assert (fresh.comment, fresh.status, fresh.id != kept.id) == ("best", "pending", True)
    assert [row["reason"] for row in own(browser)] == ["best"]


def test_a_browser_needs_its_token_and_a_key_its_scope(
    workspace: Workspace, sign_in: Callable[..., Any], api: Callable[..., Api]
) -> None:
    client = sign_in(workspace.actor("member"))
    assert client.post(PATH, json={"message_id": "m", "signal": "helpful"}).status_code == 403
    assert client.delete(f"{PATH}?message_id=m&signal=helpful").status_code == 403
    lacking = api(workspace.actor("owner"), "ingest")
    assert lacking.post(PATH, {"message_id": "m", "signal": "helpful"}).status_code == 403
    assert lacking.get(PATH).status_code == 403


def test_a_signal_costs_few_statements(member: Api, count_queries: Callable[..., Any]) -> None:
    send(member, message_id="warm", signal="helpful")
    with count_queries() as seen:
        send(member, message_id="m-1", signal="inaccurate")
    assert len(seen) <= 2, seen
    with count_queries() as seen:
        send(member, message_id="m-1", signal="helpful")
    assert len(seen) <= 3, seen
