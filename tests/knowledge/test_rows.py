"""Knowledge: who may write what, edits that never overwrite each other, history that keeps everything."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select

from app.actor import Actor
from app.db import acting_as, db, transaction
from app.db.paging import Page
from app.errors import Forbidden, Invalid, NotFound, Refused, Stale
from app.models import Agent, AuditEntry, Feedback, SharedContext, SharedContextUsage
from app.models.knowledge import KNOWLEDGE_STATES
from app.services.agents import versions
from app.services.entities import store as entity_store
from app.services.feedback import review as feedback_review
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.knowledge import lists as knowledge_lists
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge import usage as knowledge_usage
from app.services.knowledge.lists import KnowledgeFilters
from app.services.knowledge.rows import FROM, NewRow

pytestmark = [pytest.mark.usefixtures("app_context"), pytest.mark.core]


def add(actor: Any, content: str, **more: Any) -> SharedContext:
    with transaction():
        return knowledge_rows.add_row(NewRow(**({"type": "correction", "content": content} | more)), actor=actor)


def test_an_admins_row_is_active_and_others_are_proposed(workspace: Any) -> None:
    admin, member, system = workspace.actor("admin"), workspace.actor("member"), workspace.actor("system")
    with acting_as(admin):
        agent_id = db.session.scalars(select(Agent.id).where(Agent.is_system)).one()
        review = Actor(system.id, workspace.id, "system", "Review", agent_id=agent_id)
        key = Actor(admin.id, workspace.id, "admin", scopes=frozenset({"admin"}))
        narrow = Actor(admin.id, workspace.id, "admin", scopes=frozenset({"context"}))
        states = {
            name: add(actor, f"From {name}").state
            for name, actor in (
                ("admin", admin), ("member", member), ("review", review), ("key", key), ("narrow", narrow)
            )
        }  # fmt: skip
        assert states == {
            "admin": "active", "member": "proposed", "review": "proposed", "key": "active", "narrow": "proposed",
        }  # fmt: skip
        written = db.session.scalars(select(SharedContext).where(SharedContext.content == "From review")).one()
        assert (written.created_by_agent_id, written.created_by_user_id, written.active) == (agent_id, None, False)


def test_an_edit_needs_the_version_it_was_made_on(workspace: Any) -> None:
    admin, owner = workspace.actor("admin"), workspace.actor("owner")
    with acting_as(admin):
        row = add(admin, "State the period.", context="quoting a multiple")
        with transaction():
            edited = knowledge_rows.edit_row(
                row.id, {"content": "State the period next to every multiple."}, 1, actor=owner, reason="Tables too"
            )
        assert (edited.version, edited.context) == (2, "quoting a multiple")
        with pytest.raises(Stale) as stale, transaction():
            knowledge_rows.edit_row(row.id, {"content": "Something else"}, 1, actor=admin)
        assert stale.value.current["content"] == "State the period next to every multiple."
        with transaction():
            same = knowledge_rows.edit_row(
                row.id, {"content": "State the period next to every multiple."}, 2, actor=admin
            )
        assert same.version == 2, "nothing changed, nothing noted"
        history = knowledge_lists.history_of(row.id, actor=admin)
        assert [(item.version, item.action, item.author, item.reason) for item in history] == [
            (2, "edited", owner.name, "Tables too"),
            (1, "created", admin.name, None),
        ]
        assert (history[0].before["content"], history[0].after["content"]) == (
            "State the period.",
            "State the period next to every multiple.",
        )
        actions = db.session.scalars(select(AuditEntry.action).where(AuditEntry.subject_id == row.id)).all()
        assert sorted(actions) == ["knowledge.created", "knowledge.edited"]


def test_of_two_editors_one_wins(app: Any, workspace: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        row_id = add(admin, "First words").id
    answers: list[str] = []

    def edit(words: str) -> None:
        with app.app_context(), acting_as(admin):
            try:
                with transaction():
                    knowledge_rows.edit_row(row_id, {"content": words}, 1, actor=admin)
                answers.append("saved")
            except Stale:
                answers.append("stale")

    editors = [threading.Thread(target=edit, args=(f"Words {number}",)) for number in range(4)]
    for editor in editors:
        editor.start()
    for editor in editors:
        editor.join(timeout=120)
    assert sorted(answers) == ["saved", "stale", "stale", "stale"]


def test_every_pair_of_states(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    paths = {
        "proposed": [], "active": ["active"], "inactive": ["active", "inactive"],
        "superseded": ["active", "superseded"], "deleted": ["deleted"],
    }  # fmt: skip
    with acting_as(admin):
        heir = add(admin, "The heir")

        def go(row: Any, state: str) -> None:
            more = {"superseded_by": heir.id} if state == "superseded" else {}
            with transaction():
                knowledge_rows.set_state(row.id, state, actor=admin, reason="Because.", **more)

        for number, (start, steps) in enumerate(paths.items()):
            for target in KNOWLEDGE_STATES:
                row = add(member, f"Rule {number} to {target}")
                for step in steps:
                    go(row, step)
                if target == start or start in FROM[target]:
                    go(row, target)
                    found = knowledge_lists.get_row(row.id, actor=admin).row
                    assert found.state == target
                    assert row.active == (target == "active")
                    assert (found.superseded_by == heir.id) == (target == "superseded")
                else:
                    with pytest.raises(Refused, match=start):
                        go(row, target)


def test_states_need_their_reasons_and_an_admin(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        row = add(admin, "A rule")
        with pytest.raises(Invalid, match="reason"), transaction():
            knowledge_rows.set_state(row.id, "inactive", actor=admin)
        for heir in (None, row.id):
            with pytest.raises(Invalid, match="superseded_by"), transaction():
                knowledge_rows.set_state(row.id, "superseded", actor=admin, superseded_by=heir)
        with pytest.raises(NotFound), transaction():
            knowledge_rows.set_state(row.id, "superseded", actor=admin, superseded_by=uuid4())
        with pytest.raises(Stale), transaction():
            knowledge_rows.set_state(row.id, "deleted", actor=admin, version=7)
        with pytest.raises(Forbidden), transaction():
            knowledge_rows.set_state(row.id, "deleted", actor=member)
        with pytest.raises(Forbidden), transaction():
            knowledge_rows.edit_row(row.id, {"content": "x"}, 1, actor=member)
        with pytest.raises(NotFound), transaction():
            knowledge_rows.edit_row(uuid4(), {"content": "x"}, 1, actor=admin)


def test_two_active_rows_do_not_say_the_same(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        with transaction():
            agent = versions.ensure_agent("deal-analyst", actor=admin)
        add(admin, "Use LTM  EBITDA.")
        with pytest.raises(Refused, match="has the same text"):
            add(admin, " use ltm ebitda. ")
        add(admin, "Use LTM EBITDA.", agent_id=agent.id)
        add(admin, "Use LTM EBITDA.", type="lesson")
        waiting = add(member, "Use LTM EBITDA.")
        with pytest.raises(Refused, match="has the same text"), transaction():
            knowledge_rows.set_state(waiting.id, "active", actor=admin)
        other = add(admin, "Something else")
        with pytest.raises(Refused, match="has the same text"), transaction():
            knowledge_rows.edit_row(other.id, {"content": "USE LTM EBITDA."}, 1, actor=admin)


def test_what_does_not_fit_is_refused(make_workspace: Any) -> None:
    here, there = make_workspace(), make_workspace()
    with acting_as(there.actor("admin")), transaction():
        foreign = versions.ensure_agent("theirs", actor=there.actor("admin")).id
    admin = here.actor("admin")
    with acting_as(admin):
        wrong: list[tuple[str, dict[str, Any]]] = [
            ("content", {"content": "   "}),
            ("content", {"content": "x" * 2001}),
            ("context", {"context": "x" * 501}),
            ("type", {"type": "rumour"}),
            ("agent", {"agent_id": foreign}),
            ("agent", {"agent_id": uuid4()}),
            ("entity type", {"entity_type_id": uuid4()}),
            ("feedback", {"source_feedback_id": uuid4()}),
        ]
        for match, values in wrong:
            with pytest.raises(Invalid, match=match):
                add(admin, **({"content": "A rule"} | values))
        row = add(admin, "A rule")
        with pytest.raises(Invalid, match="state"), transaction():
            knowledge_rows.edit_row(row.id, {"state": "deleted"}, 1, actor=admin)


def test_rows_know_their_signals(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    ids = []
    for actor in (admin, member):
        with acting_as(actor), transaction():
            new = NewFeedback(source_type="session", rating="negative", comment=f"By {actor.name}")
            ids.append(record_feedback(new, actor=actor).id)
    with acting_as(admin):
        row = add(admin, "Use LTM EBITDA.", source_feedback_id=ids[1], feedback_ids=ids)
        detail = knowledge_lists.get_row(row.id, actor=admin)
        assert (detail.row.signals, detail.row.people, detail.row.source_feedback_id) == (2, 2, ids[1])
        assert {signal.author for signal in detail.signals} == {admin.name, member.name}


def test_archiving_an_agent_retires_what_was_its_own(workspace: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        with transaction():
            agent = versions.ensure_agent("old-one", actor=admin)
            kind = entity_store.create_type(slug="deal", name="Deal", fields={}, actor=admin)
        own, common = add(admin, "Only here", agent_id=agent.id), add(admin, "Everywhere")
        of_type = add(admin, "For deals", entity_type_id=kind.id)
        with transaction():
            versions.archive_agent(agent.id, actor=admin)
            entity_store.archive_type(kind.id, actor=admin)
        states = {row.id: knowledge_lists.get_row(row.id, actor=admin).row.state for row in (own, common, of_type)}
        assert states == {own.id: "inactive", common.id: "active", of_type.id: "inactive"}
        with pytest.raises(Refused, match="already archived"), transaction():
            versions.archive_agent(agent.id, actor=admin)
        with pytest.raises(Invalid, match="no agent"):
            add(admin, "Too late", agent_id=agent.id)


def test_the_list_filters_searches_and_counts(workspace: Any, count_queries: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        with transaction():
            agent = versions.ensure_agent("deal-analyst", actor=admin)
            kind = entity_store.create_type(slug="deal", name="Deal", fields={}, actor=admin)
        old = datetime.now(UTC) - timedelta(days=180)
        add(admin, "Alpha covenant", created_at=old)
        add(admin, "Beta", agent_id=agent.id, type="lesson")
        add(admin, "Gamma", entity_type_id=kind.id, type="routing")
        add(admin, "Delta", agent_id=agent.id, entity_type_id=kind.id, pinned=True)
        add(member, "Epsilon", type="insight")
        gone = add(admin, "Zeta")
        with transaction():
            knowledge_rows.set_state(gone.id, "deleted", actor=admin, reason="Wrong.")

        def found(**args: str) -> set[str]:
            page = knowledge_lists.list_rows(KnowledgeFilters.from_args(args), Page(), actor=admin)
            return {row.content.split()[0] for row in page.items}

        assert found() == {"Alpha", "Beta", "Gamma", "Delta", "Epsilon"}
        assert found(state="deleted") == {"Zeta"}
        assert found(state="proposed") == found(type="insight") == {"Epsilon"}
        assert found(scope="workspace") == {"Alpha", "Epsilon"}
        assert found(scope="agent") == {"Beta"}
        assert found(scope="entity_type") == {"Gamma"}
        assert found(scope="both") == {"Delta"}
        assert found(agent="deal-analyst") == {"Beta", "Delta"}
        assert found(entity_type="deal") == {"Gamma", "Delta"}
        assert found(q="covenants") == {"Alpha"}
        with count_queries() as seen:
            page = knowledge_lists.list_rows(KnowledgeFilters.from_args({"q": "delta"}), Page(), actor=admin)
        assert len(seen) <= 4
        assert (page.items[0].scope, page.items[0].agent, page.items[0].entity_type) == ("both", "deal-analyst", "deal")
        rows = knowledge_lists.list_rows(KnowledgeFilters(), Page(), actor=admin).items
        ranks = {row.content.split()[0]: round(row.rank, 2) for row in rows}
        assert (ranks["Alpha"], ranks["Beta"], ranks["Delta"]) == (0.25, 1.0, 3.0)
        counts = knowledge_lists.count_rows(admin)
        assert counts == {"correction": 2, "lesson": 1, "routing": 1, "proposed": 1}


def test_usage_adds_up(workspace: Any) -> None:
    admin = workspace.actor("admin")
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
    with acting_as(admin):
        row = add(admin, "Used a lot")
        for number, moment in ((3, late), (2, early)):
            with transaction():
                knowledge_usage.note_injections({row.id: (number, moment)}, actor=admin)
        found = db.session.scalars(select(SharedContextUsage)).one()
        assert (found.injected, found.last_injected_at) == (5, late)


def test_deciding_about_a_proposal_decides_about_the_feedback_behind_it(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        with transaction():
            said = [
                record_feedback(
                    NewFeedback(kind="signal", signal="inaccurate", message_id=f"k-{n}", comment=f"Wrong basis {n}"),
                    actor=admin,
                ).id
                for n in range(4)
            ]
            feedback_review.review(said[:1], "reviewed", actor=admin)
            feedback_review.review(said[3:], "dismissed", actor=admin, notes="Once only")
        approved = add(member, "Use the right basis.", feedback_ids=[said[0], said[3]])
        rejected = add(member, "Never use a basis.", feedback_ids=said[1:3])
        rival = add(member, "Ask for the basis.", feedback_ids=said[2:3])
        with transaction():
            knowledge_rows.set_state(approved.id, "active", actor=admin)
            knowledge_rows.set_state(rejected.id, "inactive", actor=admin, reason="Too strict")
        rows = {row.id: row for row in db.session.scalars(select(Feedback).where(Feedback.id.in_(said)))}
        assert [rows[row_id].status for row_id in said] == ["applied", "dismissed", "pending", "dismissed"]
        assert rows[said[0]].outcome == {
            "kind": "knowledge", "id": str(approved.id), "text": "Use the right basis.",
        }  # fmt: skip
        assert rows[said[1]].review_notes == "The rule made of it was rejected: Too strict"
        assert (rows[said[3]].review_notes, rows[said[3]].outcome) == ("Once only", {})
        with transaction():
            knowledge_rows.set_state(rival.id, "deleted", actor=admin)
        assert rows[said[2]].status == "dismissed"
        assert rows[said[2]].review_notes == "The rule made of it was rejected."
