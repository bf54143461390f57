"""Which earlier turn a message speaks of: 0.85 · similarity + 0.15 · recency over the person's turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.learning.gate.reading import Turn, tokens_of
from app.text.embeddings import Embed, embed, nearness
from app.text.words import stem, words

DAYS = 365
MAX_TURNS = 500
KEPT = 5
SIMILARITY_SHARE, RECENCY_SHARE = 0.85, 0.15
MIN_SIMILARITY = 0.20
# A message is about the last answer unless another turn is nearer by so much.
MARGIN = 0.10
SHORT = 6
POINTERS = frozenset(
    """that this it its it's that's thats these those you your you're youre u ur wrong correct right perfect works
    worked exactly no nope""".split()  # noqa: SIM905 - a list of words reads better as a text.
)
# A message with one of these may mean an older answer, so the last one has no advantage.
LOOKING_BACK = frozenset(("earlier", "previous", "previously", "before", "first", "yesterday", "ago", "back", "week"))


@dataclass(frozen=True)
class Candidate:
    """A turn that a message may speak of. `position` is its place among the turns that were given."""

    position: int
    similarity: float
    score: float


def rank_turns(message: str, turns: Sequence[Turn], ages: Sequence[float], embed: Embed = embed) -> list[Candidate]:
    """The turns by score, best first; of equal ones the later first. `ages` are in days, one for each turn.

    A turn is as similar as the nearer of its question and its answer."""
    if not turns:
        return []
    vectors = embed([message, *(turn.user for turn in turns), *(turn.agent for turn in turns)])
    near = nearness(vectors[0], vectors[1:])
    both = [max(question, answer) for question, answer in zip(near[: len(turns)], near[len(turns) :], strict=True)]
    found = [
        Candidate(position, similarity, SIMILARITY_SHARE * similarity + RECENCY_SHARE * (1 - age / DAYS))
        for position, (similarity, age) in enumerate(zip(both, ages, strict=True))
    ]
    return sorted(found, key=lambda one: (-one.score, -one.position))


def choose_target(
    message: str, ranked: Sequence[Candidate], turns: Sequence[Turn], last: int | None
) -> Candidate | None:
    """The turn that the message judges, or None. `last` is the position of the latest turn of the same conversation, if
    there is one: a message that refers to its answer is about it, unless another turn is clearly nearer."""
    best = ranked[0] if ranked else None
    latest = next((one for one in ranked if one.position == last), None)
    if best is not None and latest is not None and refers_to(message, turns[latest.position]):
        margin = 0.0 if LOOKING_BACK.intersection(tokens_of(message)) else MARGIN
        return latest if best.score - latest.score <= margin else best
    return best if best is not None and best.similarity >= MIN_SIMILARITY else None


def refers_to(message: str, turn: Turn) -> bool:
    """Whether a message can be about this turn without naming it: it points, is short, or takes up a word."""
    said = tokens_of(message)
    if len(said) <= SHORT or POINTERS.intersection(said):
        return True
    return bool({stem(word) for word in words(message)} & {stem(word) for word in words(turn.text)})


def as_details(candidates: Sequence[Candidate], ids: Sequence[str]) -> list[dict[str, Any]]:
    """The best turns as they are kept beside the feedback."""
    return [
        {"turn_id": ids[one.position], "similarity": round(one.similarity, 4), "score": round(one.score, 4)}
        for one in candidates[:KEPT]
    ]
