"""Back to an earlier version, one row instead of two, and nothing that nobody sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.errors import Forbidden, Invalid, NotFound, Refused, Stale
from app.models import AuditEntry, Feedback, SharedContext, SharedContextUsage
from app.services.feedback import review as feedback_review
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.knowledge import lists as knowledge_lists
from app.services.knowledge import proposals
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from tests.conftest import Workspace

pytestmark = [pytest.mark.usefixtures("app_context")]
UNSEEN = "State the per\u200biod."


@pytest.fixture
def admin(workspace: Workspace) -> Iterator[Any]:
    actor = workspace.actor("admin")
    with acting_as(actor):
        yield actor


def add(actor: Any, content: str, **more: Any) -> SharedContext:
    with transaction():
        return knowledge_rows.add_row(NewRow(**({"type": "correction", "content": content} | more)), actor=actor)


def say(actor: Any, comment: str) -> Any:
    with acting_as(actor), transaction():
        return record_feedback(NewFeedback(source_type="session", rating="negative", comment=comment), actor=actor).id


def roll(row: Any, to: int, version: int, actor: Any) -> SharedContext:
    with transaction():
        return knowledge_rows.roll_back(row.id, to, version, actor=actor)


def merge(row: Any, into: Any, actor: Any) -> SharedContext:
    with transaction():
        return knowledge_rows.merge_row(row.id, into.id, actor=actor)


def statuses(*ids: Any) -> list[str]:
    found = {row.id: row.status for row in db.session.scalars(select(Feedback).where(Feedback.id.in_(ids)))}
    return [found[one] for one in ids]


def test_rolling_back_is_one_more_version(admin: Any) -> None:
    row = add(admin, "First.", context="always", pinned=True)
    with transaction():
        knowledge_rows.edit_row(row.id, {"content": "Second.", "type": "lesson", "pinned": False}, 1, actor=admin)
        knowledge_rows.set_state(row.id, "inactive", actor=admin, reason="Outdated.")

    back = roll(row, 1, 3, admin)

    assert (back.content, back.type, back.pinned, back.state, back.version) == (
        "First.",
        "correction",
        True,
        "active",
        4,
    )
    steps = knowledge_lists.history_of(row.id, actor=admin)
    assert [(step.version, step.action, step.reason) for step in steps][:2] == [
        (4, "rolled_back", "Restored version 1."),
        (3, "inactive", "Outdated."),
    ]
    actions = db.session.scalars(select(AuditEntry.action).where(AuditEntry.subject_id == row.id)).all()
    assert sorted(actions) == ["knowledge.created", "knowledge.edited", "knowledge.inactive", "knowledge.rolled_back"]
    assert roll(row, 4, 4, admin).version == 4, "it is that already"


def test_rolling_back_is_refused_where_there_is_nothing_to_go_back_to(admin: Any, workspace: Workspace) -> None:
    row = add(admin, "First.")
    with pytest.raises(NotFound):
        roll(row, 7, 1, admin)
    with pytest.raises(Stale) as stale:
        roll(row, 1, 9, admin)
    assert stale.value.current["version"] == 1
    with pytest.raises(Forbidden):
        roll(row, 1, 1, workspace.actor("member"))
    with transaction():
        knowledge_rows.set_state(row.id, "deleted", actor=admin)
    with pytest.raises(Refused):
        roll(row, 1, 2, admin)


def test_a_proposal_does_not_become_active_by_rolling_back(admin: Any, workspace: Workspace) -> None:
    row = add(workspace.actor("member"), "First.")
    with transaction():
        knowledge_rows.edit_row(row.id, {"content": "Second."}, 1, actor=admin)
    assert (roll(row, 1, 2, admin).state, row.content) == ("proposed", "First.")


def test_merging_joins_the_signals_and_applies_them(admin: Any, workspace: Workspace) -> None:
    member, other = workspace.actor("member"), workspace.actor("other")
    one, two = say(member, "Last year again"), say(other, "Not the last fiscal year")
    target = add(admin, "Use LTM EBITDA.", feedback_ids=[one])
    proposal = add(workspace.actor("system"), "Do not use the last fiscal year.", feedback_ids=[one, two])

    merged = merge(proposal, target, admin)

    assert (merged.state, merged.superseded_by) == ("superseded", target.id)
    assert {signal.id for signal in knowledge_lists.get_row(target.id, actor=admin).signals} == {one, two}
    rows = db.session.scalars(select(Feedback).where(Feedback.id.in_([one, two]))).all()
    assert {(row.status, row.outcome["id"]) for row in rows} == {("applied", str(target.id))}
    again = NewRow(type="correction", content="Do not use the last fiscal year.")
    with pytest.raises(Refused, match="merged"), transaction():
        proposals.propose_row(again, actor=workspace.actor("system"))


@pytest.mark.parametrize(("state", "closed"), [("active", "applied"), ("inactive", "dismissed")])
def test_a_decision_about_a_proposal_is_taken_back_with_all_that_followed(
    admin: Any, workspace: Workspace, state: str, closed: str
) -> None:
    member = workspace.actor("member")
    mine, other = say(member, "Last year again"), say(member, "Something else")
    row = add(workspace.actor("system"), "Use LTM EBITDA.", feedback_ids=[mine, other])
    with transaction():
        feedback_review.review([other], "dismissed", actor=admin, notes="Not this.")
    with transaction():
        knowledge_rows.set_state(row.id, state, actor=admin, reason="Decided.")
    assert statuses(mine, other) == [closed, "dismissed"]

    with transaction():
        back = knowledge_rows.reopen_row(row.id, actor=admin)

    assert (back.state, back.active, back.version) == ("proposed", False, 3)
    assert statuses(mine, other) == ["pending", "dismissed"]
    with pytest.raises(Refused, match="last decision"), transaction():
        knowledge_rows.reopen_row(row.id, actor=admin)
    with transaction():
        knowledge_rows.set_state(row.id, "active", actor=admin)
        knowledge_rows.edit_row(row.id, {"content": "Use LTM EBITDA, always."}, None, actor=admin)
    with pytest.raises(Refused, match="last decision"), transaction():
        knowledge_rows.reopen_row(row.id, actor=admin)


def test_what_a_new_wording_replaced_comes_back_with_the_decision(admin: Any, workspace: Workspace) -> None:
    old = add(admin, "Use EBITDA.")
    with transaction():
        new = proposals.propose_edit(old.id, {"content": "Use LTM EBITDA."}, actor=admin)
    for _ in range(2):
        with transaction():
            knowledge_rows.set_state(new.id, "active", actor=admin)
        states = [knowledge_lists.get_row(one.id, actor=admin).row.state for one in (old, new)]
        assert states == ["superseded", "active"]
        with transaction():
            knowledge_rows.reopen_row(new.id, actor=admin)
        assert [knowledge_lists.get_row(one.id, actor=admin).row.state for one in (old, new)] == ["active", "proposed"]


def test_only_a_proposal_is_merged_and_only_into_an_active_row(admin: Any, workspace: Workspace) -> None:
    active, proposal = add(admin, "One."), add(workspace.actor("member"), "Two.")
    for row, into, error in ((active, proposal, Refused), (proposal, proposal, Invalid)):
        with pytest.raises(error):
            merge(row, into, admin)
    with transaction():
        knowledge_rows.set_state(active.id, "inactive", actor=admin, reason="Old.")
    with pytest.raises(Refused, match="inactive"):
        merge(proposal, active, admin)
    with pytest.raises(Forbidden):
        merge(proposal, active, workspace.actor("member"))


def test_what_nobody_sees_is_never_active(admin: Any, workspace: Workspace) -> None:
    with pytest.raises(Invalid, match="U\\+200B"):
        add(admin, UNSEEN)
    with pytest.raises(Invalid) as refused:
        add(admin, "Fine.", context="al\u202eways")
    assert list(refused.value.fields) == ["context"]
    row = add(admin, "State the period.")
    with pytest.raises(Invalid), transaction():
        knowledge_rows.edit_row(row.id, {"content": UNSEEN}, 1, actor=admin)
    with pytest.raises(Invalid, match="U\\+200B"):
        add(workspace.actor("member"), UNSEEN)
    add(admin, "Thumbs up 👍🏽 and families 👨‍👩‍👧 are fine.")


def test_an_edit_keeps_how_the_row_was_received(admin: Any) -> None:
    row, other = add(admin, "Received well."), add(admin, "Unknown.")
    with transaction():
        db.session.add(
            SharedContextUsage(tenant_id=admin.tenant_id, shared_context_id=row.id, injected=9, helpful=8, harmful=0)
        )
    with transaction():
        for one in (row, other):
            knowledge_rows.edit_row(one.id, {"content": one.content + " Really."}, 1, actor=admin)
    assert row.rank > other.rank + 0.3
