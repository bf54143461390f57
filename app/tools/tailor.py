"""Adds a workspace's entity types, fields and criteria sets to the schemas of tools. A model, also the offline one,
then knows the names instead of guessing them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.formats.criteria import RATINGS
from app.formats.response_values import NUMERIC, RANKED, RATING
from app.models import CriteriaSet
from app.services.entities import criteria as criteria_store
from app.services.entities import store as entity_store
from app.tools.base import Tool

# The argument that holds fields of records.
FIELDS = {"createEntity": "fields", "updateEntity": "changes"}
MAX_NAMED = 50


def tailor_tools(
    tools: Sequence[Tool], *, actor: Actor, entity_id: UUID | None = None, criteria_set_id: UUID | None = None
) -> list[Tool]:
    """Tailor tools to a workspace with two queries. `entity_id` is the record of the session, `criteria_set_id` the
    criteria its answer is judged by."""
    if not any(tool.group.startswith("entities-") or tool.name == "getContext" for tool in tools):
        return list(tools)
    types = entity_store.list_types(actor=actor)
    sets = criteria_store.list_criteria_sets(actor=actor)
    meant = {"entityId": entity_id, "criteriaSetId": criteria_set_id}
    return [replace(tool, parameters=_parameters(tool, types, sets, meant)) for tool in tools]


def _parameters(
    tool: Tool, types: Sequence[Any], sets: list[CriteriaSet], meant: dict[str, UUID | None]
) -> dict[str, Any]:
    properties = dict(tool.parameters["properties"])
    if "entityType" in properties and 0 < len(types) <= MAX_NAMED:
        properties["entityType"] = properties["entityType"] | {"enum": [row.slug for row in types]}
    if "criteriaSetId" in properties and 0 < len(sets) <= MAX_NAMED:
        properties["criteriaSetId"] = properties["criteriaSetId"] | _criteria_choice(sets)
    for name, id in meant.items():
        if name in properties and id is not None:
            properties[name] = properties[name] | {"default": str(id)}
    if tool.name in FIELDS:
        name = FIELDS[tool.name]
        properties[name] = properties[name] | {"properties": _fields(types)}
    if tool.name == "submitResponse":
        offered = [row for row in sets if meant["criteriaSetId"] in (None, row.id)]
        properties["values"] = properties["values"] | {"properties": _values(offered, _fields(types))}
    return tool.parameters | {"properties": properties}


def _criteria_choice(sets: list[CriteriaSet]) -> dict[str, Any]:
    """The ids with their names. A single one is the default."""
    named = "; ".join(f"{row.id} is {row.name}" for row in sets)
    only = {"default": str(sets[0].id)} if len(sets) == 1 else {}
    return {"enum": [str(row.id) for row in sets], "description": f"What it is judged by: {named}.", **only}


def _values(sets: list[CriteriaSet], fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of the criteria sets, with the schema of the record's field, else of the criterion."""
    found: dict[str, Any] = {}
    for row in sets:
        for name, rule in row.dimensions.items():
            found.setdefault(name, _with_source(_criterion_schema(rule, fields.get(name))))
    return found


def _criterion_schema(rule: Any, known: dict[str, Any] | None) -> dict[str, Any]:
    """A criterion as a schema; `known` is the field of that name in the workspace's records."""
    kind, options = (rule.get("kind"), rule.get("options")) if isinstance(rule, dict) else (None, None)
    if kind in NUMERIC:
        return known if known and known.get("type") in ("number", "integer") else {"type": "number"}
    if kind == RATING:
        return {"type": "integer", "minimum": RATINGS[0], "maximum": RATINGS[-1]}
    if kind in RANKED:
        return {"type": "array", "items": {"type": "string"}}
    return {"enum": options} if options else known or {"type": "string"}


def _fields(types: Sequence[Any]) -> dict[str, Any]:
    """Every field of any entity type. Where two types differ about one, both schemas are allowed."""
    found: dict[str, Any] = {}
    for row in types:
        for name, schema in row.fields.items():
            known = found.get(name)
            found[name] = schema if known in (None, schema) else {"anyOf": [known, schema]}
    return found


def _with_source(schema: dict[str, Any]) -> dict[str, Any]:
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
