"""Goldens: promoted once, frozen with what the run had, renamed and revoked; candidates settled by one of many."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.errors import Forbidden, Invalid, NotFound, Problem, Refused, Unprocessable
from app.evals.snapshot import snapshot_hash
from app.models import AgentSession, AuditEntry, Feedback
from app.services.evals import candidates, promotion
from app.services.evals import golden as eval_golden
from app.services.evals.promotion import Promotion
from app.services.feedback import intake as feedback_intake
from app.services.feedback import review as feedback_review
from app.services.feedback.intake import NewFeedback
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from app.services.sessions import lists as session_lists
from app.services.sessions import store as session_store
from app.services.sessions.events import NewEvent
from app.services.sessions.store import NewSession
from tests.conftest import Workspace


def ran(app: Flask, actor: Any, *events: NewEvent, status: str = "completed", **more: Any) -> UUID:
    said = events or (
        NewEvent("user.message", {"text": "Compare Kestrel and Bluefin"}),
        NewEvent("agent.message", {"text": "Kestrel is cheaper."}),
    )
    with app.app_context(), acting_as(actor), transaction():
        session, _ = session_store.create_session(
            NewSession(agent="deal-analyst", status=status, events=list(said), **more), actor=actor
        )
        return session.id


def promote(app: Flask, actor: Any, session_id: UUID, **given: Any) -> dict[str, Any]:
    with app.app_context(), acting_as(actor), transaction():
        return promotion.promote_session(session_id, Promotion(**given), actor=actor).golden


def complain(app: Flask, actor: Any, session_id: UUID, source: str = "session", **more: Any) -> UUID:
    with app.app_context(), acting_as(actor), transaction():
        given = NewFeedback(source_type=source, rating="negative", comment="Wrong", session_id=session_id, **more)
        found: UUID = feedback_intake.record_feedback(given, actor=actor).id
        return found


def status_of(app: Flask, actor: Any, ids: list[UUID]) -> set[str]:
    with app.app_context(), acting_as(actor):
        return set(db.session.scalars(select(Feedback.status).where(Feedback.id.in_(ids))))


def test_the_snapshot_holds_what_the_run_had_not_what_is_active_now(app: Flask, workspace: Workspace) -> None:
    admin = workspace.actor()
    with app.app_context(), acting_as(admin), transaction():
        row = knowledge_rows.add_row(NewRow(type="correction", content="Use LTM.", context="comparing"), actor=admin)
        later = knowledge_rows.add_row(NewRow(type="lesson", content="Say the period."), actor=admin)
        row_id = row.id
    session_id = ran(
        app,
        admin,
        NewEvent("context.loaded", {"row_ids": [str(row_id)], "versions": [1], "sha256": "0" * 64}),
        NewEvent("user.message", {"text": "First"}),
        NewEvent("agent.message", {"text": "One."}),
        NewEvent("user.message", {"text": "Second"}),
        NewEvent("agent.message", {"text": "Two."}),
        metadata={
            "tools": [{"name": "search", "annotations": {"readOnlyHint": True}}],
            "view_context": {"tab": "deals"},
        },
    )
    with app.app_context(), acting_as(admin), transaction():
        knowledge_rows.edit_row(row_id, {"content": "Use FY."}, 1, actor=admin)
        knowledge_rows.set_state(later.id, "inactive", actor=admin, reason="Old.")
    kept = promote(app, admin, session_id, set_name="pe-analyst", note="  Good. ")
    snapshot = kept["snapshot"]
    assert snapshot["turns"] == ["First", "Second"]
    assert snapshot["initial_message"] == "First"
    assert [(one["content"], one["version"]) for one in snapshot["shared_context"]["rows"]] == [("Use LTM.", 1)]
    assert snapshot["tools"][0]["name"] == "search"
    assert snapshot["view_context"] == {"tab": "deals"}
    assert snapshot["agent"]["slug"] == "deal-analyst"
    assert kept["sha256"] == snapshot_hash(snapshot)
    assert (kept["set"], kept["note"], kept["promoted_by"]) == ("pe-analyst", "Good.", str(admin.id))
    with app.app_context(), acting_as(admin):
        actions = db.session.scalars(select(AuditEntry.action).where(AuditEntry.subject_id == session_id)).all()
        stored = db.session.get_one(AgentSession, session_id).meta["golden"]
    assert actions.count("session.promoted") == 1
    assert snapshot_hash(stored["snapshot"]) == stored["sha256"]


@pytest.mark.parametrize("status", ["running", "failed", "cancelled", "pending"])
def test_only_a_completed_session_becomes_golden(app: Flask, workspace: Workspace, status: str) -> None:
    session_id = ran(app, workspace.actor(), status=status)
    with pytest.raises(Refused, match=status):
        promote(app, workspace.actor(), session_id)


def test_what_cannot_be_promoted_is_refused_with_a_reason(app: Flask, workspace: Workspace) -> None:
    admin, session_id = workspace.actor(), ran(app, workspace.actor())
    silent = ran(app, admin, NewEvent("agent.message", {"text": "Hm."}))
    wrong: list[tuple[type[Problem], UUID, dict[str, Any]]] = [
        (Unprocessable, silent, {}),
        (NotFound, uuid4(), {}),
        (Invalid, session_id, {"set_name": "No Slug"}),
        (Invalid, session_id, {"set_name": "x" * 61}),
        (Invalid, session_id, {"note": "x" * 2001}),
        (Invalid, session_id, {"criteria_set_id": uuid4()}),
        (Invalid, session_id, {"expected": {"nonsense": 1}}),
        (Invalid, session_id, {"expected": {"answer": "Yes."}, "recorded_is_right": True}),
    ]
    for problem, which, given in wrong:
        with pytest.raises(problem):
            promote(app, admin, which, **given)
    with pytest.raises(Forbidden):
        promote(app, workspace.actor("member"), session_id)
    promote(app, admin, session_id, set_name="x" * 60)
    with pytest.raises(Refused, match="already golden"):
        promote(app, admin, session_id)


def test_a_session_that_was_complained_about_says_so_unless_it_is_put_right(app: Flask, workspace: Workspace) -> None:
    admin, member = workspace.actor(), workspace.actor("member")
    plain, right, put_right = (ran(app, admin) for _ in range(3))
    for session_id in (plain, right, put_right):
        complain(app, member, session_id)
    assert promote(app, admin, plain)["baseline_rejected"] is True
    assert "baseline_rejected" not in promote(app, admin, right, recorded_is_right=True)
    kept = promote(app, admin, put_right, expected={"mentions": ["LTM"]})
    assert kept["expected"] == {"mentions": ["LTM"]}
    assert "baseline_rejected" not in kept


def test_a_golden_is_renamed_annotated_and_revoked_and_nothing_else(app: Flask, workspace: Workspace) -> None:
    admin, session_id = workspace.actor(), ran(app, workspace.actor())
    before = promote(app, admin, session_id)
    with app.app_context():
        with acting_as(admin), transaction():
            after = eval_golden.edit_golden(session_id, {"set": "smoke", "note": "Short."}, actor=admin)
        assert (after["set"], after["note"], after["sha256"]) == ("smoke", "Short.", before["sha256"])
        with acting_as(admin):
            assert [(one.name, one.sessions) for one in eval_golden.list_sets(actor=admin)] == [("smoke", 1)]
        for refused in (
            lambda: session_store.append_events(session_id, [NewEvent("agent.message", {"text": "x"})], actor=admin),
            lambda: session_lists.delete_sessions([session_id], actor=admin),
        ):
            with pytest.raises(Refused, match="golden"), acting_as(admin), transaction():
                refused()
        with acting_as(admin), transaction():
            assert eval_golden.rename_set("smoke", "chat-smoke", actor=admin) == 1
        with acting_as(admin), transaction():
            assert eval_golden.revoke_golden(session_id, actor=admin)
        with acting_as(admin), transaction():
            assert not eval_golden.revoke_golden(session_id, actor=admin)
            session_lists.delete_sessions([session_id], actor=admin)


def test_promoting_applies_the_feedback_in_the_same_transaction(app: Flask, workspace: Workspace) -> None:
    admin, session_id = workspace.actor(), ran(app, workspace.actor())
    rows = [complain(app, workspace.actor(who), session_id) for who in ("member", "other")]
    promote(app, admin, session_id, feedback_ids=rows)
    with app.app_context(), acting_as(admin):
        found = db.session.execute(
            select(Feedback.status, Feedback.outcome, Feedback.reviewed_by_user_id).where(Feedback.id.in_(rows))
        ).all()
    assert {(row.status, row.outcome["kind"], row.outcome["id"]) for row in found} == {
        ("applied", "golden", str(session_id))
    }
    assert {row.reviewed_by_user_id for row in found} == {admin.id}


def test_candidates_are_grouped_by_agent_and_first_request(
    app: Flask, workspace: Workspace, count_queries: Callable[[], Any]
) -> None:
    admin, member, other = (workspace.actor(role) for role in ("admin", "member", "other"))
    first = ran(app, admin)
    second = ran(app, admin, NewEvent("user.message", {"text": "  compare  KESTREL and\nbluefin "}))
    rows = [complain(app, member, first), complain(app, other, second)]
    lone = ran(app, admin, NewEvent("user.message", {"text": "List contacts"}))
    complain(app, member, lone)
    silent = ran(app, admin, NewEvent("agent.message", {"text": "Hm."}))
    complain(app, member, silent)
    settled = ran(app, admin)
    done = complain(app, member, settled)
    with app.app_context(), acting_as(admin), transaction():
        feedback_review.review([done], "reviewed", actor=admin)
    complain(app, member, first, source="tool", context={"tool_slug": "search"})
    with app.app_context(), acting_as(admin), count_queries() as seen:
        listed = candidates.list_candidates(actor=admin)
        found, total = listed.items, listed.count
    assert len(seen) == 2
    assert total == 2
    assert [(one.occurrence_count, one.agent_slug) for one in found] == [(2, "deal-analyst"), (1, "deal-analyst")]
    assert set(found[0].feedback_ids) == set(rows)
    assert found[0].representative_session_id == second
    with app.app_context(), acting_as(admin):
        assert len(candidates.list_candidates(actor=admin, limit=1).items) == 1
        with pytest.raises(Forbidden):
            candidates.list_candidates(actor=member)


def test_of_twenty_admins_one_settles_a_group(app: Flask, workspace: Workspace) -> None:
    admin, member = workspace.actor(), workspace.actor("member")
    session_id = ran(app, admin)
    rows = [complain(app, workspace.actor(who), session_id) for who in ("member", "other")]

    def settle(turn: int) -> int:
        with app.app_context(), acting_as(admin), transaction():
            action = "applied" if turn % 2 else "dismissed"
            return len(candidates.resolve_group(rows, action, actor=admin))

    with ThreadPoolExecutor(8) as pool:
        moved = sorted(pool.map(settle, range(20)))
    assert moved == [0] * 19 + [2]
    assert len(status_of(app, admin, rows)) == 1
    with app.app_context(), acting_as(admin), transaction():
        assert candidates.resolve_group([], "dismissed", actor=admin) == []
        with pytest.raises(Invalid):
            candidates.resolve_group([uuid4() for _ in range(201)], "dismissed", actor=admin)
        with pytest.raises(Invalid):
            candidates.resolve_group(rows, "reviewed", actor=admin)
    with pytest.raises(Forbidden), app.app_context(), acting_as(member), transaction():
        candidates.resolve_group(rows, "dismissed", actor=member)


def test_of_twenty_who_promote_one_session_one_wins(app: Flask, workspace: Workspace) -> None:
    admin, session_id = workspace.actor(), ran(app, workspace.actor())

    def attempt(turn: int) -> str:
        try:
            promote(app, admin, session_id, set_name=f"set-{turn}")
        except Refused:
            return "refused"
        return "promoted"

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(attempt, range(20))) == ["promoted"] + ["refused"] * 19
