"""A workspace with an agent whose work people complain about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from app.db import acting_as, db, transaction
from app.models import Feedback, SharedContext
from app.services.agents import edit as agent_edit
from app.services.agents import versions
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.review import runs
from app.services.review.runs import Review
from app.services.sessions.events import NewEvent
from app.services.sessions.store import NewSession, create_session

WRONG = "Quote leverage on net debt, not on gross debt."


class Desk:
    """A workspace in which people complain and reviews run."""

    def __init__(self, workspace: Any, run_sessions: Callable[[], int]) -> None:
        self.workspace = workspace
        self.admin = workspace.actor("admin")
        self.run_sessions = run_sessions

    def session(
        self, person: Any, asked: str, answered: str, agent: str = "deal-analyst", called: dict[str, str] | None = None
    ) -> UUID:
        events = [
            NewEvent("user.message", {"text": asked}),
            NewEvent("tool.call", {"id": "1", "name": "getEntity", "arguments": called or {"id": "d-1"}}),
            NewEvent("tool.result", {"call_id": "1", "name": "getEntity", "output": {"net_debt": 40}}),
            NewEvent("agent.message", {"text": answered}),
        ]
        new = NewSession(agent=agent, status="completed", external_id=uuid4().hex, events=events)
        with acting_as(person), transaction():
            return create_session(new, actor=person)[0].id

    def complain(self, role: str, comment: str | None, **more: Any) -> UUID:
        """Feedback about a session of its own."""
        person = self.workspace.actor(role)
        asked = more.pop("asked", "How leveraged is Kestrel?")
        answered, agent = more.pop("answered", "Leverage is 5.1x on gross debt."), more.pop("agent", "deal-analyst")
        about = more.pop("session_id", None) or self.session(person, asked, answered, agent)
        new = NewFeedback(source_type="session", rating="negative", comment=comment, session_id=about)
        with acting_as(person), transaction():
            return record_feedback(replace(new, **more), actor=person).row.id

    def review(self, **more: Any) -> Review:
        """Ask for a review and carry it out."""
        with acting_as(self.admin), transaction():
            session_id = runs.start_review(actor=self.admin, **more)
        self.run_sessions()
        return self.of(session_id)

    def limits(self, **limits: int) -> None:
        """Give the review agent other limits."""
        with acting_as(self.admin), transaction():
            agent = versions.resolve_agent("feedback-review-agent", actor=self.admin)
            number = agent.current_version
            agent_edit.edit_agent(agent.id, {"limits": limits}, version=number, actor=self.admin)

    def of(self, session_id: UUID) -> Review:
        with acting_as(self.admin):
            return runs.get_review(session_id, actor=self.admin)

    def statuses(self, *ids: UUID) -> list[str]:
        with acting_as(self.admin):
            return [db.session.get_one(Feedback, id, populate_existing=True).status for id in ids]

    def rules(self) -> list[SharedContext]:
        with acting_as(self.admin):
            rows = list(db.session.query(SharedContext).order_by(SharedContext.created_at).populate_existing())
            db.session.expunge_all()
            return rows


@pytest.fixture
def desk(app_context: None, workspace: Any, run_sessions: Callable[[], int]) -> Desk:
    return Desk(workspace, run_sessions)
