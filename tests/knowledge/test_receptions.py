"""How knowledge was received: what people say of sessions that had a row, counted once, and again when it changes."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.jobs.usage import count_receptions
from app.learning.ranking import rank
from app.models import Feedback, SessionReception, SharedContext, SharedContextUsage
from app.services.feedback import intake as feedback_intake
from app.services.feedback import review as feedback_review
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge import usage as knowledge_usage
from app.services.knowledge.rows import NewRow
from app.services.sessions import lists as session_lists
from app.services.sessions import store as session_store
from app.services.sessions.events import NewEvent
from app.services.sessions.store import NewSession
from app.services.workspaces import identity
from tests.threads import run_at_once

pytestmark = pytest.mark.usefixtures("app_context")


@pytest.fixture(autouse=True)
def counted_before(app_context: None) -> None:
    """What other tests said is counted before."""
    while count_receptions():
        pass


def learn(actor: Any, content: str) -> UUID:
    with transaction():
        return knowledge_rows.add_row(NewRow(type="lesson", content=content), actor=actor).id


def worked(actor: Any, *loaded: Any) -> UUID:
    """A session that had these rows in its prompt, as the product itself wrote it."""
    events = [NewEvent("context.loaded", {"row_ids": ids}) for ids in loaded]
    with acting_as(identity.product_in(actor.tenant_id)), transaction():
        new = NewSession(agent="analyst", status="completed", events=events, person_id=actor.id)
        return session_store.create_session(new, actor=identity.system_user(actor.tenant_id))[0].id


def say(actor: Any, session_id: UUID, signal: str = "helpful", message_id: str | None = None, **more: Any) -> UUID:
    with acting_as(actor), transaction():
        new = NewFeedback(
            kind="signal", signal=signal, session_id=session_id, message_id=message_id or uuid4().hex, **more
        )
        found: UUID = record_feedback(new, actor=actor).id
        return found


def counts(actor: Any, row_id: UUID) -> tuple[int, int]:
    with acting_as(actor), transaction():
        row = db.session.execute(
            select(SharedContextUsage.helpful, SharedContextUsage.harmful).where(
                SharedContextUsage.shared_context_id == row_id
            )
        ).one_or_none()
    return (row.helpful, row.harmful) if row else (0, 0)


def test_people_are_counted_once_for_each_session_and_the_rank_follows(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        used, other = learn(admin, "Figures are in thousands."), learn(admin, "Ask for the year.")
        first, second = worked(admin, [str(used)], [str(used)]), worked(admin, [str(used), str(other)])
        without = worked(admin)
    for actor, session, signal in (
        (admin, first, "helpful"),
        (admin, first, "helpful"),
        (member, first, "helpful"),
        (member, second, "not_helpful"),
        (member, second, "inaccurate"),
        (member, without, "inaccurate"),
    ):
        say(actor, session, signal)
    assert count_receptions() == 3
    assert (counts(admin, used), counts(admin, other)) == ((2, 1), (0, 1))
    assert count_receptions() == 0, "what was counted waits no more"
    with acting_as(admin):
        ranks = {row.id: row.rank for row in db.session.execute(select(SharedContext.id, SharedContext.rank))}
    assert ranks[used] == pytest.approx(rank(0, helpful=2, harmful=1), abs=0.02)
    assert ranks[other] == pytest.approx(rank(0, harmful=1), abs=0.02)


def test_what_is_changed_or_taken_back_goes_out_again(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        used = learn(admin, "Figures are in thousands.")
        session = worked(admin, [str(used)])
    say(member, session, "inaccurate", "m-1")
    kept = say(member, session, "unsafe", "m-2")
    say(admin, session, "helpful", "m-3")
    count_receptions()
    assert counts(admin, used) == (1, 1)

    with acting_as(admin), transaction():
        feedback_review.review([kept], "reviewed", actor=admin)
    assert count_receptions() == 0, "what an admin makes of it changes nothing about how it was received"
    with acting_as(member), transaction():
        feedback_intake.retract_feedback(Feedback.message_id == "m-1", actor=member)
    count_receptions()
    assert counts(admin, used) == (1, 1), "the same person's other word stands"
    with acting_as(member), transaction():
        feedback_intake.retract_feedback(Feedback.message_id == "m-2", actor=member)
        assert db.session.get(Feedback, kept) is not None, "it was acted on, so it is only marked"
    count_receptions()
    assert counts(admin, used) == (1, 0)
    with acting_as(admin), transaction():
        feedback_intake.retract_feedback(Feedback.message_id == "m-3", actor=admin)
    count_receptions()
    assert counts(admin, used) == (0, 0)

    turn = {"kind": "reaction", "source_type": "chat", "turn_id": "t-1", "chat_id": "talk", "session_id": session}
    for rating, expected in (("positive", (1, 0)), ("negative", (0, 1)), ("neutral", (0, 0))):
        with acting_as(member), transaction():
            record_feedback(NewFeedback(rating=rating, **turn), actor=member)
        count_receptions()
        assert counts(admin, used) == expected


def test_machines_and_skipped_ratings_are_no_voices_and_odd_events_no_knowledge(workspace: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        used = learn(admin, "Figures are in thousands.")
        session = worked(admin, [str(used), "x", 7, None, str(uuid4())], "none", {"a": 1}, None)
        failed = worked(admin, [str(used)])
        with transaction():
            for origin in ("machine", "system"):
                new = NewFeedback(
                    source_type="session", rating="negative", origin=origin, confidence=0.9, session_id=failed
                )
                record_feedback(new, actor=admin)
    say(admin, failed, "not_helpful", details={"skipped": True})
    say(admin, session)
    count_receptions()
    assert counts(admin, used) == (1, 0)
    with acting_as(admin), transaction():
        session_lists.delete_sessions([session], actor=admin)
    assert count_receptions() == 0
    assert counts(admin, used) == (1, 0), "what was counted stays"


def test_several_who_count_at_once_count_each_session_once(app: Flask, workspace: Any) -> None:
    admin, product = workspace.actor("admin"), workspace.actor("system")
    with acting_as(admin):
        used = learn(admin, "Figures are in thousands.")
        asked = [worked(admin, [str(used)]) for _ in range(12)]
    for number, session in enumerate(asked):
        say(admin, session, "helpful" if number % 3 else "inaccurate")
    together, counted = threading.Barrier(3), []

    def count() -> None:
        together.wait()
        with app.app_context():
            while len(counted) < 40:
                with acting_as(product), transaction():
                    counted.append(knowledge_usage.count_receptions(actor=product, most=2))
                if not counted[-1]:
                    return

    run_at_once(*[count] * 3)
    count_receptions()
    assert counts(admin, used) == (8, 4)
    with acting_as(admin):
        assert not db.session.scalars(select(SessionReception.session_id).where(SessionReception.waiting)).all()


def test_several_who_say_something_at_once_wait_for_nobody_and_are_all_counted(app: Flask, workspace: Any) -> None:
    admin, member, product = (workspace.actor(role) for role in ("admin", "member", "system"))
    with acting_as(admin):
        used = learn(admin, "Figures are in thousands.")
        session = worked(admin, [str(used)])
    say(admin, session, "inaccurate")
    done = threading.Event()

    def join_in() -> None:
        with app.app_context():
            say(member, session)
            done.set()

    with acting_as(admin), transaction():
        new = NewFeedback(kind="signal", signal="helpful", session_id=session, message_id="m-1")
        record_feedback(new, actor=admin)
        other = threading.Thread(target=join_in)
        other.start()
        assert done.wait(10), "a session that is marked can be marked again meanwhile"
        other.join()
        counting: list[int] = []
        counter = threading.Thread(target=lambda: counting.append(counted_by(app, product)))
        counter.start()
        counter.join()
        assert counting == [0], "what someone is about to say is waited for, by counting the session later"
    assert count_receptions() == 1
    assert counts(admin, used) == (2, 1)


def counted_by(app: Flask, product: Any) -> int:
    with app.app_context(), acting_as(product), transaction():
        return knowledge_usage.count_receptions(actor=product)


def test_feedback_that_arrives_while_counting_is_counted_next(app: Flask, workspace: Any) -> None:
    admin, member, product = (workspace.actor(role) for role in ("admin", "member", "system"))
    with acting_as(admin):
        used = learn(admin, "Figures are in thousands.")
        session = worked(admin, [str(used)])
    say(admin, session)

    def join_in() -> None:
        with app.app_context():
            say(member, session)

    with acting_as(product):
        with transaction():
            assert knowledge_usage.count_receptions(actor=product) == 1
            other = threading.Thread(target=join_in)
            other.start()
            other.join(0.3)
        other.join()
    assert counts(admin, used) == (1, 0)
    assert count_receptions() == 1
    assert counts(admin, used) == (2, 0)
