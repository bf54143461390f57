"""The history of a knowledge row as it reads: what changed at each step, word by word."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from app.text.diff import Part, word_diff

WORDS = {
    "created": "Written",
    "edited": "Edited",
    "active": "Activated",
    "inactive": "Deactivated",
    "superseded": "Replaced",
    "merged": "Merged into another",
    "rolled_back": "Taken back to an earlier version",
    "reopened": "Decision taken back",
    "deleted": "Deleted",
}
NAMED_FIELDS = {
    "type": "kind",
    "context": "when",
    "agent_id": "agent",
    "entity_type_id": "entity type",
    "pinned": "always first",
}


@dataclass(frozen=True)
class Step:
    """One change: what happened, how the text changed, and what else did as `(name, before, after)`."""

    row: Any
    word: str
    diff: list[Part]
    changes: list[tuple[str, str, str]]


def steps_of(history: Iterable[Any], scopes: dict[str, Any]) -> list[Step]:
    """Every step, newest first. `scopes` is what the ids of agents and types are called."""
    names = {str(one.id): one.slug for one in (*scopes["agents"], *scopes["types"])} | {"True": "yes", "False": "no"}
    return [Step(row, _word(row.action, row.before), *_compare(row.before, row.after, names)) for row in history]


def _word(action: str, before: dict[str, Any]) -> str:
    if before.get("state") == "proposed" and action in ("active", "inactive"):
        return "Approved" if action == "active" else "Rejected"
    return WORDS.get(action, action)


def _compare(
    before: dict[str, Any], after: dict[str, Any], names: dict[str, str]
) -> tuple[list[Part], list[tuple[str, str, str]]]:
    if not before:
        return [], []
    texts = str(before.get("content", "")), str(after.get("content", ""))
    changes = [
        (word, _name_value(before.get(name), names), _name_value(after.get(name), names))
        for name, word in NAMED_FIELDS.items()
        if before.get(name) != after.get(name)
    ]
    return word_diff(*texts) if texts[0] != texts[1] else [], changes


def _name_value(value: Any, names: dict[str, str]) -> str:
    return "none" if value in (None, "") else names.get(str(value), str(value))
