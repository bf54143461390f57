"""Everything that went into a run, frozen: what a golden keeps so that it can be replayed for ever."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import sha256
from math import isfinite
from typing import Any

SHAPE = 1


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a run had, in JSON's types. `events` are those of the session, in their order."""

    session_type: str
    output_type: str | None
    agent: Mapping[str, Any]
    model: str | None
    events: Sequence[Mapping[str, Any]]
    entity: Mapping[str, Any] | None = None
    view_context: Mapping[str, Any] = field(default_factory=dict)
    earlier: Sequence[tuple[str, str]] = ()
    tools: Sequence[Mapping[str, Any]] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    loaded: Mapping[str, Any] = field(default_factory=dict)
    memories: Mapping[str, Any] = field(default_factory=dict)
    entity_types: Sequence[Mapping[str, Any]] = ()
    criteria: Mapping[str, Any] | None = None


def build_snapshot(inputs: Inputs) -> dict[str, Any]:
    """The inputs as a golden keeps them. The golden's own events are the recording and are not copied."""
    turns = user_turns(inputs.events)
    config = inputs.agent.get("config") or {}
    return {
        "shape": SHAPE,
        "session_type": inputs.session_type,
        "output_type": inputs.output_type,
        "agent": dict(inputs.agent),
        "model": inputs.model,
        "initial_message": turns[0] if turns else None,
        "turns": turns,
        "earlier": [list(said) for said in inputs.earlier],
        "entity": _before(inputs.entity, inputs.events),
        "view_context": dict(inputs.view_context),
        "tool_grants": list(config.get("tool_groups") or []),
        "tools": [dict(tool) for tool in inputs.tools],
        "shared_context": {
            "row_ids": [row["id"] for row in inputs.rows],
            "sha256": inputs.loaded.get("sha256"),
            "rows": [dict(row) | {"sha256": text_hash(row)} for row in inputs.rows],
        },
        "memories": dict(inputs.memories),
        "skills": list(config.get("skills") or []),
        "entity_types": [dict(kind) for kind in inputs.entity_types],
        "criteria": dict(inputs.criteria) if inputs.criteria else None,
    }


def snapshot_hash(snapshot: Mapping[str, Any]) -> str:
    """Changes with every byte of the snapshot, and with nothing else. The database computes the same."""
    return sha256(_canonical(snapshot).encode()).hexdigest()


def _canonical(value: Any) -> str:
    """JSON with its names in order. Numbers are written in full, as the database gives them back: `1e16` is stored as
    an integer, and `1e-7` as `0.0000001`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(name)}: {_canonical(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_canonical, value)) + "]"
    if isinstance(value, float) and isfinite(value):
        return format(Decimal(repr(value or 0.0)), "f")
    return _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def text_hash(row: Mapping[str, Any]) -> str:
    """What a knowledge row said, as a hash."""
    return sha256(json.dumps([row.get("content"), row.get("context")], ensure_ascii=False).encode()).hexdigest()


def user_turns(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was said to the agent, message by message."""
    return [
        event["payload"]["text"]
        for event in events
        if event["event_type"] == "user.message" and str(event["payload"].get("text") or "").strip()
    ]


def first_loaded(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the run had in its prompt: a run that was taken up again had the same rows."""
    found = (event["payload"] for event in events if event["event_type"] == "context.loaded")
    return dict(next(iter(found), {}))


def _before(entity: Mapping[str, Any] | None, events: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The record as it was before the run: as it is now, with what the run itself changed taken back."""
    if entity is None:
        return None
    fields = dict(entity.get("fields") or {})
    for event in reversed(events):
        payload = event["payload"]
        if event["event_type"] != "entity.updated" or payload.get("entity_id") != entity["id"]:
            continue
        for name, change in (payload.get("changes") or {}).items():
            if isinstance(change, Mapping) and "from" in change:
                fields[name] = change["from"]
    return {**entity, "fields": fields}
