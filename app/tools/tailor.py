"""Tools as one workspace has them: its kinds of records, their fields and its criteria sets in the schemas.

A model, and the offline one too, then knows which names there are instead of guessing them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.services import entities
from app.services.entities import TypeRow
from app.tools.base import Tool

# Which argument holds fields of records, and whether each is wrapped with its source.
FIELDS = {"createEntity": ("fields", False), "updateEntity": ("changes", False), "submitResponse": ("values", True)}
MOST_NAMED = 50


def tailored(
    tools: Sequence[Tool], *, actor: Actor, entity_id: UUID | None = None, criteria_set_id: UUID | None = None
) -> list[Tool]:
    """The same tools with what this workspace has. `entity_id` is the record that a session is about,
    `criteria_set_id` what its answer is judged by. Two queries."""
    if not any(tool.group.startswith("entities-") or tool.name == "getContext" for tool in tools):
        return list(tools)
    types = entities.list_types(actor=actor)
    sets = [(str(row.id), row.name) for row in entities.list_criteria_sets(actor=actor)]
    meant = {"entityId": entity_id, "criteriaSetId": criteria_set_id}
    return [replace(tool, parameters=_parameters(tool, types, sets, meant)) for tool in tools]


def _parameters(
    tool: Tool, types: list[TypeRow], sets: list[tuple[str, str]], meant: dict[str, UUID | None]
) -> dict[str, Any]:
    properties = dict(tool.parameters["properties"])
    if "entityType" in properties and 0 < len(types) <= MOST_NAMED:
        properties["entityType"] = properties["entityType"] | {"enum": [row.slug for row in types]}
    if "criteriaSetId" in properties and 0 < len(sets) <= MOST_NAMED:
        properties["criteriaSetId"] = properties["criteriaSetId"] | _chosen(sets)
    for name, id in meant.items():
        if name in properties and id is not None:
            properties[name] = properties[name] | {"default": str(id)}
    if tool.name in FIELDS:
        name, wrapped = FIELDS[tool.name]
        properties[name] = properties[name] | {"properties": _fields(types, wrapped)}
    return tool.parameters | {"properties": properties}


def _chosen(sets: list[tuple[str, str]]) -> dict[str, Any]:
    """The ids there are, by name; the only one is what is meant."""
    named = "; ".join(f"{found} is {name}" for found, name in sets)
    only = {"default": sets[0][0]} if len(sets) == 1 else {}
    return {"enum": [found for found, _ in sets], "description": f"What it is judged by: {named}.", **only}


def _fields(types: list[TypeRow], wrapped: bool) -> dict[str, Any]:
    """Every field of any kind of record. Where two kinds differ about one, both count."""
    found: dict[str, Any] = {}
    for row in types:
        for name, schema in row.fields.items():
            known = found.get(name)
            found[name] = schema if known in (None, schema) else {"anyOf": [known, schema]}
    return {name: _wrapped(schema) for name, schema in found.items()} if wrapped else found


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    whole = {
        "type": "object",
        "properties": {
            "value": schema,
            "source": {"type": "string", "description": "Where it was read."},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        },
        "required": ["value"],
    }
    return {"anyOf": [schema, whole]}
