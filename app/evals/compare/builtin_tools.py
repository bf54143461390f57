"""What a call of a built-in tool changes. The tools are known by name; a test compares the list with the tools."""

from collections.abc import Callable
from typing import Any

# (kind, type, target, fields)
Change = tuple[str, str, Any, dict[str, Any]]
# Reasons are worded differently every time, and are no change of the record.
_WORDING = frozenset({"reason", "notes"})


def change_of(name: str, arguments: dict[str, Any]) -> Change | None:
    """What a call changed, or None if the tool is not built in or its arguments do not fit."""
    if name in _READ:
        return _READ[name](arguments)
    kind, of = _MAKES.get(name, (None, ""))
    if kind == "created":
        return "created", of, None, arguments
    return _record(of, arguments) if kind else None


def _first(arguments: dict[str, Any], *names: str) -> Any:
    return next((arguments[name] for name in names if name in arguments), None)


def _created(arguments: dict[str, Any]) -> Change | None:
    kind, fields = _first(arguments, "entityType", "entity_type", "type"), arguments.get("fields", {})
    if not isinstance(kind, str) or not isinstance(fields, dict):
        return None
    name = {"name": arguments["name"]} if "name" in arguments else {}
    return "created", kind, None, {**name, **fields}


def _updated(arguments: dict[str, Any]) -> Change | None:
    """The kind of record is not in the call, and ids are unique over all kinds: the type is `entity` for each."""
    target, fields = _first(arguments, "entityId", "entity_id", "id"), _first(arguments, "changes", "fields", "values")
    return ("updated", "entity", target, fields) if target is not None and isinstance(fields, dict) else None


def _response(arguments: dict[str, Any]) -> Change | None:
    values = arguments.get("values")
    if not isinstance(values, dict):
        return None
    criteria = _first(arguments, "criteriaSetId", "criteria_set_id")
    return "response", str(criteria or ""), _first(arguments, "entityId", "entity_id"), values


def _record(kind: str, arguments: dict[str, Any]) -> Change | None:
    changes = arguments.get("changes")
    flat = {**arguments, **changes} if isinstance(changes, dict) else arguments
    kept = {name: value for name, value in flat.items() if name not in _WORDING and name not in ("id", "changes")}
    return ("updated", kind, flat["id"], kept) if "id" in flat else None


def _deactivated(arguments: dict[str, Any]) -> Change | None:
    return ("updated", "knowledge", arguments["id"], {"active": False}) if "id" in arguments else None


# How the arguments of a tool say what it changes, where that depends on them.
_READ: dict[str, Callable[[dict[str, Any]], Change | None]] = {
    "createEntity": _created,
    "updateEntity": _updated,
    "submitResponse": _response,
    "deactivateSharedContext": _deactivated,
}
# The kind and type of change that a tool makes, where it is always the same.
_MAKES = {
    "updateEntity": ("updated", "entity"),
    "addCorrection": ("created", "correction"),
    "addLesson": ("created", "lesson"),
    "addInsight": ("created", "insight"),
    "saveMemory": ("created", "memory"),
    "addFeedback": ("created", "feedback"),
    "updateSharedContext": ("updated", "knowledge"),
    "deactivateSharedContext": ("updated", "knowledge"),
    "reviewFeedback": ("updated", "feedback"),
    "updateAgentConfig": ("updated", "agent"),
    "updateEntityType": ("updated", "entity type"),
    "withdrawDraft": ("updated", "draft"),
}
# The arguments of each. A test compares this with the tools as well.
_ADDS = "content context agentId entityTypeId sourceFeedbackId"
_TAKES = {
    "getContext": "agent entityType",
    "listSharedContext": "type state agent entityType query limit:integer cursor",
    "addCorrection": _ADDS,
    "addLesson": _ADDS,
    "addInsight": _ADDS,
    "updateSharedContext": "id content context active:boolean",
    "deactivateSharedContext": "id reason",
    "saveMemory": "content",
    "listFeedback": "status sourceType agentId limit:integer cursor",
    "getFeedback": "id",
    "reviewFeedback": "id action notes",
    "addFeedback": "rating comment sourceType toolSlug toolRunId sessionId agentId entityId messageId",
    "listEntityTypes": "",
    "searchEntities": "query entityType limit:integer",
    "listEntities": "entityType limit:integer cursor",
    "getEntity": "entityId",
    "listResponses": "entityId",
    "createEntity": "entityType name fields:object",
    "updateEntity": "entityId changes:object",
    "listCriteriaSets": "",
    "submitResponse": "entityId criteriaSetId values:object",
    "listAgents": "",
    "getAgent": "id",
    "updateAgentConfig": "id instructions skills:array toolGroups:array reason sourceFeedbackId",
    "updateEntityType": "id name fields:object reason sourceFeedbackId",
    "withdrawDraft": "id",
}
WRITES = frozenset({*_READ, *_MAKES})
READS = frozenset(_TAKES) - WRITES


def schema_of(name: str) -> dict[str, Any] | None:
    """A JSON schema of what a built-in tool takes; None for any other tool."""
    if name not in _TAKES:
        return None
    given = (part.partition(":") for part in _TAKES[name].split())
    properties = {argument: {"type": kind or "string"} for argument, _, kind in given}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def tools_that_make(kind: str, of: str) -> tuple[str, ...]:
    """The tools that can make such a change. Others make changes of their own name, which may be a kind of record."""
    if kind == "response":
        return ("submitResponse",)
    found = tuple(name for name, made in _MAKES.items() if made == (kind, of))
    return found or ((of, "createEntity") if kind == "created" else (of,))
