"""Runs with settings of a test's own, and what they leave behind."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import func, select

from app.db import acting_as, db, transaction
from app.logs import FORMAT, RedactingFormatter
from app.models import AgentSession, Feedback
from app.services.agents import versions
from tests.agents.running import Desk, Seen


@dataclass
class Outing:
    """A desk whose sessions run with settings of their own."""

    desk: Desk
    executor: Any
    monkeypatch: pytest.MonkeyPatch
    log: pytest.LogCaptureFixture
    viewer: Any

    def set(self, **settings: Any) -> None:
        self.monkeypatch.setattr(self.executor, "settings", replace(self.executor.settings, **settings))

    def agent(self, kind: str = "builtin", slug: str = "assistant", **config: Any) -> UUID:
        admin = self.desk.workspace.actor("admin")
        with self.desk.app.app_context(), acting_as(admin), transaction():
            return versions.ensure_agent(slug, actor=admin, kind=kind, config=config).id

    def ask(self, *turns: str, **more: Any) -> Seen:
        """Ask and run; what became of it. No lease is ever left behind."""
        asked = self.desk.ask(*turns, **more)
        self.executor.drain()
        seen = self.desk.look(asked)
        assert seen.session.lease_owner is None
        return seen

    def failed(self, *turns: str, **more: Any) -> str:
        """The reason why a session failed: said once in its events, in its error and in one feedback row."""
        seen = self.ask(*turns, **more)
        assert seen.session.status == "failed", seen.events
        (ended,) = seen.payloads("session.failed")
        assert ended["reason"] == seen.session.error
        assert self.rows(seen) == [seen.session.error]
        return str(seen.session.error)

    def rows(self, seen: Seen) -> list[str | None]:
        """The comments of the feedback on a session."""
        admin = self.desk.workspace.actor("admin")
        with self.desk.app.app_context(), acting_as(admin), transaction():
            return list(db.session.scalars(select(Feedback.comment).where(Feedback.session_id == seen.session.id)))

    def readable_text(self, seen: Seen) -> str:
        """Everything that can be read about a session: stored, logged, over the API and on its page."""
        found = [json.dumps(event.payload, default=str) for event in seen.events]
        found += [str(seen.session.error), json.dumps(self.rows(seen))]
        found += [RedactingFormatter(FORMAT).format(record) for record in self.log.records]
        for path in (f"/admin/sessions/{seen.session.id}", "/admin/feedback", "/admin/sessions"):
            found.append(self.viewer.get(path).get_data(as_text=True))
        return "\n".join(found)

    def count_held(self) -> int:
        """How many sessions of the workspace are still running or held by someone."""
        admin = self.desk.workspace.actor("admin")
        with self.desk.app.app_context(), acting_as(admin), transaction():
            mine = AgentSession.tenant_id == self.desk.workspace.id
            open_ones = (AgentSession.status == "running") | AgentSession.lease_owner.is_not(None)
            return db.session.scalar(select(func.count()).where(mine, open_ones)) or 0


@pytest.fixture
def outing(
    app: Flask,
    workspace: Any,
    executor: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    sign_in: Callable[..., Any],
) -> Outing:
    caplog.set_level(logging.DEBUG)
    return Outing(Desk(app, workspace), executor, monkeypatch, caplog, sign_in(workspace.actor("admin")))
