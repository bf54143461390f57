"""One conversation of the demo, written through the product's own services as if it had just happened."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.demo import remarks
from app.demo.talks import Step, Talk, read_remark
from app.demo.timeline import Moment, priced, timed
from app.demo.world import World
from app.models import AgentSession, Chat, Message
from app.services import chats, entities, sessions
from app.services.chats import NewMessage
from app.services.entities import NewResponse
from app.services.sessions import NewEvent, NewSession

DECISIONS = ("accept", "reject", "retried")


@dataclass
class Scene:
    """A conversation while it is played."""

    world: World
    talk: Talk
    person: Actor
    session: AgentSession
    chat: Chat | None
    events: list[NewEvent] = field(default_factory=list)
    said: list[tuple[int, NewMessage]] = field(default_factory=list)
    messages: dict[int, Message] = field(default_factory=dict)
    calls: int = 0
    call: tuple[str, dict[str, Any]] = ("", {})
    response: UUID | None = None

    @property
    def agent(self) -> str:
        return self.talk.facts["agent"].split()[0]


def play(world: World, talk: Talk, model: str) -> None:
    """Write the session, its chat and events, what it changed, and what people said about it."""
    moments, ended, effort = timed(talk, talk.began(world.now))
    scene = _begin(world, talk, moments[0].at, priced(effort, model), model)
    for place, moment in enumerate(moments):
        _happen(scene, place, moment)
    if talk.fact("status", "completed") == "completed" and not any(step.mark == "!" for step in talk.steps):
        scene.events.append(NewEvent("session.completed", {}, ended))
    sessions.append_events(scene.session.id, scene.events, actor=world.system)
    if talk.fact("status") == "cancelled":
        sessions.finish_session(scene.session.id, "cancelled", actor=scene.person, finished_at=ended)
    if scene.chat:
        stored = chats.append_messages(scene.chat.id, [new for _, new in scene.said], actor=world.system)
        scene.messages = {place: row for (place, _), row in zip(scene.said, stored, strict=True)}
    _follow(scene, moments)


def _begin(world: World, talk: Talk, began: datetime, effort: Any, model: str) -> Scene:
    person = world.people[talk.facts["person"]]
    agent, version = talk.facts["agent"].split()
    chat = None
    if talk.fact("type", "chat") == "chat":
        chat = chats.create_chat(
            actor=world.system, agent_slug=agent, title=talk.title, user_id=person.id, created_at=began
        )
    session, _ = sessions.create_session(
        NewSession(
            agent=agent,
            agent_version=int(version[1:]),
            title=talk.title,
            session_type=talk.fact("type", "chat"),
            output_type=talk.facts.get("output"),
            status="running",
            chat_id=chat.id if chat else None,
            entity_id=world.records[talk.facts["entity"]] if "entity" in talk.facts else None,
            person_id=person.id,
            model=model,
            input_tokens=effort.input_tokens,
            output_tokens=effort.output_tokens,
            cost=effort.cost,
            duration_ms=effort.duration_ms if talk.fact("status") != "running" else None,
            environment=talk.fact("environment", "production"),
            tags=(talk.facts["persona"],),
            created_at=began,
            started_at=began,
        ),
        actor=world.system,
    )
    return Scene(world, talk, person, session, chat)


def _happen(scene: Scene, place: int, moment: Moment) -> None:
    step, at = moment.step, moment.at
    if step.mark in "><":
        _say(scene, place, step, at)
    elif step.mark == "@":
        name, _, arguments = step.text.split(" ", 2)
        scene.calls += 1
        scene.call = (name, scene.world.data(arguments))
        payload = {"id": f"call-{scene.calls}", "name": name, "arguments": scene.call[1]}
        scene.events.append(NewEvent("tool.call", payload, at))
    elif step.mark.startswith("="):
        _answer(scene, step, at)
    elif step.mark == "%" and step.text.split()[0] in ("submit", "answer"):
        _submit(scene, step, at)
    elif step.mark == "!":
        scene.events.append(NewEvent("session.failed", {"reason": step.text.partition(" ")[2]}, at))


def _say(scene: Scene, place: int, step: Step, at: datetime) -> None:
    text = scene.world.text(step.text)
    user = step.mark == ">"
    scene.events.append(NewEvent("user.message" if user else "agent.message", {"text": text}, at))
    if user and not any(event.event_type == "context.loaded" for event in scene.events):
        loaded = scene.world.loaded(scene.agent, at)
        scene.events.append(NewEvent("context.loaded", loaded, at + timedelta(milliseconds=40)))
    new = NewMessage(
        role="user" if user else "agent",
        content=text,
        session_id=scene.session.id,
        trace_id=scene.session.trace_id,
        created_at=at,
    )
    scene.said.append((place, new))


def _answer(scene: Scene, step: Step, at: datetime) -> None:
    """A result, and what it changed. Records change for real, so that the page of a record agrees with its session."""
    name, arguments = scene.call
    call_id = f"call-{scene.calls}"
    changed = None if step.mark != "=" else _change(scene, name, arguments, call_id, at)
    payload: dict[str, Any] = {"call_id": call_id, "name": name, "output": _output(scene, step)}
    if step.mark != "=?":
        payload["is_error"] = step.mark == "=!"
    scene.events.append(NewEvent("tool.result", payload, at))
    if changed:
        scene.events.append(changed)


def _output(scene: Scene, step: Step) -> Any:
    return step.text if step.mark == "=!" else scene.world.data(step.text)


def _change(scene: Scene, name: str, arguments: dict[str, Any], call_id: str, at: datetime) -> NewEvent | None:
    world = scene.world
    if name == "updateEntity":
        record = UUID(arguments["id"])
        changes = entities.update_entity(record, arguments["fields"], actor=scene.person, at=at)
        kind = next(world.kinds[key] for key, value in world.records.items() if value == record)
        payload = {"entity_id": str(record), "entity_type": kind, "changes": changes, "call_id": call_id}
        return NewEvent("entity.updated", payload, at + timedelta(milliseconds=5))
    if name == "createEntity":
        kind = arguments["type"]
        row = entities.create_entity(
            entity_type=kind, name=arguments["name"], fields=arguments["fields"], actor=scene.person, created_at=at
        )
        key = arguments["name"].lower().replace(" ", "-")
        world.records[key], world.kinds[key] = row.id, kind
        payload = {"entity_id": str(row.id), "entity_type": kind, "fields": row.fields, "call_id": call_id}
        return NewEvent("entity.created", payload, at + timedelta(milliseconds=5))
    return None


def _submit(scene: Scene, step: Step, at: datetime) -> None:
    how, criteria, values = step.text.split(" ", 2)
    world = scene.world
    row = entities.submit_response(
        NewResponse(
            entity_id=world.records[scene.talk.facts["entity"]],
            values=json.loads(world.text(values)),
            criteria_set_id=world.criteria[criteria],
            session_id=scene.session.id,
            agent_id=world.agents[scene.agent],
            extracted=how == "submit",
            created_at=at,
        ),
        actor=world.system,
    )
    scene.response = row.id
    scene.events.append(NewEvent("response.submitted", {"response_id": str(row.id), "values": row.values}, at))


def _follow(scene: Scene, moments: list[Moment]) -> None:
    """What people said and decided afterwards."""
    last: tuple[datetime, Message | None] = (moments[0].at, None)
    for place, moment in enumerate(moments):
        step = moment.step
        if step.mark == "<":
            last = (moment.at, scene.messages.get(place))
        elif step.mark == "!":
            last = (moment.at, last[1])
        elif step.mark == "~":
            wanted = None
            if place + 1 < len(moments) and moments[place + 1].step.mark == "~>":
                wanted = scene.world.text(moments[place + 1].step.text)
            remarks.give(scene.world, read_remark(step.text), scene.session, last, f"call-{scene.calls}", wanted)
        elif step.mark == "%" and step.text.split()[0] in DECISIONS:
            remarks.decide(scene.world, step.text, scene.response, scene.person, last[0])
