"""Reactions to turns as reports tell them: names, resource names, and counts by origin and reaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.learning.signals import REACTIONS

NAMES = {meaning.rating: name for name, meaning in REACTIONS.items()}


@dataclass(frozen=True)
class Reaction:
    """One reaction to one turn. `conversation_id` is the name that its sender used for the conversation."""

    id: UUID
    conversation_id: str
    turn_id: str
    rating: str
    text: str | None
    confidence: float
    origin: str
    at: datetime

    @property
    def name(self) -> str:
        return NAMES[self.rating]


@dataclass(frozen=True)
class Counts:
    """How many reactions there are; people's and machines' are all of them, and so are the three kinds."""

    user: int = 0
    machine: int = 0
    ok: int = 0
    not_ok: int = 0
    neutral: int = 0

    @property
    def total(self) -> int:
        return self.user + self.machine


def rating_of(reaction: str) -> str:
    return REACTIONS[reaction].rating


def resource_name(tenant: str, project: str, reaction: Reaction) -> str:
    """What a reaction is called in reports. Whoever has it can find the row."""
    return f"up:{tenant}:{project}:{reaction.conversation_id}:{reaction.turn_id}:reaction:{reaction.id}"


def by_turn(reactions: Iterable[Reaction]) -> dict[str, list[Reaction]]:
    """Reactions under their turns, in the order they came in."""
    turns: dict[str, list[Reaction]] = {}
    for reaction in reactions:
        turns.setdefault(reaction.turn_id, []).append(reaction)
    return turns
