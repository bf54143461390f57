"""Reactions to turns as reports tell them: names, resource names, and counts by origin and reaction."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from app.learning.signals import REACTIONS

KIND = "turn.log.reaction"
UserType = Literal["privileged", "registered", "anonymous"]
USER_TYPES: dict[str, UserType] = {"owner": "privileged", "admin": "privileged", "member": "registered"}
PRINTED_VALUE = 200
NAMES = {rating: name for name, rating in REACTIONS.items()}


@dataclass(frozen=True, kw_only=True)
class Reaction:
    """One reaction to one turn. `conversation_id` is the sender's name of the conversation, `track_id` its project."""

    id: UUID
    tenant: str
    track_id: str
    conversation_id: str
    turn_id: str
    reaction: str
    text: str | None
    confidence: float
    origin: str
    ts: datetime
    user_type: UserType | None = None

    @property
    def rn(self) -> str:
        """The name of the reaction in reports, by which its row can be found."""
        return f"up:{self.tenant}:{self.track_id}:{self.conversation_id}:{self.turn_id}:reaction:{self.id}"

    @property
    def tags(self) -> list[str]:
        """The tags under which an index finds the reaction."""
        return [f"artifact:{KIND}", f"turn:{self.turn_id}", f"origin:{self.origin}", f"track:{self.track_id}"]


@dataclass(frozen=True)
class LogEntry:
    """One thing that happened in a turn: a message, a tool call with its result, or a reaction."""

    type: str
    at: datetime
    text: str | None = None
    name: str | None = None
    arguments: Any = None
    output: Any = None
    is_error: bool | None = None


def user_type_of(role: str | None, origin: str) -> UserType | None:
    """What sort of person reacted: `privileged` are owners and admins, `anonymous` are people without a membership."""
    return None if origin != "user" else USER_TYPES.get(role or "", "anonymous")


def reaction_entry(reaction: Reaction) -> LogEntry:
    """A reaction as an entry of its turn's log."""
    return LogEntry("feedback", reaction.ts, reaction.text, name=reaction.reaction)


def print_log(entries: Sequence[LogEntry]) -> str:
    """A turn log as text to read: one line for each entry, long tool results cut."""
    return "\n".join(_print_entry(entry) for entry in entries)


def _print_entry(entry: LogEntry) -> str:
    if entry.type == "tool_call":
        arrow = "!>" if entry.is_error else "->"
        return f"[tool] {entry.name}({_print_value(entry.arguments)}) {arrow} {_print_value(entry.output)}"
    if entry.type == "feedback":
        return f"[feedback] {entry.name}" + (f": {entry.text}" if entry.text else "")
    return f"[{entry.type}] {entry.text or ''}"


def _print_value(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= PRINTED_VALUE else text[: PRINTED_VALUE - 1] + "…"


def by_turn(reactions: Iterable[Reaction]) -> dict[str, list[Reaction]]:
    """Reactions under their turns, in the order they came in."""
    turns: dict[str, list[Reaction]] = {}
    for reaction in reactions:
        turns.setdefault(reaction.turn_id, []).append(reaction)
    return turns
