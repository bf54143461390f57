"""What a signal or a reaction says about an answer, how much it counts, and how much of the answer an edit changed."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

SIGNAL_RATINGS = {
    "helpful": "positive",
    "not_helpful": "negative",
    "inaccurate": "negative",
    "unsafe": "negative",
    "edit": "negative",
    "regenerate": "negative",
}
# Asking again is often curiosity: it tells little.
WEIGHTS = {"regenerate": 0.3}
# Who says one of these takes the other back.
OPPOSITE = {"helpful": "not_helpful", "not_helpful": "helpful"}
REACTIONS = {"ok": "positive", "not_ok": "negative", "neutral": "neutral"}


def weight_of(signal: str | None) -> float:
    """How much a row counts: fully, unless its signal is a weak one."""
    return WEIGHTS.get(signal or "", 1.0)


EXACT_UP_TO = 20_000


@dataclass(frozen=True)
class Edited:
    """Percent of the text that was inserted or deleted; `approximate` when it was counted in words."""

    percent: int
    approximate: bool = False


def edit_distance(before: str, after: str) -> Edited:
    """Changed ÷ (common + changed), by insertions and deletions, rounded half up. Two empty texts are equal."""
    if len(before) <= EXACT_UP_TO and len(after) <= EXACT_UP_TO:
        return Edited(_percent(before, after))
    return Edited(_percent(before.split()[:EXACT_UP_TO], after.split()[:EXACT_UP_TO]), approximate=True)


def _percent(before: Sequence[Hashable], after: Sequence[Hashable]) -> int:
    common = common_length(before, after)
    changed = len(before) + len(after) - 2 * common
    whole = common + changed
    return (200 * changed + whole) // (2 * whole) if whole else 0


def common_length(before: Sequence[Hashable], after: Sequence[Hashable]) -> int:
    """Length of the longest common subsequence, one machine word at a time instead of one cell."""
    places: dict[Hashable, int] = {}
    for index, sign in enumerate(before):
        places[sign] = places.get(sign, 0) | (1 << index)
    everything = (1 << len(before)) - 1
    row = everything
    for sign in after:
        hits = row & places.get(sign, 0)
        row = ((row + hits) | (row - hits)) & everything
    return len(before) - row.bit_count()
