"""Both thumbs at the same moment: whoever comes first, one of them stands, and the audit trail tells how it came."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
from app.services.feedback import signals
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.workspaces import people
from tests.conftest import Api, Workspace

PATH = "/api/v1/feedback"
BOTH = ("helpful", "not_helpful")
ROUNDS = 20


@pytest.fixture
def member(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("member"), "feedback")


def at_once(*doing: Callable[[], Any]) -> list[Any]:
    """What each gives; all begin together."""
    together = threading.Barrier(len(doing))

    def one(do: Callable[[], Any]) -> Any:
        together.wait(60)
        return do()

    with ThreadPoolExecutor(len(doing)) as pool:
        return list(pool.map(one, doing))


def sender(app: Flask, key: Api, signal: str, headers: dict[str, str] | None = None, **about: Any) -> Callable[[], int]:
    client = Api(app.test_client(), key.key)
    return lambda: client.post(PATH, {"signal": signal, **about}, headers=headers).status_code


def standing(app: Flask, *places: Workspace) -> list[tuple[str, str]]:
    """The signals that stand, with their messages. The audit trail has a line for each row that came, and for each that
    went."""
    found: list[tuple[str, str]] = []
    for place in places:
        with app.app_context(), acting_as(place.actor("admin")):
            rows = db.session.execute(select(Feedback.id, Feedback.message_id, Feedback.signal, Feedback.details)).all()
            noted = Counter(db.session.execute(select(AuditEntry.subject_id, AuditEntry.action)).all())
        there = {row.id for row in rows}
        for one in {one for one, action in noted if action == "feedback.created"} - there:
            assert noted[one, "feedback.retracted"] == 1
        for row in rows:
            assert noted[row.id, "feedback.created"] + noted[row.id, "feedback.changed"]
            taken_back = noted[row.id, "feedback.retracted"]
            if "retracted_at" in row.details:
                assert taken_back
            else:
                assert taken_back <= noted[row.id, "feedback.changed"]
                found.append((row.message_id, row.signal))
    return found


def one_each(found: list[tuple[str, str]]) -> set[str]:
    """The messages, each of which has one thumb."""
    assert set(Counter(message for message, _ in found).values()) <= {1}, found
    return {message for message, _ in found}


@pytest.mark.parametrize("keyed", [False, True])
def test_one_of_both_counts(app: Flask, workspace: Workspace, member: Api, keyed: bool) -> None:
    for number in range(ROUNDS):
        keys = [{"Idempotency-Key": uuid4().hex} if keyed else None for _ in BOTH]
        doing = [sender(app, member, one, key, message_id=f"m-{number}") for one, key in zip(BOTH, keys, strict=True)]
        assert at_once(*doing) == [201, 201]
        assert one_each(standing(app, workspace)) == {f"m-{one}" for one in range(number + 1)}


def test_one_of_both_counts_on_a_trace(app: Flask, workspace: Workspace, member: Api) -> None:
    for number in range(ROUNDS):
        assert at_once(*(sender(app, member, one, trace_id=f"t-{number}") for one in BOTH)) == [201, 201]
    assert one_each(standing(app, workspace)) == {f"t-{number}" for number in range(ROUNDS)}


def test_one_counts_after_many_clicks_also_on_what_was_decided(app: Flask, workspace: Workspace, member: Api) -> None:
    """Again and again on the same message, retracted in between; what an admin decided about stays, marked."""
    admin = workspace.actor("admin")
    for _ in range(ROUNDS // 2):
        clicks = [sender(app, member, one, message_id="m") for one in BOTH * 3]
        client = Api(app.test_client(), member.key)
        statuses = at_once(*clicks, lambda one=client: one.delete(f"{PATH}?message_id=m&signal=helpful").status_code)
        assert set(statuses) <= {200, 201, 204}
        assert len(standing(app, workspace)) <= 1
        assert sender(app, member, "helpful", message_id="m")() in {200, 201}
        [(_, signal)] = standing(app, workspace)
        assert signal == "helpful"
        with app.app_context(), acting_as(admin), transaction():
            pending = list(db.session.scalars(select(Feedback.id).where(Feedback.status == "pending")))
            if pending:
                feedback_review.review(pending, "reviewed", actor=admin)


@pytest.mark.parametrize("last", [True, False])
def test_who_comes_second_waits_and_has_the_last_word(app: Flask, workspace: Workspace, last: bool) -> None:
    """The second has looked for the opposite when the first commits; nothing hangs on luck here."""
    actor, done = workspace.actor("member"), threading.Event()

    def second() -> bool:
        with app.app_context(), acting_as(actor), transaction():
            new = NewFeedback(kind="signal", signal="not_helpful", message_id="m")
            stored = signals.record_signal(new, actor=key_of(actor), commit=last)
        done.set()
        return stored.created

    with ThreadPoolExecutor(1) as pool:
        with app.app_context(), acting_as(actor), transaction():
            record_feedback(NewFeedback(kind="signal", signal="helpful", message_id="m"), actor=actor)
            waiting = pool.submit(second)
            assert not done.wait(1)
        assert waiting.result(60)
    assert standing(app, workspace) == [("m", "not_helpful")]


def key_of(actor: Actor) -> Actor:
    return Actor(actor.id, actor.tenant_id, actor.role, scopes=frozenset({"feedback"}))


def test_pages_and_programs_wait_for_each_other_without_a_circle(
    app: Flask, workspace: Workspace, member: Api, sign_in: Callable[..., Any]
) -> None:
    """Thumbs and reasons on the page while the same person's program gives thumbs too."""
    actor = workspace.actor("member")
    with app.app_context(), acting_as(actor), transaction():
        chat = chat_store.create_chat(actor=actor, agent_slug="helper", title="Fees")
        said = [NewMessage(role="user", content="What is the fee?"), NewMessage(role="agent", content="2 %.")]
        answer = chat_store.append_messages(chat.id, said, actor=actor)[1]
        page, message = f"/chat/{chat.id}/messages/{answer.message_index}", str(answer.id)

    def click(where: str, **form: str) -> Callable[[], int]:
        client = sign_in(actor)
        sent = {**form, "csrf_token": client.csrf}
        return lambda: client.post(f"{page}/{where}", data=sent).status_code

    for _ in range(ROUNDS // 2):
        statuses = at_once(
            click("thumb", signal="helpful"),
            click("thumb", signal="not_helpful"),
            click("why", reasons="unsafe", comment="No."),
            *(sender(app, member, one, message_id=message) for one in BOTH),
        )
        assert set(statuses) <= {200, 201, 303}, statuses
        thumbs = [one for one in standing(app, workspace) if one[1] in BOTH]
        assert [name for name, _ in thumbs] == [message]


def test_one_counts_in_all_workspaces_of_a_person(
    app: Flask, make_workspace: Callable[..., Workspace], sign_in: Callable[..., Any]
) -> None:
    older, newer = make_workspace("Older"), make_workspace("Newer")
    person = older.actor("member")
    with app.app_context():
        with acting_as(person):
            email = db.session.scalar(select(User.email).where(User.id == person.id)) or ""
        with acting_as(newer.actor("system")), transaction():
            people.create_person(email=email, name="Same", role="member", actor=newer.actor("system"))
        with acting_as(person), transaction():
            chat_id = str(chat_store.create_chat(actor=person, agent_slug="helper", title="Fees").id)

    def click(signal: str, **about: str) -> Callable[[], int]:
        client = sign_in(person)
        sent = {"signal": signal, **about}
        return lambda: client.post(PATH, json=sent, headers={"X-CSRFToken": client.csrf}).status_code

    assert click("helpful", message_id="m", chat_id=chat_id)() == 201
    assert standing(app, older, newer) == [("m", "helpful")]
    assert click("not_helpful", message_id="m")() == 201
    assert standing(app, older, newer) == [("m", "not_helpful")]
    for number in range(ROUNDS // 2):
        about: dict[str, str] = {"message_id": f"m-{number}"}
        clicks = [click("helpful", **about, chat_id=chat_id), click("not_helpful", **about), click("helpful", **about)]
        assert set(at_once(*clicks)) <= {200, 201}
        assert f"m-{number}" in one_each(standing(app, older, newer))
