"""How much of a text was changed."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

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
