"""The list of agents: what each did in thirty days, what it cost, how long it took and how it was received."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import update

from app.db import acting_as, db, transaction
from app.errors import NotFound
from app.models import AgentSession
from app.services.agents import lists as agent_lists
from app.services.agents import versions
from app.services.feedback import intake as feedback_intake
from app.services.feedback.intake import NewFeedback
from app.services.sessions import store as session_store
from app.services.sessions.store import NewSession

pytestmark = pytest.mark.usefixtures("app_context")


def ran(actor: Any, slug: str, *, days: int = 1, title: str = "Compare", **more: Any) -> UUID:
    at = datetime.now(UTC) - timedelta(days=days)
    new = NewSession(agent=slug, status="completed", created_at=at, started_at=at, finished_at=at, title=title, **more)
    return session_store.create_session(new, actor=actor)[0].agent_id


def rated(actor: Any, agent_id: UUID, rating: str, **more: Any) -> None:
    new = NewFeedback(source_type="observation", kind="flag", rating=rating, comment="x", agent_id=agent_id, **more)
    feedback_intake.record_feedback(new, actor=actor)


def test_figures_are_of_the_last_thirty_days(workspace: Any, count_queries: Any) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        with transaction():
            one = ran(actor, "one", cost=Decimal("0.25"), duration_ms=100, model="gpt")
            ran(actor, "one", cost=Decimal("0.75"), duration_ms=300, model="gpt")
            ran(actor, "one", duration_ms=800, model="other")
            ran(actor, "one", days=40, cost=Decimal("9"), duration_ms=9, model="old")
            ran(actor, "one", duration_ms=5, cost=Decimal("5"), title="A replay")
            replay = update(AgentSession).where(AgentSession.title == "A replay")
            db.session.execute(replay.values(meta={"eval_source": str(one)}))
            for rating in ("negative", "neutral", "positive", "positive"):
                rated(actor, one, rating)
            versions.ensure_agent("two", actor=actor, kind="builtin", config={"model": "offline"})
        with count_queries() as seen:
            found = agent_lists.list_stats(actor=actor)
        assert len(seen) == 1
        rows = {row.slug: row for row in found.items}
        assert list(rows) == ["one", "two", "feedback-review-agent"]
        first = rows["one"]
        assert (first.sessions, first.cost, first.costed, first.typical_ms) == (3, Decimal("1.00"), 2, 300)
        assert (first.reported_model, first.own_model, first.version) == ("gpt", None, 1)
        assert first.satisfaction == pytest.approx(2 / 4)
        assert first.active_at is not None
        second = rows["two"]
        assert (second.own_model, second.sessions, second.satisfaction, second.active_at) == ("offline", 0, None, None)
        assert second.runs_here
        assert not first.runs_here
        assert not rows["feedback-review-agent"].runs_here


def test_the_next_page_continues_the_list(workspace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        with transaction():
            for name in ("c", "a", "b"):
                versions.ensure_agent(name, actor=actor)
        monkeypatch.setattr(agent_lists, "PAGE_SIZE", 2)
        first = agent_lists.list_stats(actor=actor)
        assert [row.slug for row in first.items] == ["a", "b"]
        rest = agent_lists.list_stats(actor=actor, after=first.next_cursor or "")
        assert [row.slug for row in rest.items] == ["c", "feedback-review-agent"]
        assert rest.next_cursor is None
        assert agent_lists.list_stats(actor=actor, after="system:zzz").items == []


def test_archived_agents_stand_apart_and_other_workspaces_not_at_all(workspace: Any, make_workspace: Any) -> None:
    actor, elsewhere = workspace.actor(), make_workspace().actor()
    with acting_as(elsewhere), transaction():
        foreign = versions.ensure_agent("foreign", actor=elsewhere).id
    with acting_as(actor):
        with transaction():
            old = versions.ensure_agent("old", actor=actor).id
            versions.archive_agent(old, actor=actor)
        assert [row.slug for row in agent_lists.list_stats(actor=actor).items] == ["feedback-review-agent"]
        assert [row.slug for row in agent_lists.list_stats(actor=actor, archived=True).items] == ["old"]
        assert agent_lists.get_stats(old, actor=actor).archived_at is not None
        with pytest.raises(NotFound):
            agent_lists.get_stats(foreign, actor=actor)
