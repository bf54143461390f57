"""Which earlier turn a message speaks of: 0.85 · similarity + 0.15 · recency over the person's turns."""

from __future__ import annotations

from collections import Counter
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
# Within a conversation the last answer has so much in advance, and a turn gains so much for each word that the message
# takes up from it alone, up to three words. Fitted on the lines of `scripts/gate_data`.
ADVANCE, PER_WORD, MAX_WORDS = 0.15, 0.20, 3.0
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
    message: str, ranked: Sequence[Candidate], turns: Sequence[Turn], here: Sequence[int]
) -> Candidate | None:
    """The turn that the message judges, or None.

    `here` has the positions of the turns of its own conversation: the last answer there is what a message refers to
    that takes up no words of another turn. Without one, the best turn counts if it is similar enough.
    """
    if not here or not ranked:
        return ranked[0] if ranked and ranked[0].similarity >= MIN_SIMILARITY else None
    shared = _words_taken_up(message, turns)
    advance = 0.0 if LOOKING_BACK.intersection(tokens_of(message)) else ADVANCE

    def weight(one: Candidate) -> tuple[float, int]:
        # In another conversation, a word or a figure that happens to occur is not enough.
        alike = one.position in here or one.similarity >= MIN_SIMILARITY
        taken = PER_WORD * min(MAX_WORDS, shared[one.position]) if alike else 0.0
        return one.score + taken + (advance if one.position == max(here) else 0.0), one.position

    return max(ranked, key=weight)


def _words_taken_up(message: str, turns: Sequence[Turn]) -> list[float]:
    """How many words of the message each turn has; a word that several have counts less."""
    said = {stem(word) for word in words(message)}
    shared = [said & {stem(word) for word in words(" ".join(turn.both))} for turn in turns]
    places = Counter(word for some in shared for word in some)
    return [sum(1 / places[word] for word in some) for some in shared]


def as_details(ranked: Sequence[Candidate], target: str, ids: Sequence[str]) -> list[dict[str, Any]]:
    """The best turns as they are kept beside the feedback. The one that was chosen is among them."""
    best = list(ranked[:KEPT])
    if all(ids[one.position] != target for one in best):
        best[-1:] = [one for one in ranked if ids[one.position] == target][:1]
    return [
        {"turn_id": ids[one.position], "similarity": round(one.similarity, 4), "score": round(one.score, 4)}
        for one in best
    ]
