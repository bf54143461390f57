"""One conversation of the demo: how it went, and what people said and decided afterwards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import select

from app.db import db
from app.demo import remarks
from app.demo.effects import do_again
from app.demo.recording import Names, Recorded
from app.demo.replayed import read_replayed, take_in
from app.demo.talks import Talk, read_remark
from app.demo.timeline import timed
from app.demo.world import World
from app.models import AgentSession, Chat
from app.services.chats import store as chat_store
from app.services.chats.store import NewMessage
from app.services.entities import store as entity_store
from app.services.entities.store import NewResponse
from app.services.knowledge.prompt import load_shared_context_prompt
from app.services.sessions import store as session_store
from app.services.sessions.bulk import create_sessions
from app.services.sessions.events import lock_for_events, write_events
from app.services.sessions.store import NewEvent, NewSession

MODEL = "offline"


@dataclass
class Held:
    """A conversation that was held: its session, and for each turn when it was answered and by which message."""

    session_id: UUID
    answers: list[tuple[datetime, UUID | None]] = field(default_factory=list)
    call_id: str = "call_1"
    response_id: UUID | None = None


class Player(Protocol):
    """Holds conversations: from the recording, or really."""

    def hold(self, talk: Talk) -> Held: ...

    def within(self) -> AbstractContextManager[Any]: ...

    def reserve(self, session_id: UUID) -> None: ...

    def try_again(self, talk: Talk, session_id: UUID, at: datetime) -> None: ...

    def replay(self, run: dict[str, Any]) -> None: ...


def play(world: World, talk: Talk, player: Player) -> None:
    """Hold the conversation, then let people speak and decide, then let the agent try again what was rejected."""
    held = player.hold(talk)
    with player.within():
        again = _follow(world, talk, held, player)
    for session_id, at in again:
        player.try_again(talk, session_id, at)


def held_of(world: World, talk: Talk, session_id: UUID, recorded: Recorded, messages: Sequence[UUID] = ()) -> Held:
    """What those who speak afterwards refer to."""
    moments, _ = timed(recorded.events, world.at(talk.when))
    held, said = Held(session_id), iter(messages)
    for (kind, payload), at in zip(recorded.events, moments, strict=True):
        if kind == "agent.message":
            held.answers.append((at, next(said, None)))
        elif kind == "tool.call":
            held.call_id = payload["id"]
        elif kind == "response.submitted":
            held.response_id = UUID(Names(world, talk.key).resolved(payload["response_id"]))
    held.answers += [(moments[-1], None)] * (len(talk.prompts) - len(held.answers))
    return held


class Kept:
    """Conversations from the recording, written through the services that take in what happens elsewhere."""

    def __init__(self, world: World, recorded: dict[str, Recorded], wanted: Sequence[Talk]) -> None:
        self.world = world
        self.recorded = recorded
        self.chats: dict[str, Chat] = {}
        self.sessions: dict[str, AgentSession] = {}
        self.replayed = read_replayed()
        self._sessions(wanted)

    def within(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def reserve(self, session_id: UUID) -> None:
        """Nobody else can see the session yet."""

    def hold(self, talk: Talk) -> Held:
        world, recorded = self.world, self.recorded[talk.key]
        moments, _ = timed(recorded.events, world.at(talk.when))
        session = self.sessions[talk.key]
        world.refs[f"session.{talk.key}"] = session.id
        names = Names(world, talk.key)
        do_again(recorded, moments, names, world.actor(talk), session.id)
        events = self._events(recorded, moments, names, session)
        write_events(session, events, actor=world.system)
        return held_of(
            world, talk, session.id, recorded, keep_messages(world, self.chats.get(talk.key), session, events)
        )

    def try_again(self, talk: Talk, session_id: UUID, at: datetime) -> None:
        world, recorded = self.world, self.recorded[talk.key].again
        if recorded is None:
            return
        moments, work = timed(recorded.events, at)
        session = lock_for_events(session_id, actor=world.system)
        session.status, session.started_at, session.duration_ms = "running", at, work
        session.model, session.input_tokens, session.output_tokens, session.cost = MODEL, 0, 0, Decimal(0)
        session.tags = [talk.persona]
        names = Names(world, talk.key)
        do_again(recorded, moments, names, world.actor(talk), session_id)
        events = self._events(recorded, moments, names, session)
        session_store.append_events(session_id, events, actor=world.system)

    def replay(self, run: dict[str, Any]) -> None:
        take_in(self.world, run, self.replayed[run["key"]])

    def _sessions(self, wanted: Sequence[Talk]) -> None:
        """Every session at once, before anything is said in it."""
        new = [self._new(talk) for talk in wanted]
        create_sessions(new, actor=self.world.system)
        found = db.session.scalars(
            select(AgentSession).where(
                AgentSession.tenant_id == self.world.system.tenant_id, AgentSession.external_id.is_not(None)
            )
        )
        by_name = {row.external_id: row for row in found}
        self.sessions = {talk.key: by_name[f"demo:{talk.key}"] for talk in wanted}

    def _new(self, talk: Talk) -> NewSession:
        world, recorded = self.world, self.recorded[talk.key]
        moments, work = timed(recorded.events, world.at(talk.when))
        chat = keep_chat(world, talk, moments[0])
        if chat:
            self.chats[talk.key] = chat
        return NewSession(
            external_id=f"demo:{talk.key}",
            agent=talk.agent,
            agent_version=world.version(talk),
            title=_title(world.text(talk.prompts[0])),
            session_type=talk.fact("type", "chat"),
            output_type=talk.facts.get("output"),
            status=recorded.status,
            error=recorded.error,
            chat_id=chat.id if chat else None,
            entity_id=world.refs[f"record.{talk.facts['entity']}"] if "entity" in talk.facts else None,
            person_id=world.people[talk.person].id,
            model=MODEL,
            input_tokens=0,
            output_tokens=0,
            cost=Decimal(0),
            duration_ms=work,
            environment="production",
            tags=(talk.persona,),
            created_at=moments[0],
            started_at=moments[0],
            finished_at=moments[-1],
        )

    def _events(
        self, recorded: Recorded, moments: list[datetime], names: Names, session: AgentSession
    ) -> list[NewEvent]:
        events = []
        for (kind, payload), at in zip(recorded.events, moments, strict=True):
            told = names.resolved(payload)
            if kind == "context.loaded":
                told |= self._loaded(session, at)
            events.append(NewEvent(kind, told, at))
        return events

    def _loaded(self, session: AgentSession, at: datetime) -> dict[str, Any]:
        """What a prompt holds at this moment of the demo. Its hash is the workspace's own, so it is not recorded."""
        world = self.world
        kind = next((key for key, value in world.refs.items() if value == session.entity_id), "")
        type_id = world.refs[f"type.{world.kinds[kind]}"] if kind else None
        prompt = load_shared_context_prompt(session.tenant_id, session.agent_id, type_id)
        for row_id in prompt.row_ids:
            world.used.setdefault(row_id, []).append(at)
        return {
            "row_ids": [str(row_id) for row_id in prompt.row_ids],
            "versions": list(prompt.versions),
            "sha256": prompt.sha256,
        }


def keep_chat(world: World, talk: Talk, began: datetime) -> Chat | None:
    """The chat that a conversation belongs to, if it is one."""
    if talk.fact("type", "chat") != "chat":
        return None
    return chat_store.create_chat(
        actor=world.system,
        agent_slug=talk.agent,
        title=world.text(talk.prompts[0]),
        user_id=world.people[talk.person].id,
        created_at=began,
    )


def keep_messages(world: World, chat: Chat | None, session: AgentSession, events: Sequence[NewEvent]) -> list[UUID]:
    """The chat as people saw it; the ids of the agent's messages."""
    if chat is None:
        return []
    new = [
        NewMessage(
            role="user" if event.event_type == "user.message" else "agent",
            content=event.payload["text"],
            session_id=session.id,
            trace_id=session.trace_id,
            details={name: value for name, value in event.payload.items() if name.endswith("_rules")},
            created_at=event.occurred_at,
        )
        for event in events
        if event.event_type in ("user.message", "agent.message")
    ]
    stored = chat_store.append_messages(chat.id, new, actor=world.system)
    return [message.id for message in stored if message.role == "agent"]


def _title(prompt: str) -> str:
    line = " ".join(prompt.split())
    return line if len(line) <= 120 else line[:119].rstrip() + "…"


def _follow(world: World, talk: Talk, held: Held, player: Player) -> list[tuple[UUID, datetime]]:
    """What people said and decided afterwards; the second tries that this asks for."""
    turn, again, given = -1, [], held.session_id
    for place, step in enumerate(talk.steps):
        if step.mark == ">":
            turn += 1
        elif step.mark == "~":
            wanted = None
            if place + 1 < len(talk.steps) and talk.steps[place + 1].mark == "~>":
                wanted = world.text(talk.steps[place + 1].text)
            remark = read_remark(step.text)
            given = remarks.give(world, remark, held.session_id, held.answers[turn], held.call_id, wanted)
        elif step.mark == "~#":
            remarks.discuss(world, step.text, given, held.answers[turn][0])
        elif step.mark == "%" and step.text.startswith("answer "):
            held.response_id = _answer(world, talk, held, step.text)
        elif step.mark == "%":
            retry = remarks.decide(world, step.text, held.response_id, held.answers[turn][0])
            if retry:
                player.reserve(retry[0])
                again.append(retry)
    return again


def _answer(world: World, talk: Talk, held: Held, text: str) -> UUID:
    """Values that a person submitted themselves after what the agent said."""
    _, who, criteria, values = text.split(" ", 3)
    return entity_store.submit_response(
        NewResponse(
            entity_id=world.refs[f"record.{talk.facts['entity']}"],
            values={name: {"value": value} for name, value in json.loads(values).items()},
            criteria_set_id=world.refs[f"criteria.{criteria}"],
            session_id=held.session_id,
            created_at=world.past(held.answers[-1][0]),
        ),
        actor=world.people[who],
    ).id
