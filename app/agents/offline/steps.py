"""The `offline` model: it follows rules, it is no language model, and it says so wherever its output shows.

A pure function of messages and tool definitions: no clock, no chance, no database. Every call plays the turn from its
beginning over the results that the messages hold, so the same messages give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.agents.offline.conversation import offered, read_talk
from app.agents.offline.turn import Move, next_move
from app.errors import Refused

NAME = "offline"


class CannotJudge(Refused):
    """Structured output was asked for. A judge leaves the case unjudged, a reviewer takes the deterministic way."""

    title = "The offline model cannot judge"

    def __init__(self) -> None:
        super().__init__("offline cannot judge")


def answer(messages: Sequence[Any], definitions: Sequence[Any], instructions: str | None = None) -> Move:
    """What the model does next: its call, or the text that ends the turn."""
    return next_move(read_talk(messages, instructions), offered(definitions))


def call_id(messages: Sequence[Any]) -> str:
    """A name for the next call that no other call in these messages has, the same for the same messages."""
    calls = sum(part.part_kind == "tool-call" for message in messages for part in message.parts)
    return f"offline-{calls + 1}"


def places_of(move: Move) -> dict[str, list[int]]:
    """What an answer says of the rules in its prompt: the rows that applied, and those in none of the forms it reads.

    A prompt holds no ids, so rows are given by their place in it; see `rule_ids`.
    """
    return {"applied_rules": list(move.applied), "unread_rules": list(move.unread)}


def rule_ids(places: Sequence[int], row_ids: Sequence[Any]) -> list[str]:
    """The ids of rows, from their places and the ids of the prompt's rows in their order."""
    return [str(row_ids[place]) for place in places if place < len(row_ids)]


def rules_of_turn(
    messages: Sequence[Any], definitions: Sequence[Any], row_ids: Sequence[Any], instructions: str | None = None
) -> dict[str, list[str]]:
    """What `agent.message` carries for the last turn of these messages, played once more."""
    found = places_of(answer(messages, definitions, instructions))
    return {name: rule_ids(places, row_ids) for name, places in found.items()}
