"""A conversation of the demo, really held: the runtime answers, and what came of it is read back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from flask import current_app
from sqlalchemy import update

from app.agents.runtime import Run
from app.agents.threads import Threads
from app.config import Settings
from app.db import acting_as, db, transaction
from app.demo.goldens import date_failures, start
from app.demo.play import Held, held_of, keep_chat, keep_messages
from app.demo.recording import Names, Recorded
from app.demo.replayed import Replayed, recorded_case
from app.demo.talks import Talk
from app.demo.timeline import timed
from app.demo.world import World
from app.models import AgentSession, Entity, EntityResponse, SharedContext
from app.services.sessions import events as session_events
from app.services.sessions import store as session_store
from app.services.sessions.leases import Lease
from app.services.sessions.store import NewEvent, NewSession

OWNER = "demo record"
LONGEST_RUN = timedelta(minutes=5)


class Live:
    """Holds conversations one after the other, in the workspace of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.threads = Threads(current_app._get_current_object(), 2)  # type: ignore[attr-defined]
        self.settings: Settings = current_app.config["SETTINGS"]
        self.recorded: dict[str, Recorded] = {}
        self.replayed: dict[str, Replayed] = {}
        self._leases: dict[UUID, Lease] = {}

    def within(self) -> AbstractContextManager[Any]:
        return self._for_all()

    @contextmanager
    def _for_all(self) -> Iterator[None]:
        with acting_as(self.world.system), transaction():
            yield

    def reserve(self, session_id: UUID) -> None:
        """The session is ours before anybody else sees it, so that no worker takes it."""
        self._leases[session_id] = self._lease(db.session.get_one(AgentSession, session_id))

    def hold(self, talk: Talk) -> Held:
        """Ask the agent and let it answer every turn."""
        world = self.world
        with self.within():
            session, _ = session_store.create_session(
                NewSession(
                    agent=talk.agent,
                    agent_version=world.version(talk),
                    session_type=talk.fact("type", "chat"),
                    output_type=talk.facts.get("output"),
                    status="running",
                    entity_id=world.refs[f"record.{talk.facts['entity']}"] if "entity" in talk.facts else None,
                    person_id=world.people[talk.person].id,
                    metadata={"turns": [world.text(prompt) for prompt in talk.prompts]},
                ),
                actor=world.system,
            )
            self.reserve(session.id)
            if talk.fact("stopped"):
                session.cancel_requested_at = datetime.now(UTC)
        world.refs[f"session.{talk.key}"] = session.id
        recorded = self._run(session.id, talk.key, world.at(talk.when))
        self.recorded[talk.key] = recorded
        with self.within():
            return held_of(world, talk, session.id, recorded, self._messages(talk, session.id, recorded))

    def _messages(self, talk: Talk, session_id: UUID, recorded: Recorded) -> list[UUID]:
        """The chat of the session, so that people can speak about its messages."""
        moments, _ = timed(recorded.events, self.world.at(talk.when))
        told = Names(self.world, talk.key).resolved([payload for _, payload in recorded.events])
        kinds = [kind for kind, _ in recorded.events]
        session = db.session.get_one(AgentSession, session_id)
        chat = keep_chat(self.world, talk, moments[0])
        session.chat_id = chat.id if chat else None
        events = [NewEvent(*event) for event in zip(kinds, told, moments, strict=True)]
        return keep_messages(self.world, chat, session, events)

    def try_again(self, talk: Talk, session_id: UUID, at: datetime) -> None:
        self.recorded[talk.key].again = self._run(session_id, talk.key, at)

    def replay(self, run: dict[str, Any]) -> None:
        """Replay goldens with the versions of the day, and keep what came of it."""
        with self.within():
            started = start(self.world, run)
            cases = {talk: case.id for talk, case in started.cases.items()}
            for session_id in cases.values():
                self.reserve(session_id)
        for session_id in cases.values():
            _to_the_end(self._attempt(session_id))
        with self.within():
            date_failures(self.world, run, list(cases.values()))
            kept = Replayed(run["key"])
            for talk, session_id in cases.items():
                session = db.session.get_one(AgentSession, session_id, populate_existing=True)
                kept.cases[talk] = recorded_case(self.world, session, f"{run['key']}.{talk}")
            self.replayed[run["key"]] = kept

    def close(self) -> None:
        self.threads.close()

    def _lease(self, session: AgentSession) -> Lease:
        session.status, session.lease_owner, session.attempt = "running", OWNER, 1
        session.lease_until = session.started_at = datetime.now(UTC) + LONGEST_RUN
        db.session.flush()
        return Lease(session.id, session.tenant_id, OWNER, 1)

    def _attempt(self, session_id: UUID) -> Run:
        return Run(self._leases.pop(session_id), self.threads, self.settings, lambda *_: None)

    def _run(self, session_id: UUID, key: str, began: datetime) -> Recorded:
        _to_the_end(self._attempt(session_id))
        world = self.world
        with self.within():
            session = db.session.get_one(AgentSession, session_id, populate_existing=True)
            found = sorted(session_events.events_of(session.id, actor=world.system), key=lambda one: one.sequence)
            events = [(event.event_type, event.payload) for event in found]
            self._move(events, began)
            return Recorded(key, session.status, session.error, Names(world, key).named(events))

    def _move(self, events: Sequence[tuple[str, dict[str, Any]]], began: datetime) -> None:
        """What agents did lies in the past, when it is said to have happened: lists show what changed last first."""
        moments, _ = timed(events, began)
        for (kind, payload), at in zip(events, moments, strict=True):
            if kind in ("entity.created", "entity.updated") and payload.get("changes") != {}:
                _set(Entity, payload["entity_id"], updated_at=at)
            elif kind == "response.submitted":
                _set(EntityResponse, payload["response_id"], created_at=at)
            elif kind == "knowledge.changed":
                _set(SharedContext, payload["shared_context_id"], updated_at=at, created_at=at)


def _set(model: Any, row_id: str, **values: datetime) -> None:
    db.session.execute(update(model).where(model.id == UUID(row_id)).values(**values))


def _to_the_end(attempt: Run) -> None:
    """Run a session in a thread of its own: whoever calls may have a loop under way already."""
    with ThreadPoolExecutor(1) as alone:
        alone.submit(lambda: asyncio.run(attempt.to_the_end())).result()
