"""Who works in the demo workspace, with which agents, on which records: what is there before the first conversation."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from app.actor import Actor
from app.demo.world import World, load
from app.services.agents import versions
from app.services.entities import store as entity_store
from app.services.workspaces import people
from app.services.workspaces import store as workspace_store

KINDS = ("contact", "company", "deal", "ltm", "fiscal-year")
# Working days before now, older than everything that was said.
TYPES_MADE, SETS_MADE, RECORDS_MADE = "44d 09:00", "44d 11:00", "43d 08:00"


def set_up(world: World) -> None:
    _add_people(world)
    _add_agents(world)
    _add_records(world)


def _add_people(world: World) -> None:
    for person in load("people"):
        user = people.create_person(email=person["email"], name=person["name"], role=person["role"], actor=world.system)
        world.people[person["key"]] = Actor(user.id, world.system.tenant_id, person["role"], user.name)
        world.refs[f"person.{person['key']}"] = user.id


def _add_agents(world: World) -> None:
    owner = world.people["owner"]
    for entry in load("agents"):
        first, *later = entry["versions"]
        agent = versions.ensure_agent(
            entry["slug"],
            actor=owner,
            name=entry["name"],
            kind="builtin",
            description=entry["description"],
            config=first["config"],
            created_at=world.at(first["when"]),
        )
        world.refs[f"agent.{agent.slug}"] = agent.id
        world.versions[agent.slug] = [version["when"] for version in entry["versions"]]
        for version in later:
            versions.save_version(agent.id, version["config"], actor=owner, created_at=world.at(version["when"]))
    review = versions.find_agent(workspace_store.REVIEW_AGENT, actor=world.system)
    if review is not None:
        world.people["review"] = replace(world.system, agent_id=review.id, name=review.name)
        world.refs[f"agent.{review.slug}"] = review.id


def _add_records(world: World) -> None:
    data = load("entities")
    owner = world.people["owner"]
    for entry in data["types"]:
        row = entity_store.create_type(**entry, actor=owner, created_at=world.at(TYPES_MADE))
        world.refs[f"type.{row.slug}"] = row.id
    for entry in data["criteria_sets"]:
        criteria = entity_store.create_criteria_set(**entry, actor=owner, created_at=world.at(SETS_MADE))
        world.refs[f"criteria.{criteria.slug}"] = criteria.id
    made = world.at(RECORDS_MADE)
    for kind in KINDS:
        for entry in data[kind]:
            fields = {name: world.text(value) if isinstance(value, str) else value for name, value in entry.items()}
            key, name = fields.pop("key"), fields.pop("name")
            made += timedelta(minutes=1)
            entity = entity_store.create_entity(
                entity_type=kind, name=name, fields=fields, actor=owner, created_at=made
            )
            world.refs[f"record.{key}"], world.kinds[f"record.{key}"] = entity.id, kind
