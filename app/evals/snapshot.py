"""Everything that went into a run, frozen: what a golden keeps so that it can always be replayed."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from math import isfinite
from typing import Any

SHAPE = 1
# All that one golden keeps, and each of its replays a copy of.
SNAPSHOT_BYTES = 2_000_000
# The events that say what went into a run.
INPUT_EVENTS = ("user.message", "context.loaded", "entity.updated", "response.submitted")


def snapshot_hash(snapshot: Mapping[str, Any]) -> str:
    """Changes with every byte of the snapshot, and with nothing else. The database computes the same."""
    return sha256(_canonical(snapshot).encode()).hexdigest()


def _canonical(value: Any) -> str:
    """JSON with sorted names. Numbers are written in full, as the database gives them back: `1e-7` as `0.0000001`."""
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
    """A hash of a knowledge row's content."""
    return sha256(json.dumps([row.get("content"), row.get("context")], ensure_ascii=False).encode()).hexdigest()


@dataclass(frozen=True)
class Gathered:
    """What the events of a session say about its inputs."""

    turns: list[str]
    loaded: dict[str, Any]
    entity: dict[str, Any] | None
    criteria_set_id: Any = None


def gather_inputs(events: Iterable[tuple[str, Mapping[str, Any]]], entity: Mapping[str, Any] | None) -> Gathered:
    """The inputs of a run from its events in order. The prompt counts as it was loaded first; the record is as it is
    now, with the run's own changes undone."""
    turns: list[str] = []
    loaded: dict[str, Any] | None = None
    before: dict[str, Any] = {}
    criteria_set_id: Any = None
    submitted, kept = False, 0
    for event_type, payload in events:
        if event_type == "user.message" and str(payload.get("text") or "").strip():
            turns.append(payload["text"])
        elif event_type == "context.loaded" and loaded is None:
            loaded = dict(payload)
        elif event_type == "entity.updated" and entity is not None and payload.get("entity_id") == entity["id"]:
            # Beyond what a golden keeps the session is refused anyway, so the rest is not collected.
            for name, value in _changed_from(payload).items():
                if name not in before and kept <= SNAPSHOT_BYTES:
                    before[name] = value
                    kept += len(_text(value))
        elif event_type == "response.submitted" and not submitted:
            submitted, criteria_set_id = True, payload.get("criteria_set_id")
    record = {**entity, "fields": {**(entity.get("fields") or {}), **before}} if entity is not None else None
    return Gathered(turns, loaded or {}, record, criteria_set_id)


def _changed_from(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The values that an update replaced."""
    changes = payload.get("changes")
    pairs = changes.items() if isinstance(changes, Mapping) else ()
    return {name: one["from"] for name, one in pairs if isinstance(one, Mapping) and "from" in one}
