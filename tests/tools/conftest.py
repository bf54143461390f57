"""A workspace with an agent, a kind of record and a criteria set, for tests of what agents may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest
from flask import Flask

from app.actor import Actor
from app.db import acting_as, transaction
from app.services.agents import versions
from app.services.entities import criteria as criteria_store
from app.services.entities import store as entity_store
from app.services.feedback import intake as feedback_intake
from app.tools import Outcome, ToolScope, find_tool, run_tool
from tests.conftest import Workspace


@dataclass(frozen=True)
class Bench:
    """Runs tools for the people of a workspace and for an agent of it."""

    app: Flask
    workspace: Workspace
    agent_id: UUID
    entity_id: UUID
    criteria_set_id: UUID
    type_id: UUID

    def actor(self, role: str = "admin") -> Actor:
        found: Actor = self.workspace.actor(role)
        return found

    def agent(self, role: str = "system") -> Actor:
        """The agent at work, for someone."""
        return replace(self.actor(role), agent_id=self.agent_id)

    def run(self, name: str, arguments: Any = None, *, actor: Actor | None = None, **scope: Any) -> Outcome:
        who = actor or self.agent()
        given = {"agent_id": who.agent_id, "call_id": "call-1", **scope}
        with self.app.app_context():
            return run_tool(find_tool(name), arguments or {}, ToolScope(actor=who, **given))

    def ok(self, name: str, arguments: Any = None, **more: Any) -> Any:
        outcome = self.run(name, arguments, **more)
        assert not outcome.is_error, outcome.output
        return outcome.output

    def refused(self, name: str, arguments: Any = None, **more: Any) -> str:
        outcome = self.run(name, arguments, **more)
        assert outcome.is_error, outcome.output
        assert not outcome.events
        return str(outcome.output)

    def within(self, work: Callable[[], Any], role: str = "admin") -> Any:
        """Do something as a person, in a transaction of its own."""
        with self.app.app_context(), acting_as(self.actor(role)), transaction():
            return work()

    def feedback(self, role: str = "member", comment: str = "Used last year's EBITDA") -> UUID:
        new = feedback_intake.NewFeedback(
            source_type="observation", rating="negative", comment=comment, agent_id=self.agent_id, kind="comment"
        )
        found: UUID = self.within(lambda: feedback_intake.record_feedback(new, actor=self.actor(role)).id, role)
        return found


@pytest.fixture
def bench(app: Flask, workspace: Workspace) -> Bench:
    admin = workspace.actor("admin")
    with app.app_context(), acting_as(admin), transaction():
        agent = versions.ensure_agent(
            "deal-analyst", actor=admin, kind="builtin", config={"instructions": "Help.", "tool_groups": ["context"]}
        )
        kind = entity_store.create_type(
            slug="deal",
            name="Deal",
            fields={
                "valuation": {"type": "number"},
                "stage": {"type": "string", "enum": ["loi", "closed"]},
            },
            actor=admin,
        )
        entity = entity_store.create_entity(
            entity_type="deal", name="Project Kestrel", fields={"valuation": 430.0}, actor=admin
        )
        criteria = criteria_store.create_criteria_set(
            slug="terms",
            name="Terms",
            dimensions={"valuation": {"kind": "numeric"}, "stage": {"kind": "select"}},
            actor=admin,
        )
        return Bench(app, workspace, agent.id, entity.id, criteria.id, kind.id)
