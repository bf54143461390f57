"""Machine feedback: a message that judges an earlier answer becomes one row on it, beside what people say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from sqlalchemy import select, update

from app.config import Settings
from app.db import acting_as, db, transaction
from app.jobs.machine_feedback import MachineFeedback
from app.learning.gate.classify import classify
from app.learning.gate.reading import Turn
from app.models import Chat, Feedback
from app.services.chats import store as chat_store
from app.services.chats.store import NewMessage
from app.services.feedback import machine
from app.services.feedback.negative import NEGATIVE
from app.services.workspaces import store as workspace_store
from tests.conftest import Api, Workspace
from tests.loopback_model import LoopbackModel, say

QUOTE = ("What would 120 croissants cost delivered?", "120 croissants at 1.80 come to 216.00, plus 25.00 delivery.")
LABEL = ("Write the allergen note for the almond tart.", "Contains wheat, eggs, milk and almonds. May contain sesame.")
WRONG = "That's wrong, the croissants are 1.60 each, not 1.80."


class Desk:
    """A workspace whose member talks to an agent, and the job that reads along."""

    def __init__(self, app: Flask, workspace: Workspace) -> None:
        self.app, self.workspace = app, workspace
        self.job = MachineFeedback(Settings())

    def talk(self, *texts: str, role: str = "member", project: str = "shop", days_ago: float = 0) -> UUID:
        """A chat of questions and answers in turn. A last question has no answer yet."""
        actor, at = self.workspace.actor(role), datetime.now(UTC) - timedelta(days=days_ago)
        said = [
            NewMessage(role="agent" if place % 2 else "user", content=text, created_at=at)
            for place, text in enumerate(texts)
        ]
        with self.app.app_context(), acting_as(actor), transaction():
            chat = chat_store.create_chat(
                actor=actor, agent_slug="helper", title="T", external_id=uuid4().hex, project=project, created_at=at
            )
            chat_store.append_messages(chat.id, said, actor=actor)
            return chat.id

    def check(self) -> int:
        with self.app.app_context():
            return self.job.check_messages()

    def rows(self) -> list[Feedback]:
        system = self.workspace.actor("system")
        with self.app.app_context(), acting_as(system), transaction():
            found = select(Feedback).where(Feedback.origin == "machine").order_by(Feedback.created_at)
            return list(db.session.scalars(found))

    def turn(self, chat_id: UUID, question: str) -> str:
        actor = self.workspace.actor("system")
        with self.app.app_context(), acting_as(actor), transaction():
            return next(one.turn_id for one in chat_store.messages_of(chat_id, actor=actor) if one.content == question)


@pytest.fixture
def desk(app: Flask, workspace: Workspace) -> Desk:
    made = Desk(app, workspace)
    made.check()
    return made


def test_a_judgement_becomes_one_row_on_the_answer_it_is_about(desk: Desk, api: Callable[..., Api]) -> None:
    chat_id = desk.talk(*LABEL, *QUOTE, WRONG)

    assert desk.check() == 1
    assert desk.check() == 0

    item = api(desk.workspace.actor("admin"), "admin").get("/api/feedback?origin=machine").get_json()["items"][0]
    assert (item["kind"], item["rating"], item["comment"]) == ("reaction", "negative", WRONG)
    assert item["turn_id"] == desk.turn(chat_id, QUOTE[0])
    assert 0.70 <= item["confidence"] <= 1
    targets = item["details"]["targets"]
    assert [set(target) for target in targets] == [{"turn_id", "similarity", "score"}] * 2
    assert targets[0]["turn_id"] == item["turn_id"]
    assert targets[0]["score"] == pytest.approx(0.85 * targets[0]["similarity"] + 0.15, abs=0.001)


def test_what_judges_nothing_is_no_row(desk: Desk) -> None:
    for message in (
        "Thanks!",
        "Now the same for 80 brioches please.",
        "The supplier sent the wrong invoice again.",
    ):
        desk.talk(*QUOTE, message)
    assert desk.check() == 0
    assert desk.rows() == []


def test_an_answer_in_an_earlier_conversation_is_found_by_its_words(desk: Desk) -> None:
    earlier = desk.talk(*QUOTE, days_ago=20)
    desk.talk("What would 120 croissants cost delivered, for somebody else?", "216.00.", role="admin")
    desk.talk("Your answer about the croissants was wrong.")

    assert desk.check() == 1
    row = desk.rows()[0]
    assert (row.chat_id, row.turn_id) == (str(earlier), desk.turn(earlier, QUOTE[0]))
    assert row.details["targets"][0]["score"] < 0.85 * row.details["targets"][0]["similarity"] + 0.15


def test_answers_older_than_a_year_and_of_other_projects_are_no_targets(desk: Desk) -> None:
    desk.talk(*QUOTE, days_ago=400)
    desk.talk(*QUOTE, project="other")
    desk.talk("Your answer about the croissants was wrong.")
    assert desk.check() == 0


def test_a_check_that_is_lost_is_done_again_without_a_second_row(desk: Desk, app: Flask) -> None:
    chat_id = desk.talk(*QUOTE, WRONG)
    system = desk.workspace.actor("system")
    with app.app_context(), acting_as(system), transaction():
        claimed = machine.claim_chats(10, timedelta(seconds=60), actor=system)
    assert [chat.id for chat in claimed] == [chat_id]
    assert desk.check() == 0, "another process has it"

    with app.app_context(), acting_as(system), transaction():
        db.session.execute(update(Chat).values(check_lease_until=datetime.now(UTC) - timedelta(seconds=1)))
    assert desk.check() == 1
    with app.app_context(), acting_as(system), transaction():
        db.session.execute(update(Chat).values(checked_count=0))
    assert desk.check() == 0
    assert len(desk.rows()) == 1


def test_messages_over_the_rate_are_passed_over_once_and_for_all(desk: Desk) -> None:
    desk.job = MachineFeedback(Settings(machine_feedback_rate=3))
    for _ in range(8):
        desk.talk(*QUOTE, WRONG)
    first = desk.check()
    assert 0 < first <= 3
    desk.job = MachineFeedback(Settings())
    assert desk.check() == 0

    desk.job = MachineFeedback(Settings(machine_feedback_rate=0))
    desk.talk(*QUOTE, WRONG)
    assert desk.check() == 0
    assert len(desk.rows()) == first


def test_a_workspace_can_turn_it_off(desk: Desk, app: Flask) -> None:
    admin = desk.workspace.actor("admin")
    with app.app_context(), acting_as(admin), transaction():
        workspace_store.change_settings({"machine_feedback": False}, actor=admin)
    desk.talk(*QUOTE, WRONG)
    assert desk.check() == 0


def test_it_counts_in_reports_as_machine_and_never_beside_a_person(desk: Desk, api: Callable[..., Api]) -> None:
    chat_id = desk.talk(*QUOTE, WRONG)
    desk.check()
    admin, member = api(desk.workspace.actor("admin"), "admin"), api(desk.workspace.actor("member"), "feedback")
    place = f"/conversations/{desk.workspace.slug}/shop"
    turn = desk.turn(chat_id, QUOTE[0])
    member.post(f"{place}/{chat_id}/turns/{turn}/feedback", {"reaction": "ok"})

    window = {"start": "2020-01-01T00:00:00Z", "end": "2100-01-01T00:00:00Z"}
    report: Any = admin.post(f"{place}/feedback/conversations-in-period", window).get_json()
    assert report["items"][0]["feedback_counts"] == {
        "total": 2, "user": 1, "machine": 1, "ok": 1, "not_ok": 1, "neutral": 0,
    }  # fmt: skip
    assert member.get("/api/feedback?origin=machine").get_json()["items"] == []


def unclear_message() -> str:
    """A message that the gate is unsure of. Which ones are depends on its weights."""
    turns = [Turn(*QUOTE)]
    tried = (
        "Hmm, the croissants.", "1.80? Really.", "Mrs Lind was surprised by the price.", "She rang about the quote.",
        "The till says something else.", "Not sure she liked it.", "It went out this morning, we'll see, not great.",
        "The croissants are a bit much, she says.", "She laughed.",
        "I would have said 1.60.", "We don't charge delivery.", "Delivery is free for her.", "Well, she took it.",
        "The quote went out.", "She has ordered.", "Jonas gets 317.", "It's 1.60 in the shop.",
    )  # fmt: skip
    return next(text for text in tried if classify(text, turns).is_unclear)


@pytest.mark.parametrize(
    ("answer", "rating"),
    [
        ('{"verdict": "not_ok", "confidence": 0.9}', "negative"),
        ('{"verdict": "ok", "confidence": 0.9}', "positive"),
        ('{"verdict": "not_ok", "confidence": 0.5}', None),
        ('{"verdict": "none", "confidence": 1}', None),
        ('{"verdict": "delete all rows", "confidence": 1}', None),
        ("Sure! The message is negative.", None),
    ],
)
def test_a_model_decides_unclear_messages_and_only_those(desk: Desk, answer: str, rating: str | None) -> None:
    with LoopbackModel(say(answer)) as model:
        desk.job = MachineFeedback(Settings(model="openai:small", openai_base_url=model.base_url))
        desk.talk(*QUOTE, unclear_message())
        desk.talk(*LABEL, "Thanks!")
        desk.check()

    assert [row.rating for row in desk.rows()] == ([rating] if rating else [])
    if rating:
        assert desk.rows()[0].details["decided_by"] == "openai:small"
    assert len(model.asked) == 1
    system, data = (part["content"] for part in model.asked[0].json["messages"])
    assert unclear_message() in data
    assert QUOTE[1] in data
    assert "Everything between the lines that carry the mark" in system


def test_without_a_model_and_with_a_broken_one_unclear_messages_are_left_out(desk: Desk) -> None:
    desk.talk(*QUOTE, unclear_message())
    assert desk.check() == 0
    with LoopbackModel(mode="status 500") as model:
        desk.job = MachineFeedback(Settings(model="openai:small", openai_base_url=model.base_url))
        desk.talk(*QUOTE, unclear_message())
        desk.talk(*QUOTE, WRONG)
        assert desk.check() == 1


def test_pages_show_it_apart_and_counts_leave_it_out(desk: Desk, sign_in: Callable[..., Any]) -> None:
    chat_id = desk.talk(*QUOTE, WRONG)
    desk.check()
    client = sign_in(desk.workspace.actor("admin"))
    row = desk.rows()[0]

    panel = client.get(f"/admin/agent-review/feedback/{row.id}").get_data(as_text=True)
    assert f"Detected automatically, {row.confidence:.0%} confidence" in panel
    listed = client.get("/admin/agent-review/feedback?origin=machine").get_data(as_text=True)
    assert str(row.id) in listed
    talk = client.get(f"/admin/agent-review/conversations/{chat_id}").get_data(as_text=True)
    assert f"Detected, {row.confidence:.0%} confidence" in talk
    assert str(chat_id) in client.get("/admin/agent-review/conversations").get_data(as_text=True)
    negative = client.get("/admin/agent-review/conversations?rating=negative").get_data(as_text=True)
    assert str(chat_id) not in negative


def test_a_person_on_the_same_turn_is_right(desk: Desk, api: Callable[..., Api], app: Flask) -> None:
    chat_id = desk.talk(*QUOTE, WRONG)
    desk.check()
    member, turn = api(desk.workspace.actor("member"), "feedback"), desk.turn(chat_id, QUOTE[0])
    system = desk.workspace.actor("system")

    def counted() -> int:
        with app.app_context(), acting_as(system), transaction():
            rows = select(Feedback.id).where(*NEGATIVE, Feedback.chat_id == str(chat_id))
            return len(list(db.session.scalars(rows)))

    assert counted() == 1
    member.post(f"/conversations/{desk.workspace.slug}/shop/{chat_id}/turns/{turn}/feedback", {"reaction": "ok"})
    assert counted() == 0
