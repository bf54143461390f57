"""Groups of rows by how well each fits all the others of its group."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any

JOIN = -1.5
STAY = -2.7
ENTER = -2.1
# Among a few rows about one record everything looks rare and alike, so they must be more so, and none is drawn into a
# group.
FEW, JOIN_FEW = 30, -0.5
SURELY = 2.0
SURE_PAIR = 0.5
ROUNDS = 3
# Rows about two agents that are alike among themselves and less so across are two groups: from so many of each on, if
# they are so much more alike.
MIN_OWN, CLOSER = 3, 0.5
NEVER = -99.0


def cluster(affinity: Any, apart: Collection[int] = (), agents: Sequence[Hashable] = ()) -> list[list[int]]:
    """Groups by average linkage, after which each row moves to the group that it fits best, or leaves. The rows `apart`
    speak for themselves: one of them joins a group only if it says clearly the same. `agents` are those that the rows
    are about."""
    import numpy

    others = [row for row in range(len(affinity)) if row not in apart]
    groups = _settle(within := affinity[numpy.ix_(others, others)], _link(within))
    groups = [[others[place] for place in group] for group in groups]
    groups = [part for group in groups for part in _split_weak_pair(affinity, group)]
    groups = [part for group in groups for part in _split_agents(affinity, group, agents)]
    for row in sorted(apart):
        fits = [float(affinity[row, group].mean()) for group in groups]
        best = max(range(len(groups)), key=fits.__getitem__, default=None)
        if best is not None and fits[best] >= SURELY:
            groups[best].append(row)
        else:
            groups.append([row])
    return sorted(map(sorted, groups), key=lambda rows: rows[0])


def _split_weak_pair(affinity: Any, group: list[int]) -> list[list[int]]:
    """Two rows alone must be surely alike: there is no third that confirms it."""
    if len(group) != 2 or affinity[group[0], group[1]] >= SURE_PAIR:
        return [group]
    return [[group[0]], [group[1]]]


def _split_agents(affinity: Any, group: list[int], agents: Sequence[Hashable]) -> list[list[int]]:
    """A group about two agents as two, if it looks like two."""
    import numpy

    parts: dict[Hashable, list[int]] = {}
    for row in group if agents else ():
        parts.setdefault(agents[row], []).append(row)
    if len(parts) != 2 or min(map(len, parts.values())) < MIN_OWN:
        return [group]
    one, other = parts.values()
    across = float(affinity[numpy.ix_(one, other)].mean())
    within = min(mean_affinity(affinity, part) for part in parts.values())
    return [one, other] if within - across > CLOSER else [group]


def _link(affinity: Any) -> list[int]:
    """Join the two groups with the highest mean affinity until none is high enough. The group of each row is its
    first row."""
    import numpy

    count = len(affinity)
    mean = affinity.copy()
    numpy.fill_diagonal(mean, NEVER)
    size = numpy.ones(count, dtype=numpy.float32)
    home = numpy.arange(count)
    best = mean.max(axis=1) if count else mean
    join = _enough_to_join(count)
    while count and best.max() >= join:
        a = int(best.argmax())
        b = int(mean[a].argmax())
        a, b = min(a, b), max(a, b)
        row = (mean[a] * size[a] + mean[b] * size[b]) / (size[a] + size[b])
        row[(mean[a] <= NEVER) | (mean[b] <= NEVER)] = NEVER
        lost = numpy.flatnonzero((best == mean[:, a]) | (best == mean[:, b]))
        mean[a], mean[:, a] = row, row
        mean[b], mean[:, b] = NEVER, NEVER
        home[home == b] = a
        size[a] += size[b]
        best = numpy.maximum(best, mean[:, a])
        touched = numpy.union1d(lost, [a, b])
        best[touched] = mean[touched].max(axis=1)
    return [int(place) for place in home]


def _enough_to_join(count: int) -> float:
    return JOIN if count >= FEW else JOIN_FEW


def _settle(affinity: Any, home: list[int]) -> list[list[int]]:
    """Move rows to where they fit best. A row that fits nowhere stands alone."""
    import numpy

    places = [place for place in sorted(set(home)) if home.count(place) > 1]
    of = [places.index(place) if place in places else -1 for place in home]
    near = affinity.copy()
    numpy.fill_diagonal(near, 0)
    inside = numpy.asarray([[one == place for place in range(len(places))] for one in of], dtype=numpy.float32)
    inside = inside.reshape(len(home), len(places))
    sums = near @ inside
    enter = ENTER if len(home) >= FEW else _enough_to_join(len(home))
    for _ in range(ROUNDS if places else 0):
        before = list(of)
        for row in range(len(home)):
            size = inside.sum(axis=0) - inside[row]
            fits = numpy.where(size > 0, sums[row] / numpy.maximum(size, 1), NEVER)
            best = int(fits.argmax()) if fits.max() > (STAY if of[row] >= 0 else enter) else -1
            if best != of[row]:
                _move(row, of[row], best, inside, sums, near)
                of[row] = best
        if of == before:
            break
    groups = [[row for row, one in enumerate(of) if one == place] for place in range(len(places))]
    alone = [[row] for row, one in enumerate(of) if one < 0]
    return sorted([*filter(None, groups), *alone], key=lambda rows: rows[0])


def _move(row: int, old: int, new: int, inside: Any, sums: Any, near: Any) -> None:
    if old >= 0:
        inside[row, old] = 0
        sums[:, old] -= near[:, row]
    if new >= 0:
        inside[row, new] = 1
        sums[:, new] += near[:, row]


def mean_affinity(affinity: Any, group: Sequence[int]) -> float:
    """The mean over the pairs of a group; 0 for a single row."""
    import numpy

    inside = affinity[numpy.ix_(group, group)]
    return float(inside[numpy.triu_indices(len(group), 1)].mean()) if len(group) > 1 else 0.0
