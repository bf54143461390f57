"""One function writes feedback: what it fills in, what it refuses, what it merges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import func, select

from app.db import acting_as, db, transaction
from app.errors import Forbidden, Invalid
from app.models import AgentSession, AuditEntry, Feedback
from app.services.chats import store as chat_store
from app.services.chats.store import NewMessage
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.sessions import store as session_store
from app.services.sessions.store import NewSession
from tests.threads import run_at_once

pytestmark = [pytest.mark.usefixtures("app_context"), pytest.mark.core]


def talk(actor: Any) -> Any:
    """A chat with a session and one answered question; gives the answer's message."""
    with transaction():
        chat = chat_store.create_chat(actor=actor, agent_slug="deal-analyst", title="Compare", project="ic")
        session, _ = session_store.create_session(
            NewSession(agent="deal-analyst", chat_id=chat.id, status="completed"), actor=actor
        )
        return chat_store.append_messages(
            chat.id,
            [
                NewMessage(role="user", content="Compare Kestrel and Bluefin."),
                NewMessage(
                    role="agent",
                    content="Kestrel is at 11.2x.",
                    session_id=session.id,
                    trace_id=session.trace_id,
                    external_id="msg-7",
                ),
            ],
            actor=actor,
        )[1]


def give(actor: Any, **values: Any) -> Feedback:
    with transaction():
        return record_feedback(NewFeedback(**values), actor=actor).row


def rows() -> int:
    return db.session.scalar(select(func.count()).select_from(Feedback)) or 0


def test_the_message_says_what_it_is_about(workspace: Any) -> None:
    actor = workspace.actor("member")
    with acting_as(actor):
        answer = talk(actor)
        by_id = give(actor, kind="signal", signal="inaccurate", message_id=str(answer.id), comment="Last year's EBITDA")
        by_name = give(actor, kind="comment", rating="neutral", message_id="msg-7")
        by_place = give(
            actor,
            kind="comment",
            rating="positive",
            source_type="chat",
            context={"chat_id": str(answer.chat_id), "message_index": 1},
        )
        by_turn = give(actor, kind="reaction", rating="positive", turn_id=answer.turn_id)
        for row in (by_id, by_name, by_place, by_turn):
            assert (row.source_type, row.session_id, row.turn_id) == ("chat", answer.session_id, answer.turn_id)
            assert (row.trace_id, row.chat_id, row.project) == (answer.trace_id, str(answer.chat_id), "ic")
            assert row.agent_id is not None
            assert row.context == {"chat_id": str(answer.chat_id), "message_index": 1}
            assert (row.created_by, row.origin, row.status, row.confidence) == (actor.id, "user", "pending", 1.0)
        assert (by_id.rating, by_id.signal) == ("negative", "inaccurate")


def test_a_trace_leads_to_its_session(workspace: Any) -> None:
    actor = workspace.actor("member")
    with acting_as(actor):
        with transaction():
            session, _ = session_store.create_session(NewSession(agent="batch"), actor=actor)
        row = give(actor, kind="signal", signal="helpful", trace_id=session.trace_id)
        again = give(actor, kind="signal", signal="helpful", trace_id=session.trace_id, comment="Really")
        assert (row.source_type, row.session_id, row.id) == ("session", session.id, again.id)


def test_a_signal_is_one_row_for_each_message_person_and_signal(workspace: Any) -> None:
    member, other = workspace.actor("member"), workspace.actor("other")
    signal: dict[str, Any] = {"kind": "signal", "signal": "not_helpful", "message_id": "opaque-1"}
    with acting_as(member):
        with transaction():
            first = record_feedback(
                NewFeedback(**signal, comment="Wrong tool", trace_id="t-1", chat_id="c-1"), actor=member
            )
        assert first.created
        with transaction():
            second = record_feedback(NewFeedback(**signal, comment=None), actor=member)
        assert (second.row.id, second.created, second.row.comment) == (first.row.id, False, None)
        assert (second.row.trace_id, second.row.chat_id) == ("t-1", "c-1"), "what is left out stays"
        give(member, kind="signal", signal="unsafe", message_id="opaque-1")
        assert rows() == 2
    with acting_as(other):
        give(other, **signal)
        assert rows() == 1, "members see their own"
    with acting_as(workspace.actor("admin")):
        assert rows() == 3


def test_many_clicks_at_once_are_one_row(app: Any, workspace: Any) -> None:
    actor = workspace.actor("member")
    ids: list[Any] = []

    def click() -> None:
        with app.app_context(), acting_as(actor), transaction():
            ids.append(record_feedback(NewFeedback(kind="signal", signal="helpful", message_id="m-1"), actor=actor).id)

    run_at_once(*[click] * 5)
    assert len(ids) == 5
    assert len(set(ids)) == 1


def test_a_second_reaction_replaces_the_first(workspace: Any) -> None:
    actor = workspace.actor("member")
    with acting_as(actor):
        answer = talk(actor)
        first = give(actor, kind="reaction", rating="positive", message_id=str(answer.id))
        second = give(actor, kind="reaction", rating="negative", turn_id=answer.turn_id, comment="On second thought")
        assert (second.id, second.rating, second.comment) == (first.id, "negative", "On second thought")
        assert rows() == 1


def test_an_edit_keeps_the_wanted_answer_and_its_distance(workspace: Any) -> None:
    actor = workspace.actor("member")
    with acting_as(actor):
        answer = talk(actor)
        row = give(actor, kind="signal", signal="edit", message_id=str(answer.id), comment="Kestrel is at 9.6x LTM.")
        assert row.details["preferred_answer"] == "Kestrel is at 9.6x LTM."
        review = row.details["output_review"]
        assert review["verdict"] == "changes_requested"
        assert 0 < review["edit_distance"] < 60


def test_machine_and_product_write_as_the_workspace(workspace: Any) -> None:
    member = workspace.actor("member")
    with acting_as(member):
        answer = talk(member)
        for _ in range(2):
            give(member, kind="reaction", origin="machine", confidence=0.8, rating="negative", turn_id=answer.turn_id)
        assert rows() == 0, "a member does not see them"
        with transaction():
            bound = db.session.scalar(select(func.current_setting("app.role")))
        assert bound == "member", "and is a member again afterwards"
    with acting_as(workspace.actor("admin")):
        assert {row.created_by for row in db.session.scalars(select(Feedback))} == {workspace.actor("system").id}
        assert rows() == 2, "what machines say adds up"


def test_times_are_the_senders_but_not_in_the_future(workspace: Any) -> None:
    actor = workspace.actor("member")
    now = datetime.now(UTC)
    with acting_as(actor):
        row = give(actor, rating="positive", source_type="session", occurred_at=now - timedelta(days=40))
        assert row.occurred_at == now - timedelta(days=40)
        assert row.created_at > now - timedelta(minutes=10)
        give(actor, rating="positive", source_type="session", occurred_at=now + timedelta(minutes=4))
        for wrong in (now + timedelta(minutes=7), now.replace(tzinfo=None)):
            with pytest.raises(Invalid, match="occurred_at"):
                give(actor, rating="positive", source_type="session", occurred_at=wrong)


def test_what_does_not_fit_is_refused(workspace: Any) -> None:
    member = workspace.actor("member")
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("rating", {"source_type": "session"}),
        ("rating", {"source_type": "session", "rating": "great"}),
        ("source_type", {"source_type": "mail", "rating": "positive"}),
        ("kind", {"kind": "opinion", "rating": "positive"}),
        ("signal", {"kind": "signal", "signal": "meh", "message_id": "m"}),
        ("signal", {"kind": "signal", "rating": "positive", "message_id": "m"}),
        ("signal", {"kind": "comment", "signal": "helpful", "message_id": "m"}),
        ("message_id", {"kind": "signal", "signal": "helpful"}),
        ("turn_id", {"kind": "reaction", "rating": "positive"}),
        ("comment", {"source_type": "session", "rating": "positive", "comment": "x" * 5000}),
        ("trace_id", {"source_type": "session", "rating": "positive", "trace_id": "x" * 300}),
        ("confidence", {"kind": "reaction", "origin": "machine", "rating": "positive", "confidence": 0.5}),
        ("status", {"source_type": "session", "rating": "positive", "status": "applied"}),
        ("context", {"source_type": "tool", "rating": "positive"}),
        ("details", {"source_type": "session", "rating": "positive", "details": {"mood": 1}}),
        ("session", {"source_type": "session", "rating": "positive", "session_id": uuid4()}),
        ("agent", {"source_type": "session", "rating": "positive", "agent_id": uuid4()}),
    ]
    with acting_as(member):
        for name, values in wrong:
            with pytest.raises(Invalid, match=name):
                give(member, **values)
        assert rows() == 0


def test_only_an_admin_flags_and_says_why(workspace: Any) -> None:
    member, admin = workspace.actor("member"), workspace.actor("admin")
    flag: dict[str, Any] = {"kind": "flag", "rating": "negative"}
    with acting_as(member), pytest.raises(Forbidden):
        give(member, **flag, comment="Look at this")
    with acting_as(admin):
        answer = talk(admin)
        with pytest.raises(Invalid, match="what was right or wrong"):
            give(admin, **flag, comment="  ")
        row = give(admin, **flag, comment="Quotes a bid", message_id=str(answer.id))
        assert (row.source_type, row.session_id) == ("observation", answer.session_id)
        actions = db.session.scalars(select(AuditEntry.action).where(AuditEntry.subject_id == row.id)).all()
        assert actions == ["feedback.created"]


def test_a_foreign_chat_and_an_unknown_one_are_alike(make_workspace: Any) -> None:
    here, there = make_workspace(), make_workspace()
    with acting_as(there.actor("admin")):
        foreign = talk(there.actor("admin"))
        foreign_ids = (str(foreign.id), str(foreign.chat_id), foreign.trace_id)
    actor = here.actor("member")
    with acting_as(actor):
        for message_id, chat_id, trace_id in (foreign_ids, (str(uuid4()), str(uuid4()), uuid4().hex)):
            row = give(
                actor, kind="signal", signal="helpful", message_id=message_id, chat_id=chat_id, trace_id=trace_id
            )
            assert (row.session_id, row.agent_id, row.turn_id, row.source_type) == (None, None, None, "chat")
        assert db.session.scalar(select(func.count()).select_from(AgentSession)) == 0
