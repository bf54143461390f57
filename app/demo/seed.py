"""The demo workspace: Acme Capital, its people, agents, records and two months of work with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, select

from app.actor import Actor
from app.db import acting_as, db, transaction
from app.demo.play import play
from app.demo.world import Known, World, load, talks
from app.errors import NotFound, Refused
from app.models import Agent, AgentSession, Chat, Entity, Feedback, Membership, SharedContext
from app.services import accounts, agents, entities, feedback, knowledge, knowledge_usage, people, workspaces
from app.services.knowledge import NewRow

SLUG = "demo"
NAME = "Acme Capital"
COUNTED = {
    "people": Membership,
    "agents": Agent,
    "entities": Entity,
    "chats": Chat,
    "sessions": AgentSession,
    "feedback": Feedback,
    "knowledge": SharedContext,
}


def seed() -> dict[str, Any]:
    """Fill the demo workspace in one transaction, or say that it is there. Needs an application context."""
    with acting_as(None):
        try:
            return _there() or _made()
        except Refused:
            # Another process was quicker.
            return _there() or _made()


def _there() -> dict[str, Any] | None:
    try:
        with transaction():
            return {"workspace": SLUG, "created": False, **counts(_demo())}
    except NotFound:
        return None


def _made() -> dict[str, Any]:
    with transaction():
        _, system = workspaces.create_workspace(slug=SLUG, name=NAME)
        world = World(datetime.now(UTC).replace(microsecond=0), system)
        _fill(world)
        return {"workspace": SLUG, "created": True, **counts(system)}


def _demo() -> Actor:
    return accounts.system_in(workspaces.find_workspace(SLUG))


def counts(actor: Actor) -> dict[str, int]:
    """What the demo holds."""
    found = {}
    for name, model in COUNTED.items():
        rows = select(func.count()).select_from(model).where(model.tenant_id == actor.tenant_id)  # type: ignore[attr-defined]
        found[name] = db.session.scalar(rows) or 0
    found["people"] -= 1  # The workspace's system user is nobody.
    return found


def _fill(world: World) -> None:
    _add_people(world)
    models = _add_agents(world)
    _add_records(world)
    steps: list[tuple[datetime, Callable[[], None]]] = []
    for talk in talks():
        model = models[talk.facts["agent"]]
        steps.append((talk.began(world.now), lambda talk=talk, model=model: play(world, talk, model)))  # type: ignore[misc]
    for entry in load("knowledge"):
        steps += _learning(world, entry)
    for entry in load("triage"):
        steps.append((world.ago(entry["days"]), lambda entry=entry: _triage(world, entry)))  # type: ignore[misc]
    for _, step in sorted(steps, key=lambda item: item[0]):
        step()
    _note_usage(world)


def _add_people(world: World) -> None:
    for person in load("people"):
        user = people.create_person(email=person["email"], name=person["name"], role=person["role"], actor=world.system)
        world.people[person["key"]] = Actor(user.id, world.system.tenant_id, person["role"], user.name)


def _add_agents(world: World) -> dict[str, str]:
    """Make the agents; give back the model of each version."""
    models = {}
    owner = world.people["owner"]
    for entry in load("agents"):
        first = world.ago(entry["versions"][0]["days"])
        agent = agents.ensure_agent(
            entry["slug"],
            actor=owner,
            name=entry["name"],
            description=entry["description"],
            config=entry["versions"][0]["config"],
            created_at=first,
        )
        world.agents[agent.slug] = agent.id
        for number, version in enumerate(entry["versions"], start=1):
            models[f"{agent.slug} v{number}"] = version["config"]["model"]
            if number > 1:
                agents.save_version(agent.id, version["config"], actor=owner, created_at=world.ago(version["days"]))
    review = agents.find_agent(workspaces.REVIEW_AGENT, actor=world.system)
    if review is not None:
        world.people["review"] = replace(world.system, agent_id=review.id, name=review.name)
    return models


def _add_records(world: World) -> None:
    data = load("entities")
    owner = world.people["owner"]
    for entry in data["types"]:
        row = entities.create_type(**entry, actor=owner, created_at=world.ago(73))
        world.types[row.slug] = row.id
    for entry in data["criteria_sets"]:
        world.criteria[entry["slug"]] = entities.create_criteria_set(**entry, actor=owner, created_at=world.ago(72)).id
    for kind, plural in (("deal", "deals"), ("company", "companies"), ("contact", "contacts")):
        for place, entry in enumerate(data[plural]):
            fields = {name: world.text(value) if isinstance(value, str) else value for name, value in entry.items()}
            key, name = fields.pop("key"), fields.pop("name")
            made = world.ago(71) + timedelta(minutes=place)
            entity = entities.create_entity(entity_type=kind, name=name, fields=fields, actor=owner, created_at=made)
            world.records[key], world.kinds[key] = entity.id, kind


def _learning(world: World, entry: dict[str, Any]) -> list[tuple[datetime, Callable[[], None]]]:
    """Writing a knowledge row, and each change to it, at its time."""
    found: list[tuple[datetime, Callable[[], None]]] = [(world.ago(entry["days"]), lambda: _learn(world, entry))]
    for change in entry.get("then", ()):
        found.append((world.ago(change["days"]), lambda change=change: _relearn(world, entry["key"], change)))  # type: ignore[misc]
    return found


def _learn(world: World, entry: dict[str, Any]) -> None:
    author, at = world.people[entry["by"]], world.ago(entry["days"])
    applied = world.waiting.pop(entry["key"], [])
    behind = [*applied, *(world.labels[label] for label in entry.get("from", ()))]
    row = knowledge.add_row(
        NewRow(
            type=entry["type"],
            content=entry["content"],
            context=entry.get("context"),
            agent_id=world.agents[entry["agent"]] if "agent" in entry else None,
            entity_type_id=world.types[entry["entity_type"]] if "entity_type" in entry else None,
            feedback_ids=behind,
            pinned=entry.get("pinned", False),
            created_at=at,
        ),
        actor=author,
    )
    world.rows[entry["key"]] = row
    _remember(world, entry, row)
    if applied:
        outcome = {"kind": "knowledge", "id": str(row.id), "text": row.content}
        feedback.review(applied, "applied", actor=author, outcome=outcome, at=at)
    if "reviewed" in entry:
        feedback.review(behind, "reviewed", actor=author, notes=entry["reviewed"], at=at)


def _relearn(world: World, key: str, change: dict[str, Any]) -> None:
    row, author, at = world.rows[key], world.people[change["by"]], world.ago(change["days"])
    if "edit" in change:
        knowledge.edit_row(row.id, change["edit"], row.version, actor=author, reason=change["reason"], at=at)
    else:
        heir = world.rows[change["superseded_by"]].id if "superseded_by" in change else None
        knowledge.set_state(row.id, change["state"], actor=author, reason=change["reason"], superseded_by=heir, at=at)
    known = world.known.pop(row.id, None)
    if known and row.active:
        world.known[row.id] = replace(known, version=row.version, content=row.content)


def _triage(world: World, entry: dict[str, Any]) -> None:
    """The weekly round: what was said by then and leads to no rule is dismissed together, with one note."""
    spoken_for = {*world.labels.values(), *(row_id for ids in world.waiting.values() for row_id in ids)}
    ids = db.session.scalars(
        select(Feedback.id).where(
            Feedback.tenant_id == world.system.tenant_id,
            Feedback.status == "pending",
            Feedback.rating.in_(entry["ratings"]),
            Feedback.created_at < world.ago(entry["days"] + 1),
        )
    )
    wanted = [row_id for row_id in ids if row_id not in spoken_for]
    at = world.ago(entry["days"])
    if len(wanted) > 1:
        feedback.review(wanted, "dismissed", actor=world.people["admin"], notes=entry["note"], at=at)


def _remember(world: World, entry: dict[str, Any], row: SharedContext) -> None:
    if row.active:
        world.known[row.id] = Known(
            row.id, row.version, row.type, row.content, entry.get("agent"), entry.get("entity_type")
        )


def _note_usage(world: World) -> None:
    """What the sessions had in their prompts, counted once for all."""
    knowledge_usage.note_injections(
        {row_id: (len(times), max(times)) for row_id, times in world.used.items()}, actor=world.system
    )
