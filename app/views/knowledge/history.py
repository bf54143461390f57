"""The history of a knowledge row as it reads: what changed at each step, word by word."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from app.services.knowledge.lists import HistoryRow
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
    "proposed": "Proposed",
}
NAMED_FIELDS = (("type", "kind"), ("context", "when"), ("agent_id", "agent"), ("entity_type_id", "entity type"))


@dataclass(frozen=True)
class Step:
    """One change: what happened, how the text changed, and what else did as `(name, before, after)`."""

    row: HistoryRow
    word: str
    diff: list[Part]
    changes: list[tuple[str, str, str]]


def steps_of(history: Iterable[HistoryRow], scopes: dict[str, Any]) -> list[Step]:
    """Every step, newest first. `scopes` is what the ids of agents and types are called."""
    names = {str(one.id): one.slug for one in (*scopes["agents"], *scopes["types"])}
    return [Step(row, _word(row), _diff(row), _changes(row, names)) for row in history]


def _word(row: HistoryRow) -> str:
    if row.before.get("state") == "proposed" and row.action in ("active", "inactive"):
        return "Approved" if row.action == "active" else "Rejected"
    return WORDS.get(row.action, row.action.replace("_", " ").capitalize())


def _diff(row: HistoryRow) -> list[Part]:
    before, after = row.before.get("content"), row.after.get("content")
    if not before or not after or before == after:
        return []
    return word_diff(str(before), str(after))


def _changes(row: HistoryRow, names: dict[str, str]) -> list[tuple[str, str, str]]:
    if not row.before:
        return []
    found = []
    for name, word in NAMED_FIELDS:
        before, after = row.before.get(name), row.after.get(name)
        if before != after:
            found.append((word, _name_value(before, names), _name_value(after, names)))
    if row.before.get("pinned") != row.after.get("pinned"):
        now = bool(row.after.get("pinned"))
        found.append(("always first", "no" if now else "yes", "yes" if now else "no"))
    return found


def _name_value(value: Any, names: dict[str, str]) -> str:
    return names.get(str(value), str(value)) if value else "none"
