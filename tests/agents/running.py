"""Agents that run here, what is asked of them, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from flask import Flask

from app.db import acting_as, transaction
from app.models import AgentSession
from app.services.agents import versions
from app.services.sessions import start as session_start
from app.services.sessions import store as session_store
from app.services.sessions.event_windows import Event, events_of


@dataclass(frozen=True)
class Seen:
    """A session and its events."""

    session: AgentSession
    events: list[Event]

    @property
    def types(self) -> list[str]:
        return [event.event_type for event in self.events]

    def payloads(self, event_type: str) -> list[dict[str, Any]]:
        return [event.payload for event in self.events if event.event_type == event_type]


class Desk:
    """One workspace of a test."""

    def __init__(self, app: Flask, workspace: Any) -> None:
        self.app = app
        self.workspace = workspace

    def agent(self, slug: str = "assistant", **config: Any) -> UUID:
        """An agent of the workspace, made or saved again as configured."""
        admin = self.workspace.actor("admin")
        with self.app.app_context(), acting_as(admin), transaction():
            known = versions.find_agent(slug, actor=admin)
            if known is not None:
                versions.save_version(known.id, config, actor=admin)
                return known.id
            return versions.ensure_agent(slug, actor=admin, kind="builtin", config=config).id

    def ask(self, *turns: str, agent: str = "assistant", by: str = "member", **more: Any) -> UUID:
        actor = self.workspace.actor(by)
        with self.app.app_context(), acting_as(actor), transaction():
            return session_start.start_run(agent, turns, actor=actor, **more).id

    def stop(self, session_id: UUID) -> None:
        actor = self.workspace.actor("admin")
        with self.app.app_context(), acting_as(actor), transaction():
            session_start.stop_run(session_id, actor=actor)

    def look(self, session_id: UUID) -> Seen:
        actor = self.workspace.actor("admin")
        with self.app.app_context(), acting_as(actor), transaction():
            return Seen(session_store.get_session(session_id, actor=actor).session, events_of(session_id, actor=actor))
