"""A review without a model: what becomes of feedback, and what the server never lets a review do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.models import AuditEntry, Feedback, KnowledgeProof, SessionEvent, SharedContext, SharedContextFeedback
from app.services.knowledge import lists as knowledge_lists
from app.services.knowledge import rows as knowledge_rows
from app.services.review import batch, patterns, runs
from app.services.workspaces import store as workspace_store
from tests.conftest import soup
from tests.review.conftest import WRONG, Desk

KINDS = ("fiscal-year", "ltm")


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


def test_a_pattern_and_its_rows_say_why_they_wait(desk: Desk, sign_in: Any) -> None:
    same = [desk.complain("member", "The leverage is wrong."), desk.complain("other", "The leverage is wrong again.")]
    assert (desk.review().proposed, desk.statuses(*same)) == ([], ["pending", "pending"])
    with acting_as(desk.admin):
        home = patterns.patterns_of(same, actor=desk.admin)[same[0]]
    client, why = sign_in(desk.admin), "None of these says what to do instead."
    assert why in soup(client.get(f"/admin/agent-review/patterns/{home}")).text
    assert why in soup(client.get(f"/admin/agent-review/feedback/{same[0]}")).text


@pytest.mark.parametrize("decided", ["active", "inactive"])
def test_feedback_gets_its_status_back_when_a_decision_is_undone(desk: Desk, decided: str) -> None:
    same = [desk.complain("member", WRONG), desk.complain("other", WRONG)]
    desk.review()
    [rule] = desk.rules()
    unread = desk.complain("owner", WRONG)
    with acting_as(desk.admin):
        homes = patterns.patterns_of(same, actor=desk.admin)
        with transaction():
            knowledge_rows.link_signals(db.session.get_one(SharedContext, rule.id), [unread])
    for work in (
        lambda: knowledge_rows.set_state(rule.id, decided, actor=desk.admin),
        lambda: knowledge_rows.reopen_row(rule.id, actor=desk.admin),
    ):
        with acting_as(desk.admin), transaction():
            work()
    assert desk.statuses(*same, unread) == ["reviewed", "reviewed", "pending"]
    again = desk.review()
    assert (again.considered, len(desk.rules())) == (0, 1), "it waits for the decision"
    with acting_as(desk.admin):
        assert patterns.patterns_of(same, actor=desk.admin) == homes


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


def test_single_signals_wait_as_long_as_the_workspace_says(desk: Desk) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=20)
    old = desk.complain("member", "The chart has no legend, please add one.", occurred_at=long_ago)
    with acting_as(desk.admin), transaction():
        workspace_store.change_settings({"review_wait_days": 30}, actor=desk.admin)
    desk.review()
    assert desk.statuses(old) == ["pending"]
    with acting_as(desk.admin), transaction():
        workspace_store.change_settings({"review_wait_days": 7}, actor=desk.admin)
    with acting_as(desk.admin):
        assert not runs.is_unchanged(actor=desk.admin), "it has waited long enough now"
    review = desk.review()
    assert (desk.statuses(old), review.dismissed) == (["dismissed"], 1)
    with acting_as(desk.admin):
        assert "second signal" in (db.session.get_one(Feedback, old).review_notes or "").lower()


def test_retried_extractions_are_a_pattern_too(desk: Desk) -> None:
    more = {
        "kind": "extraction_rejection", "source_type": "extraction", "status": "applied",
        "context": {"field_name": "ebitda", "rejected_value": "41", "retry_ref": "r"},
        "outcome": {"kind": "retry", "text": "extracted again"}, "agent": "extractor",
    }  # fmt: skip
    said = "EBITDA has to be the adjusted figure, not the reported one."
    rows = [desk.complain(role, said, asked="Extract EBITDA", answered="41", **more) for role in ("member", "other")]
    review = desk.review()
    [rule] = desk.rules()
    assert review.proposed == [rule.id]
    assert desk.statuses(*rows) == ["applied", "applied"], "their retry stays what came of them"
    again = desk.review()
    assert (again.total, again.proposed) == (0, []), "they are behind a rule now"


def test_a_failed_session_counts_beside_what_a_person_says(desk: Desk) -> None:
    system = desk.workspace.actor("system")
    said = desk.complain("member", "Call getEntity before you quote leverage; the search has no net debt.")
    failed = [
        desk.complain(
            "system",
            "getEntity failed: no net debt before leverage is quoted",
            kind="session_failure",
            origin="system",
            session_id=desk.session(system, "How leveraged is Kestrel?", ""),
        )
        for _ in range(2)
    ]
    review = desk.review()
    [rule] = desk.rules()
    assert (review.considered, review.proposed, rule.content) == (
        3, [rule.id], "Call getEntity before you quote leverage. The search has no net debt.",
    )  # fmt: skip
    assert desk.statuses(said, *failed) == ["reviewed"] * 3
    with acting_as(desk.admin):
        assert knowledge_lists.get_row(rule.id, actor=desk.admin).row.people == 1, "Upshot itself is nobody"


def test_a_replay_is_measured_by_what_its_golden_called(desk: Desk) -> None:
    system, asked = desk.workspace.actor("system"), "What is the EBITDA of Tern in the fiscal year?"
    golden, replay = (desk.session(system, asked, "It is 40.", called={"entityType": kind}) for kind in KINDS)
    about = {
        "golden_session_id": str(golden), "replay_session_ids": [str(replay)], "divergences": [],
        "agent_version_id": str(uuid4()), "context_mode": "frozen", "eval_run_id": str(uuid4()),
    }  # fmt: skip
    more = {"kind": "replay_failure", "origin": "system", "context": about, "session_id": replay}
    row = desk.complain("system", "Replay fails: the answer does not mention “21.3”.", **more)
    with acting_as(desk.admin):
        [signal] = batch.load_signals([row], actor=desk.admin)
    [expected] = signal.expected
    assert (expected.arguments, signal.calls[0].arguments) == ({"entityType": KINDS[0]}, {"entityType": KINDS[1]})


def test_where_proofs_decide_a_proposal_is_proved_at_once(desk: Desk) -> None:
    with acting_as(desk.admin), transaction():
        workspace_store.change_settings({"knowledge_gate": "proved"}, actor=desk.admin)
    desk.complain("member", WRONG), desk.complain("other", WRONG)
    review = desk.review()
    with acting_as(desk.admin):
        [proof] = db.session.query(KnowledgeProof)
        assert [proof.shared_context_id] == review.proposed
    assert [rule.state for rule in desk.rules()] == ["proposed"], "no golden exercises it"


def test_only_admins_open_the_session_of_a_review(desk: Desk, sign_in: Any) -> None:
    desk.complain("member", WRONG), desk.complain("other", WRONG)
    review = desk.review()
    path = f"/sessions/{review.session_id}"
    assert sign_in(desk.admin).get(path).status_code == 200
    member = sign_in(desk.workspace.actor("member"))
    assert member.get(path).status_code == 404
    assert "Feedback review" not in soup(member.get("/tasks")).text


def test_a_review_is_asked_for_and_followed_over_the_api(desk: Desk, api: Any, make_workspace: Any) -> None:
    desk.complain("member", WRONG), desk.complain("other", WRONG)
    admin = api(desk.admin)
    started = admin.post("/api/admin/review/runs", {})
    assert started.status_code == 202
    path = f"/api/admin/review/runs/{started.get_json()['id']}"
    assert admin.post("/api/admin/review/runs", {}).status_code == 409, "one at a time"
    assert admin.post("/api/admin/review/runs", {"dry_run": True}).status_code == 409
    for url, body in (
        ("/api/admin/webhooks?limit=abc", None),
        ("/api/admin/settings", {"review_cron": "0 0 30 2 *"}),
    ):
        refused = admin.patch(url, body) if body else admin.get(url)
        assert refused.status_code == 400
    assert admin.get(path).get_json()["status"] == "pending"
    desk.run_sessions()
    done = admin.get(path).get_json()
    assert (done["status"], done["considered"], len(done["proposed"]), done["refused"]) == ("completed", 2, 1, [])
    assert [one["id"] for one in admin.get("/api/admin/review/runs").get_json()["items"]] == [done["id"]]
    [pattern] = admin.get("/api/admin/patterns").get_json()["items"]
    assert (pattern["count"], pattern["proposal_state"]) == (2, "proposed")
    assert api(make_workspace().actor("admin")).get(path).status_code == 404
    assert api(desk.workspace.actor("member"), "feedback").get(path).status_code == 403


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ("Replay fails: the answer does not mention “net of cash”.", "Mention “net of cash” in the answer."),
        ("Replay fails: the answer does not mention “21.3”.", None),
        ("Replay fails: contact was not created.", "Make sure that the contact is created."),
        ("Replay fails: changed nothing, as before.", None),
    ],
)
def test_a_failed_replay_proposes_alone_where_what_was_missing_is_plain(
    desk: Desk, said: str, rule: str | None
) -> None:
    system, asked = desk.workspace.actor("system"), "What is the EBITDA of Tern?"
    golden, replay = (desk.session(system, asked, "It is 40.") for _ in range(2))
    about = {
        "golden_session_id": str(golden), "replay_session_ids": [str(replay)], "divergences": [],
        "agent_version_id": str(uuid4()), "context_mode": "frozen", "eval_run_id": str(uuid4()),
    }  # fmt: skip
    more = {"kind": "replay_failure", "origin": "system", "context": about, "session_id": replay}
    failed = desk.complain("system", said, **more)
    review = desk.review()
    assert review.status == "completed"
    assert [row.state for row in desk.rules()] == (["proposed"] if rule else [])
    assert all(rule in row.content for row in desk.rules() if rule)
    assert desk.statuses(failed) == ["reviewed" if rule else "pending"]
