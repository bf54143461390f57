"""A review without a model: what becomes of feedback, and what the server never lets a review do."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from app.db import acting_as, db
from app.models import AuditEntry, Feedback, SessionEvent, SharedContextFeedback
from app.services.review import patterns, runs
from tests.review.conftest import WRONG, Desk


def events_of(desk: Desk, session_id: Any) -> list[str]:
    with acting_as(desk.admin):
        wanted = select(SessionEvent.event_type).where(SessionEvent.session_id == session_id)
        return list(db.session.scalars(wanted.order_by(SessionEvent.sequence)))


def test_what_two_people_say_becomes_one_proposal(desk: Desk) -> None:
    same = [desk.complain("member", WRONG), desk.complain("other", "It should quote leverage on net debt, not gross.")]
    other = desk.complain(
        "member", "The chart has no legend, please add one.", asked="Draw the chart", agent="chart-maker"
    )
    review = desk.review()
    assert review.status == "completed", review.error
    assert (review.total, review.considered, review.left_pending) == (3, 3, 1)
    [rule] = desk.rules()
    assert (rule.state, rule.active, review.proposed) == ("proposed", False, [rule.id])
    assert desk.statuses(*same, other) == ["reviewed", "reviewed", "pending"]
    with acting_as(desk.admin):
        links = set(db.session.scalars(select(SharedContextFeedback.feedback_id)))
        assert links == set(same)
        row = db.session.get_one(Feedback, same[0])
        assert row.reviewed_by_agent_id == rule.created_by_agent_id, "the review agent did it"
        of_rows = patterns.patterns_of([*same, other], actor=desk.admin)
        assert of_rows[same[0]] == of_rows[same[1]] != of_rows[other]
        assert patterns.get_pattern(of_rows[same[0]], actor=desk.admin).shared_context_id == rule.id
        audited = set(db.session.scalars(select(AuditEntry.action).where(AuditEntry.actor_agent_id.is_not(None))))
        assert {"knowledge.created", "feedback.reviewed"} <= audited
    kinds = events_of(desk, review.session_id)
    assert kinds[-1] == "session.completed"
    assert {"knowledge.changed", "feedback.reviewed", "agent.message"} <= set(kinds)


def test_a_third_signal_joins_the_proposal_and_an_unchanged_workspace_is_skipped(desk: Desk) -> None:
    desk.complain("member", WRONG), desk.complain("other", WRONG)
    with acting_as(desk.admin):
        assert not runs.is_unchanged(actor=desk.admin)
    desk.review()
    with acting_as(desk.admin):
        assert runs.is_unchanged(actor=desk.admin)
    third = desk.complain("owner", WRONG)
    with acting_as(desk.admin):
        assert not runs.is_unchanged(actor=desk.admin)
    again = desk.review()
    [rule] = desk.rules()
    assert (again.merged, again.proposed, desk.statuses(third)) == ([rule.id], [], ["reviewed"])


def test_a_dry_run_says_what_it_would_do_and_changes_nothing(desk: Desk) -> None:
    same = [desk.complain("member", WRONG), desk.complain("other", WRONG)]
    review = desk.review(dry_run=True)
    assert (review.status, desk.rules(), desk.statuses(*same)) == ("completed", [], ["pending", "pending"])
    with acting_as(desk.admin):
        [planned] = runs.list_decisions(review.session_id, actor=desk.admin)
    assert (planned["what"], planned["signals"]) == ("propose", 2)
    with acting_as(desk.admin):
        assert patterns.patterns_of(same, actor=desk.admin) == {}
        assert not runs.is_unchanged(actor=desk.admin)
