"""Grouping of any number of rows in bounded memory: window after window, each beside samples of the groups before."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.learning.review.clusters import cluster, mean_affinity

WINDOW = 600
CARRIED = 400
SAMPLES = 3


@dataclass
class Grown:
    """A group as it grows. `likeness` is the mean log-odds of its pairs in the last window that had some of it."""

    rows: list[int] = field(default_factory=list)
    likeness: float = 0.0
    last: int = 0


def group_in_windows(
    agents: Sequence[Hashable], apart: frozenset[int], compare: Callable[[Sequence[int]], Any]
) -> list[Grown]:
    """Group rows by their places. `agents` are those that each row is about, and `compare` gives the square matrix of
    the log-odds of some rows. Up to one window this is one clustering; beyond, samples of the groups that grew last
    stand for them."""
    groups: list[Grown] = []
    count = len(agents)
    for number, start in enumerate(range(0, count, WINDOW)):
        groups.sort(key=lambda group: (len(group.rows) < 2, -group.last, group.rows[0]))
        carried = _carry(groups)
        places = [*carried, *range(start, min(count, start + WINDOW))]
        near = compare(places)
        flagged = {place for place, row in enumerate(places) if row in apart}
        for found in cluster(near, flagged, [agents[place] for place in places]):
            rows = [places[place] for place in found]
            _grow(groups, [carried[row] for row in rows if row in carried], rows, mean_affinity(near, found), number)
        groups = [group for group in groups if group.rows]
    return sorted(groups, key=lambda group: group.rows[0])


def _carry(groups: Sequence[Grown]) -> dict[int, Grown]:
    """The group of each sample."""
    carried: dict[int, Grown] = {}
    for group in groups:
        if len(carried) + SAMPLES > CARRIED:
            break
        carried |= dict.fromkeys(group.rows[-SAMPLES:], group)
    return dict(sorted(carried.items()))


def _grow(groups: list[Grown], homes: Sequence[Grown], rows: Sequence[int], likeness: float, number: int) -> None:
    """Add rows to the group that most of their samples are of; without one they are a new group. Samples stay where
    they are: a group is never split or joined by what comes later."""
    if len(homes) == len(rows):
        return
    known = {row for home in homes for row in home.rows}
    new = [row for row in rows if row not in known]
    counts = {id(home): sum(other is home for other in homes) for home in homes}
    home = max(homes, key=lambda one: (counts[id(one)], -one.rows[0]), default=None)
    if home is None:
        home = Grown()
        groups.append(home)
    home.rows = sorted([*home.rows, *new])
    home.last = number
    if len(rows) > 1:
        home.likeness = likeness
