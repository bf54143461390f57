"""Agents merged: all their work moves, old names lead to the new, goldens stay."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import func, select, update

from app.db import acting_as, db, transaction
from app.db.paging import Page
from app.errors import Forbidden, Invalid, NotFound, Refused
from app.models import Agent, AgentSession, AuditEntry, Chat, Feedback, SharedContext, SharedContextHistory
from app.services.agents import lists as agent_lists
from app.services.agents import merge, versions
from app.services.chats import store as chat_store
from app.services.feedback import intake as feedback_intake
from app.services.feedback.intake import NewFeedback
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from app.services.sessions import lists as session_lists
from app.services.sessions import store as session_store
from app.services.sessions.events import NewEvent
from app.services.sessions.lists import SessionFilters
from app.services.sessions.store import NewSession
from tests.conftest import golden_mark

pytestmark = pytest.mark.usefixtures("app_context")


def agent_called(slug: str, actor: Any) -> Agent:
    found = versions.find_agent(slug, actor=actor)
    assert found is not None
    return found


def work(actor: Any, slug: str) -> UUID:
    """A session, a chat and feedback under a slug; the agent's id."""
    session, _ = session_store.create_session(NewSession(agent=slug, title="Compare"), actor=actor)
    chat_store.create_chat(actor=actor, agent_slug=slug, title="A talk")
    feedback_intake.record_feedback(
        NewFeedback(source_type="session", rating="positive", session_id=session.id, comment="Good"), actor=actor
    )
    return session.agent_id


def rule(actor: Any, agent_id: UUID, content: str) -> UUID:
    return knowledge_rows.add_row(NewRow(type="lesson", content=content, agent_id=agent_id), actor=actor).id


def counted(model: Any, agent_id: UUID) -> int:
    return db.session.scalar(select(func.count()).select_from(model).where(model.agent_id == agent_id)) or 0


def test_a_merge_moves_everything_and_the_old_name_leads_on(workspace: Any) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        with transaction():
            typo, meant = work(actor, "deal-analist"), work(actor, "deal-analyst")
            moved_rule = rule(actor, typo, "Say the period.")
            twin, kept = rule(actor, typo, "Use LTM."), rule(actor, meant, "Use  ltm.")
        with transaction():
            assert merge.count_work(typo, actor=actor) == {
                "sessions": 1, "chats": 1, "feedback": 1, "responses": 0, "knowledge": 2, "golden": 0,
            }  # fmt: skip
            moved = merge.merge_agent(typo, meant, actor=actor)
        assert moved == {"sessions": 1, "chats": 1, "feedback": 1, "responses": 0, "knowledge": 2}
        for model in (AgentSession, Chat, Feedback, SharedContext):
            assert counted(model, typo) == 0, model
        assert counted(AgentSession, meant) == 2
        states = {row.id: (row.state, row.superseded_by) for row in db.session.scalars(select(SharedContext))}
        assert states == {moved_rule: ("active", None), kept: ("active", None), twin: ("superseded", kept)}
        actions = db.session.scalars(
            select(SharedContextHistory.action).where(SharedContextHistory.shared_context_id == moved_rule)
        )
        assert sorted(actions) == ["created", "edited"]
        retired = agent_called("deal-analist", actor)
        assert (retired.merged_into, retired.archived_at is not None) == (meant, True)
        assert "agent.merged" in db.session.scalars(select(AuditEntry.action).where(AuditEntry.subject_id == typo))

        with transaction():
            assert work(actor, "deal-analist") == meant
        found = session_lists.list_sessions(SessionFilters(agent="deal-analist"), Page(10), actor=actor)
        assert found.count == 3
        with transaction(), pytest.raises(Refused, match="already"):
            merge.merge_agent(typo, meant, actor=actor)


def test_following_a_name_is_always_one_step(workspace: Any) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        with transaction():
            first, second, third = (work(actor, slug) for slug in ("one", "two", "three"))
            merge.merge_agent(first, second, actor=actor)
            merge.merge_agent(second, third, actor=actor)
        with transaction():
            assert versions.ensure_agent("one", actor=actor).id == third
            assert versions.ensure_agent("two", actor=actor).id == third
        assert agent_lists.list_stats(actor=actor).items[0].other_names == ["one", "two"]


def test_a_golden_session_forbids_the_merge(workspace: Any) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        with transaction():
            typo, meant = work(actor, "typo"), work(actor, "meant")
            said = [NewEvent("user.message", {"text": "Hello"})]
            new = NewSession(agent="typo", title="Golden", status="completed", events=said)
            session_store.create_session(new, actor=actor)
        with transaction():
            db.session.execute(
                update(AgentSession)
                .where(AgentSession.agent_id == typo, AgentSession.status == "completed")
                .values(meta=golden_mark())
            )
        with pytest.raises(Refused, match="a golden session"), transaction():
            merge.merge_agent(typo, meant, actor=actor)
        assert counted(AgentSession, typo) == 2
        assert agent_called("typo", actor).merged_into is None


def test_what_cannot_be_merged_is_refused_with_a_reason(workspace: Any, make_workspace: Any) -> None:
    actor, member = workspace.actor(), workspace.actor("member")
    elsewhere = make_workspace().actor()
    with acting_as(elsewhere), transaction():
        foreign = work(elsewhere, "foreign")
    with acting_as(actor):
        with transaction():
            one, old = work(actor, "one"), work(actor, "old")
            versions.archive_agent(old, actor=actor)
        review = agent_called("feedback-review-agent", actor).id
        for source, target, error in (
            (one, one, Invalid), (one, review, Refused), (review, one, Refused), (one, old, Refused),
            (one, foreign, NotFound), (foreign, one, NotFound), (uuid4(), one, NotFound),
        ):  # fmt: skip
            with pytest.raises(error), transaction():
                merge.merge_agent(source, target, actor=actor)
        with transaction():
            merge.merge_agent(old, one, actor=actor)
    with acting_as(member), pytest.raises(Forbidden), transaction():
        merge.merge_agent(one, one, actor=member)
