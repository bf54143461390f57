"""Sharing the work on feedback: who takes it, what admins say to each other, what they think of the answer, and every
filter of the list."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import func, select, text

from app.actor import Actor
from app.db import acting_as, db, transaction
from app.db.paging import Page
from app.errors import Forbidden, Invalid, NotFound
from app.formats.feedback_details import merge_assessment
from app.models import AuditEntry, Feedback
from app.services import audit as services_audit
from app.services.analytics import tab_counts
from app.services.chats import store as chat_store
from app.services.feedback import lists as feedback_lists
from app.services.feedback import teamwork
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.feedback.lists import FeedbackFilters
from app.services.sessions import store as session_store
from app.services.sessions.store import NewSession
from app.services.workspaces import store as workspace_store

pytestmark = [pytest.mark.usefixtures("app_context"), pytest.mark.core]

JUDGED = {
    "quality_scores": {"accuracy": 40, "style_match": 90},
    "output_review": {"verdict": "rejected", "issues": ["hallucination"]},
    "error_categories": ["hallucination", "wrong_context"],
}


def give(actor: Any, **values: Any) -> UUID:
    with acting_as(actor), transaction():
        defaults = {"source_type": "session", "rating": "negative"}
        return record_feedback(NewFeedback(**(defaults | values)), actor=actor).id


def react(actor: Any, rating: str, **values: Any) -> UUID:
    return give(actor, source_type="chat", kind="reaction", rating=rating, chat_id="talk", turn_id="turn-1", **values)


def row(row_id: UUID) -> Feedback:
    return db.session.scalars(select(Feedback).where(Feedback.id == row_id)).one()


def listed(actor: Actor, **args: str) -> set[UUID]:
    found = feedback_lists.list_feedback(FeedbackFilters.from_args(args), Page(50), actor=actor)
    return {item.id for item in found.items}


def actions_on(row_id: UUID) -> list[str]:
    rows = select(AuditEntry.action).where(AuditEntry.subject_id == row_id).order_by(AuditEntry.created_at)
    return [action for action in db.session.scalars(rows) if action != "feedback.created"]


def test_rows_are_taken_and_given_back(workspace: Any) -> None:
    admin, owner = workspace.actor("admin"), workspace.actor("owner")
    first, second, third = (give(workspace.actor("member")) for _ in range(3))
    with acting_as(admin):
        with transaction():
            teamwork.assign([first], owner.id, actor=admin)
        with transaction():
            before = teamwork.assign([first, second, third], admin.id, actor=admin)
        assert before == {first: owner.id, second: None, third: None}
        assert tab_counts.count_tabs(actor=admin)["mine"] == 3
        assert listed(admin, assignee="me") == {first, second, third}
        assert listed(admin, assignee=str(owner.id)) == listed(admin, assignee="nobody") == set()
        with transaction():
            assert teamwork.assign([first, second], admin.id, actor=admin) == {}
        with transaction():
            assert teamwork.give_back(before, actor=admin) == 3
        assert [row(one).assignee_id for one in (first, second, third)] == [owner.id, None, None]
        assert listed(admin, assignee="nobody") == {second, third}
        assert actions_on(second) == ["feedback.assigned", "feedback.unassigned"]
        assert [one.name for one in teamwork.colleagues(actor=admin)] == sorted([admin.name, owner.name], key=str.lower)


def test_only_admins_take_feedback_on(workspace: Any, make_workspace: Any) -> None:
    admin, member, stranger = workspace.actor("admin"), workspace.actor("member"), make_workspace().actor("admin")
    row_id = give(member)
    with acting_as(admin), transaction():
        for taker in (member.id, stranger.id, workspace.actor("system").id, uuid4()):
            with pytest.raises(Invalid, match="only be assigned to admins"):
                teamwork.assign([row_id], taker, actor=admin)
        with pytest.raises(NotFound):
            teamwork.assign([uuid4()], admin.id, actor=admin)
        with pytest.raises(Invalid):
            teamwork.assign([], admin.id, actor=admin)
        with pytest.raises(Invalid, match="200"):
            teamwork.assign([uuid4() for _ in range(201)], admin.id, actor=admin)
        assert teamwork.assign([uuid4() for _ in range(200)], admin.id, actor=admin) == {}
    with acting_as(stranger), transaction(), pytest.raises(NotFound):
        teamwork.assign([row_id], stranger.id, actor=stranger)
    with acting_as(member), transaction(), pytest.raises(Forbidden):
        teamwork.assign([row_id], member.id, actor=member)


def test_admins_talk_and_nobody_else_hears(workspace: Any, make_workspace: Any) -> None:
    admin, owner, member = (workspace.actor(role) for role in ("admin", "owner", "member"))
    row_id = give(member)
    with acting_as(admin), transaction():
        mine = teamwork.add_comment(row_id, "  Ask Sam which period  ", actor=admin)
        for body in ("", "   ", "x" * 4097, "nul\x00"):
            with pytest.raises(Invalid):
                teamwork.add_comment(row_id, body, actor=admin)
        with pytest.raises(NotFound):
            teamwork.add_comment(uuid4(), "Hello", actor=admin)
    with acting_as(owner), transaction():
        teamwork.add_comment(row_id, "x" * 4096, actor=owner)
        first, second = teamwork.comments_of(row_id, actor=owner)
        assert (first.who, first.body, first.mine, second.mine) == (admin.name, "Ask Sam which period", False, True)
        with pytest.raises(NotFound):
            teamwork.delete_comment(row_id, mine, actor=owner)
    with acting_as(member), transaction():
        assert db.session.scalar(text("select count(*) from feedback_comments")) == 0
        for act in (
            lambda: teamwork.comments_of(row_id, actor=member),
            lambda: teamwork.add_comment(row_id, "x", actor=member),
        ):
            with pytest.raises(Forbidden):
                act()
    stranger = make_workspace().actor("admin")
    with acting_as(stranger), transaction():
        assert teamwork.comments_of(row_id, actor=stranger) == []
        with pytest.raises(NotFound):
            teamwork.add_comment(row_id, "Hello", actor=stranger)
    with acting_as(admin), transaction():
        assert teamwork.delete_comment(row_id, mine, actor=admin) == "Ask Sam which period"
        assert len(teamwork.comments_of(row_id, actor=admin)) == 1


def test_an_assessment_outlives_what_the_author_says_next(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    said = {
        "error_categories": ["missing_context"],
        "missing_context": "The period",
        "quality_scores": {"accuracy": 80},
    }
    row_id = react(member, "negative", comment="Wrong", details=said)
    with acting_as(admin), transaction():
        assert teamwork.assess_feedback(row_id, JUDGED, actor=admin) == {}
    assert (
        react(member, "positive", comment="Fine after all", details={"error_categories": ["wrong_context"]}) == row_id
    )

    with acting_as(admin):
        now = row(row_id)
        assert (now.rating, now.comment) == ("positive", "Fine after all")
        assert now.details["error_categories"] == ["wrong_context"]
        assert now.error_categories == ["wrong_context", "hallucination"]
        found = feedback_lists.get_feedback(row_id, actor=admin)
        assert found.details == {"error_categories": ["wrong_context"]}
        assert found.assessment.items() >= JUDGED.items()
        assert found.assessment["by"] == str(admin.id)
        contents = feedback_lists.load_contents([row_id], actor=admin)[row_id]
        assert contents["details"]["output_review"] == JUDGED["output_review"]
        assert contents["details"]["error_categories"] == ["wrong_context", "hallucination"]
        assert listed(admin, error_category="hallucination") == {row_id}
        with transaction():
            assert teamwork.assess_feedback(row_id, JUDGED, actor=admin) == JUDGED
            assert teamwork.assess_feedback(row_id, {}, actor=admin) == JUDGED
        assert row(row_id).details == {"error_categories": ["wrong_context"]}
        assert row(row_id).error_categories == ["wrong_context"]
        assert actions_on(row_id) == ["feedback.assessed", "feedback.changed", "feedback.assessed"]


def test_a_signal_sent_again_keeps_its_assessment(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    sent: dict[str, Any] = {"kind": "signal", "signal": "inaccurate", "message_id": "m-1", "rating": None}
    row_id = give(member, **sent)
    with acting_as(admin), transaction():
        teamwork.assess_feedback(row_id, {"quality_scores": {"completeness": 0}}, actor=admin)
    assert give(member, comment="Again", **sent) == row_id
    with acting_as(admin):
        assert row(row_id).details["assessment"]["quality_scores"] == {"completeness": 0}


def test_what_is_no_assessment_is_refused(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    row_id = give(member, details={"quality_scores": {"accuracy": 80}})
    with acting_as(admin), transaction():
        for value in (0, 100):
            teamwork.assess_feedback(row_id, {"quality_scores": {"accuracy": value}}, actor=admin)
        for wrong in (
            {"quality_scores": {"accuracy": 101}}, {"quality_scores": {"accuracy": -1}},
            {"output_review": {"verdict": "perhaps"}}, {"output_review": {"issues": ["ugly"]}},
            {"error_categories": ["other"] * 11}, {"colour": "red"}, {"by": "me"},
        ):  # fmt: skip
            with pytest.raises(Invalid):
                teamwork.assess_feedback(row_id, wrong, actor=admin)
        with pytest.raises(NotFound):
            teamwork.assess_feedback(uuid4(), {}, actor=admin)
    with acting_as(member), transaction():
        with pytest.raises(Forbidden):
            teamwork.assess_feedback(row_id, {}, actor=member)
        assert feedback_lists.get_feedback(row_id, actor=member).assessment == {}
        assert feedback_lists.load_contents([row_id], actor=member)[row_id]["details"] == {
            "quality_scores": {"accuracy": 80}
        }
        with pytest.raises(Invalid):
            record_feedback(
                NewFeedback(source_type="session", rating="neutral", details={"assessment": {}}), actor=member
            )


def test_scores_replace_and_lists_add_up() -> None:
    said = {"output_review": {"verdict": "approved", "edit_distance": 4, "issues": ["style_issue"]}, "skipped": True}
    assert merge_assessment({**said, "assessment": JUDGED}) == {
        "skipped": True,
        "output_review": {"verdict": "rejected", "edit_distance": 4, "issues": ["style_issue", "hallucination"]},
        "quality_scores": JUDGED["quality_scores"],
        "error_categories": JUDGED["error_categories"],
    }
    assert merge_assessment(said) == said


def test_every_filter_finds_its_row(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin), transaction():
        session, _ = session_store.create_session(
            NewSession(agent="deal-analyst", status="completed", environment="staging", model="m-1", tags=("pilot",)),
            actor=admin,
        )
    wanted = give(member, session_id=session.id, comment="The period", details={"error_categories": ["other"]})
    give(member, source_type="tool", context={"tool_slug": "search"}, kind="tool_observation", rating="neutral")
    with acting_as(admin), transaction():
        teamwork.assign([wanted], admin.id, actor=admin)
    every = {
        "status": "pending", "source_type": "session", "rating": "negative", "origin": "user", "agent": "deal-analyst",
        "version": "1", "error_category": "other", "environment": "staging", "model": "m-1", "tag": "pilot",
        "assignee": "me", "kind": "comment", "from": "2020-01-01", "to": "2099-01-01", "q": "period",
    }  # fmt: skip
    with acting_as(admin):
        for name, value in every.items():
            expected = 1 if name not in {"status", "origin", "from", "to"} else 2
            assert len(listed(admin, **{name: value})) == expected, name
        assert listed(admin, **every) == {wanted}
        for name, value in (("environment", "production"), ("model", "m"), ("tag", "pil"), ("version", "2")):
            assert listed(admin, **{name: value}) == set()
        for name, value in (("assignee", "everyone"), ("version", "one"), ("error_category", "typo")):
            with pytest.raises(Invalid):
                FeedbackFilters.from_args({name: value})
        again = FeedbackFilters.from_args(every).as_args()
        assert again == every


def test_a_conversation_is_asked_for_by_either_name(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(member), transaction():
        chat = chat_store.create_chat(actor=member, agent_slug="deal-analyst", title="Compare", external_id="c-9")
    ours, theirs = (give(member, source_type="chat", chat_id=name) for name in (str(chat.id), "c-9"))
    with acting_as(admin):
        assert listed(admin, chat_id=str(chat.id)) == {ours, theirs}
        assert listed(admin, chat_id="c-10") == listed(admin, chat_id=str(uuid4())) == set()


def test_much_the_same_words_about_the_same_agent(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin), transaction():
        agents = [
            session_store.create_session(NewSession(agent=slug, status="completed"), actor=admin)[0]
            for slug in ("deal-analyst", "sales-ops")
        ]
    one = give(member, session_id=agents[0].id, comment="It used last year's EBITDA for Kestrel")
    two = give(member, session_id=agents[0].id, comment="Kestrel again with the wrong EBITDA period")
    give(member, session_id=agents[0].id, comment="Too long and too slow")
    give(member, session_id=agents[1].id, comment="EBITDA of Kestrel is wrong")
    with acting_as(admin):
        agent_id = row(one).agent_id
        assert [found.id for found in teamwork.alike(one, row(one).comment, agent_id, actor=admin)] == [two]
        assert (
            teamwork.alike(one, None, agent_id, actor=admin)
            == teamwork.alike(one, "so it is", agent_id, actor=admin)
            == []
        )
        assert teamwork.alike(one, "EBITDA Kestrel", None, actor=admin) == []


def test_hidden_authors_are_hidden_in_the_audit_trail_too(workspace: Any) -> None:
    owner, admin, member = (workspace.actor(role) for role in ("owner", "admin", "member"))
    react(member, "negative")
    react(member, "positive")
    give(admin)
    with acting_as(owner), transaction():
        workspace_store.change_settings({"author_private": True}, actor=owner)
    with acting_as(admin):
        lines = services_audit.list_entries(Page(100), actor=admin).items
        by = [(line.action, line.who) for line in lines if line.action in services_audit.BY_AUTHORS]
        assert sorted(by) == [
            ("feedback.changed", "a member"), ("feedback.created", admin.name), ("feedback.created", "a member"),
        ]  # fmt: skip
        assert listed(admin, author_id=str(member.id)) == set()
        assert db.session.scalar(select(func.count()).select_from(Feedback)) == 2
