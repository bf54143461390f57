"""Reviewing feedback: every move that is allowed, every one that is not, and who wins when two decide at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select

from app.actor import Actor
from app.db import acting_as, db, transaction
from app.db.paging import Page
from app.errors import Forbidden, Invalid, NotFound, Refused
from app.learning.signals import weight_of
from app.models import Agent, AuditEntry, Feedback
from app.services.analytics import tab_counts
from app.services.feedback import lists as feedback_lists
from app.services.feedback import review as feedback_review
from app.services.feedback import volume
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.feedback.lists import FeedbackFilters
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from app.services.workspaces import store as workspace_store
from tests.threads import run_at_once

pytestmark = [pytest.mark.usefixtures("app_context"), pytest.mark.core]


def give(actor: Any, **values: Any) -> UUID:
    with transaction():
        defaults = {"source_type": "session", "rating": "negative"}
        return record_feedback(NewFeedback(**(defaults | values)), actor=actor).id


def move(ids: list[UUID], action: str, actor: Any, **more: Any) -> int:
    with transaction():
        return len(feedback_review.review(ids, action, actor=actor, **more))


def row(row_id: UUID) -> Feedback:
    return db.session.scalars(select(Feedback).where(Feedback.id == row_id)).one()


def test_days_are_those_with_feedback(workspace: Any) -> None:
    """The list of a day holds what the day's bar counts, also when it came in later and however else it is narrowed."""
    admin = workspace.actor("admin")
    now = datetime.now(UTC)
    ago = [now - timedelta(days=days) for days in (10, 11, 10)]
    with acting_as(admin):
        late, earlier, fit = (give(admin, occurred_at=at, kind="flag", comment="Late covenant") for at in ago)
        today = give(admin, comment="Just now")

        def found(limit: int = 10, cursor: str | None = None, **args: str) -> Any:
            return feedback_lists.list_feedback(FeedbackFilters.from_args(args), Page(limit, cursor), actor=admin)

        def ids(**args: str) -> set[UUID]:
            return {item.id for item in found(**args).items}

        day = ago[0].date().isoformat()
        assert ids(**{"from": day, "to": day}) == {late, fit}
        assert ids(**{"from": now.date().isoformat()}) == {today}
        for more in ({"status": "pending"}, {"kind": "flag"}, {"q": "covenants"}):
            assert ids(**{"from": day, "to": day, **more}) == {late, fit}, more
        assert [item.id for item in found().items] == [today, fit, earlier, late]
        walked, cursor = [], None
        for _ in range(3):
            page = found(1, cursor, to=day)
            walked += [item.id for item in page.items]
            cursor = page.next_cursor
        assert set(walked[:2]) == {late, fit}
        assert walked[2] == earlier
        assert cursor is None
        counted = {one.day.isoformat(): one.total for one in volume.volume(actor=admin)}
        assert (counted[day], counted[now.date().isoformat()]) == (2, 1)


def test_every_pair_of_states(workspace: Any) -> None:
    admin = workspace.actor("admin")
    ways = {"pending": [], "reviewed": ["reviewed"], "applied": ["applied"], "dismissed": ["dismissed"]}
    allowed = {
        ("pending", "reviewed"), ("pending", "applied"), ("pending", "dismissed"), ("reviewed", "applied"),
        ("reviewed", "dismissed"), ("reviewed", "reopen"), ("applied", "reopen"), ("dismissed", "reopen"),
    }  # fmt: skip
    with acting_as(admin):
        for start, steps in ways.items():
            for action in feedback_review.ACTIONS:
                row_id = give(admin)
                for step in steps:
                    move([row_id], step, admin)
                if (start, action) in allowed:
                    assert move([row_id], action, admin) == 1
                    assert row(row_id).status == ("pending" if action == "reopen" else action)
                    assert action in feedback_review.allowed_actions(start, actor=admin)
                else:
                    with pytest.raises(Refused) as refused:
                        move([row_id], action, admin)
                    assert refused.value.extra["current"] == start
                    assert row(row_id).status == start
                    assert action not in feedback_review.allowed_actions(start, actor=admin)


def test_each_move_leaves_its_reason_and_one_audit_row(workspace: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        applied, dismissed, noted = give(admin), give(admin), give(admin)
        move([applied], "applied", admin)
        move([dismissed], "dismissed", admin)
        move([noted], "dismissed", admin, notes="Fixed last week.")
        assert row(applied).outcome == {"kind": "manual", "text": f"manual decision by {admin.name}"}
        assert row(dismissed).review_notes == f"Dismissed by {admin.name} without a note."
        assert row(noted).review_notes == "Fixed last week."
        assert row(applied).reviewed_by_user_id == admin.id
        move([applied], "reopen", admin)
        found = row(applied)
        assert (found.reviewed_at, found.reviewed_by_user_id, found.outcome) == (None, None, {})
        entries = db.session.execute(
            select(AuditEntry.action, AuditEntry.details).where(AuditEntry.subject_id == applied)
        ).all()
        moves = {(action, found.get("before"), found.get("after")) for action, found in entries}
        assert moves == {
            ("feedback.created", None, None),
            ("feedback.applied", "pending", "applied"),
            ("feedback.reopened", "applied", "pending"),
        }
        assert len(entries) == 3


def test_a_bulk_move_counts_what_moved(workspace: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        ids = [give(admin) for _ in range(4)]
        move(ids[:1], "dismissed", admin)
        assert move([*ids, *ids, uuid4()], "reviewed", admin, notes="Looked at together.") == 3
        assert {row(row_id).review_notes for row_id in ids[1:]} == {"Looked at together."}
        audits = select(AuditEntry.subject_id).where(AuditEntry.action == "feedback.reviewed")
        assert sorted(db.session.scalars(audits)) == sorted(ids[1:])
        assert move([], "reviewed", admin) == 0
        with pytest.raises(Invalid, match="200"):
            move([uuid4() for _ in range(201)], "reviewed", admin)


def test_who_may_not_review(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        row_id = give(admin)
        agent_id = db.session.scalars(select(Agent.id).where(Agent.is_system)).one()
        agent = Actor(workspace.actor("system").id, workspace.id, "system", "Review", agent_id=agent_id)
        with pytest.raises(Forbidden):
            move([row_id], "dismissed", member)
        key = Actor(admin.id, workspace.id, "admin", scopes=frozenset({"feedback"}))
        with pytest.raises(Forbidden):
            move([row_id], "dismissed", key)
        with pytest.raises(Invalid, match="action"):
            move([row_id], "deleted", admin)
        with pytest.raises(Invalid, match="outcome"):
            move([row_id], "applied", admin, outcome={"kind": "magic"})
        assert move([row_id], "dismissed", agent, notes="Noise.") == 1
        found = row(row_id)
        assert (found.reviewed_by_agent_id, found.reviewed_by_user_id) == (agent_id, None)
        with pytest.raises(Forbidden, match="person"):
            move([row_id], "reopen", agent)


def test_a_foreign_row_is_an_unknown_row(make_workspace: Any) -> None:
    here, there = make_workspace(), make_workspace()
    with acting_as(there.actor("admin")):
        foreign = give(there.actor("admin"))
    admin = here.actor("admin")
    with acting_as(admin):
        answers = []
        for row_id in (foreign, uuid4()):
            with pytest.raises(NotFound) as unknown:
                move([row_id], "dismissed", admin)
            answers.append(unknown.value.detail)
            with pytest.raises(NotFound) as unknown:
                feedback_lists.get_feedback(row_id, actor=admin)
            answers.append(unknown.value.detail)
        assert len(set(answers)) == 1
        assert move([foreign, give(admin)], "dismissed", admin) == 1
    with acting_as(there.actor("admin")):
        assert row(foreign).status == "pending"


def test_of_two_who_decide_at_once_one_wins(app: Any, workspace: Any) -> None:
    admin, owner = workspace.actor("admin"), workspace.actor("owner")
    with acting_as(admin):
        ids = [give(admin) for _ in range(6)]
    moved: list[int] = []

    def decide(actor: Any, action: str, order: list[UUID]) -> None:
        with app.app_context(), acting_as(actor):
            moved.append(move(order, action, actor))

    run_at_once(
        *(
            partial(decide, actor, action, order)
            for actor, action, order in (
                (admin, "applied", ids),
                (owner, "dismissed", ids[::-1]),
                (admin, "applied", ids[::-1]),
                (owner, "dismissed", ids),
            )
        )
    )
    assert sorted(moved) == [0, 0, 0, 6]
    with acting_as(admin):
        found = [row(row_id) for row_id in ids]
        assert len({(item.status, item.reviewed_by_user_id) for item in found}) == 1


def test_members_read_their_own_and_admins_all(workspace: Any, count_queries: Any) -> None:
    admin, member, other = (workspace.actor(name) for name in ("admin", "member", "other"))
    for actor in (admin, member, other):
        with acting_as(actor):
            give(actor, comment=f"Words of {actor.name} about covenants")
    for actor, number in ((member, 1), (other, 1), (admin, 3)):
        with acting_as(actor):
            with count_queries() as seen:
                page = feedback_lists.list_feedback(FeedbackFilters.from_args({"q": "covenant"}), Page(), actor=actor)
            assert len(seen) <= 4
            assert not any("metadata" in statement for statement in seen)
            assert len(page.items) == page.count == number
            assert tab_counts.count_tabs(actor=actor)["feedback"] == number


def test_filters_narrow_the_feed(workspace: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        give(admin, comment="one", rating="positive")
        give(admin, kind="signal", signal="regenerate", rating=None, source_type=None, message_id="m-1", comment="two")
        gone = give(
            admin, source_type="tool", context={"tool_slug": "searchDeals"}, kind="tool_observation", comment="3"
        )
        give(admin, kind="reaction", origin="machine", confidence=0.9, comment="four", source_type="chat")
        move([gone], "dismissed", admin)

        def found(**args: str) -> set[str | None]:
            page = feedback_lists.list_feedback(FeedbackFilters.from_args(args), Page(), actor=admin)
            return {item.comment for item in page.items}

        assert found() == {"one", "two", "3", "four"}
        assert found(rating="positive") == {"one"}
        assert found(signal="regenerate") == {"two"}
        assert found(status="dismissed") == found(source_type="tool") == found(kind="tool_observation") == {"3"}
        assert found(origin="machine") == {"four"}
        assert found(to="2020-01-01") == found(agent="nobody") == set()
        [weak] = feedback_lists.list_feedback(FeedbackFilters(signal="regenerate"), Page(), actor=admin).items
        assert weight_of(weak.signal) == 0.3
        assert tab_counts.count_tabs(actor=admin)["oldest"] is not None


def test_authors_stay_private_where_the_workspace_says_so(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(member):
        said = give(member, comment="I would not have said this aloud")
    with acting_as(admin):
        own = give(admin, comment="Mine")
        assert feedback_lists.get_feedback(said, actor=admin).author == member.name
        with transaction():
            workspace_store.change_settings({"author_private": True}, actor=admin)
        items = {item.id: item for item in feedback_lists.list_feedback(FeedbackFilters(), Page(), actor=admin).items}
        assert (items[said].author, items[said].author_id) == ("a member", None)
        assert items[said].comment == "I would not have said this aloud"
        assert items[own].author == admin.name
        assert feedback_lists.get_feedback(said, actor=admin).author_id is None
        by_author = FeedbackFilters(author_id=member.id)
        assert feedback_lists.list_feedback(by_author, Page(), actor=admin).items == []
    with acting_as(member):
        assert feedback_lists.get_feedback(said, actor=member).author == member.name


def test_reading_feedback_of_others_is_audited(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(member):
        said = give(member)
        with transaction():
            feedback_lists.get_feedback(said, actor=member, audit_read=True)
    with acting_as(admin):
        own = give(admin)
        with transaction():
            feedback_lists.get_feedback(own, actor=admin, audit_read=True)
            feedback_lists.get_feedback(said, actor=admin)
            feedback_lists.get_feedback(said, actor=admin, audit_read=True)
        reads = db.session.execute(
            select(AuditEntry.subject_id, AuditEntry.actor_user_id).where(AuditEntry.action == "feedback.read")
        ).all()
        assert [tuple(read) for read in reads] == [(said, admin.id)]


def test_the_detail_shows_what_became_of_it(workspace: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        said = give(admin, comment="Always last year's figures")
        with transaction():
            rule = knowledge_rows.add_row(
                NewRow(type="correction", content="Use LTM EBITDA.", feedback_ids=[said]), actor=admin
            )
            outcome = {"kind": "knowledge", "id": str(rule.id), "text": rule.content}
            feedback_review.review([said], "applied", actor=admin, outcome=outcome)
        detail = feedback_lists.get_feedback(said, actor=admin)
        assert detail.outcome == outcome
        assert (detail.reviewer, detail.status) == (admin.name, "applied")
        assert [(item.id, item.state) for item in detail.knowledge] == [(rule.id, "active")]
