"""What agents did to the workspace, done again where their recorded sessions are seeded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.demo.recording import Names, Recorded
from app.services.entities import store as entity_store
from app.services.entities.store import NewResponse
from app.services.knowledge import memories
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow


@dataclass(frozen=True)
class Place:
    """Where and when something was done, and for whom."""

    actor: Actor
    session_id: UUID
    at: datetime


def _create(given: dict[str, Any], place: Place) -> UUID:
    return entity_store.create_entity(
        entity_type=given["entityType"],
        name=given["name"],
        fields=given.get("fields", {}),
        actor=place.actor,
        created_at=place.at,
    ).id


def _update(given: dict[str, Any], place: Place) -> UUID:
    record = UUID(given["entityId"])
    entity_store.update_entity(record, given["changes"], actor=place.actor, at=place.at)
    return record


def _submit(given: dict[str, Any], place: Place) -> UUID:
    return entity_store.submit_response(
        NewResponse(
            entity_id=UUID(given["entityId"]),
            criteria_set_id=UUID(given["criteriaSetId"]),
            values=given["values"],
            session_id=place.session_id,
            agent_id=place.actor.agent_id,
            created_at=place.at,
        ),
        actor=place.actor,
    ).id


def _propose(kind: str) -> Callable[[dict[str, Any], Place], UUID]:
    def propose(given: dict[str, Any], place: Place) -> UUID:
        new = NewRow(type=kind, content=given["content"], context=given.get("context"), created_at=place.at)
        meta = {"proposed": {"session_id": str(place.session_id)}}
        return knowledge_rows.add_row(new, actor=place.actor, proposed=True, meta=meta).id

    return propose


def _remember(given: dict[str, Any], place: Place) -> UUID:
    return memories.save_memory(given["content"], actor=place.actor, session_id=place.session_id, at=place.at).id


EFFECTS: dict[str, Callable[[dict[str, Any], Place], UUID]] = {
    "createEntity": _create,
    "updateEntity": _update,
    "submitResponse": _submit,
    "addCorrection": _propose("correction"),
    "addLesson": _propose("lesson"),
    "addInsight": _propose("insight"),
    "saveMemory": _remember,
}


def do_again(recorded: Recorded, moments: list[datetime], names: Names, actor: Actor, session_id: UUID) -> None:
    """Every change that succeeded, in order. What it made gets the name that the recording has for it."""
    calls: dict[str, dict[str, Any]] = {}
    for (kind, payload), at in zip(recorded.events, moments, strict=True):
        if kind == "tool.call":
            calls[payload["id"]] = payload
        elif kind == "tool.result" and not payload["is_error"] and payload["name"] in EFFECTS:
            given = names.resolved(calls[payload["call_id"]]["arguments"])
            made = EFFECTS[payload["name"]](given, Place(actor, session_id, at))
            names.world.refs[payload["output"]["id"].removeprefix("ref:")] = made
