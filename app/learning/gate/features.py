"""What the gate's model looks at: short runs of tokens, the kinds of words in a clause, and where they are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import log2

from app.learning.gate.reading import Reading

GOOD, BAD = frozenset(("~pos", "~succeed")), frozenset(("~neg", "~fault", "~fail"))
SIGNS = "~_#<?!"


def features_of(reading: Reading, vocabulary: frozenset[str]) -> set[str]:
    """The names of all features that a message has."""
    clauses = reading.clauses(vocabulary)
    found = set(_of_whole(reading, len(clauses)))
    for place, (words, classes) in enumerate(clauses):
        found.update(_runs(["^", *words, "$"], "", 3))
        found.update(_runs(["^", *classes, "$"], "c:", 4))
        kinds = sorted({name for name in classes if name[0] in SIGNS})
        found.update(f"p:{a}{b}" for a, b in combinations(kinds, 2))
        if place == 0:
            found.update(_opening(words, classes))
        if place == len(clauses) - 1:
            found.update(f"lc:{name}" for name in classes)
    return found


def _runs(tokens: list[str], prefix: str, longest: int) -> Iterator[str]:
    for length in range(1, longest + 1):
        for start in range(len(tokens) - length + 1):
            yield prefix + " ".join(tokens[start : start + length])
    for start in range(len(tokens) - 2):
        yield f"{prefix}{tokens[start]} * {tokens[start + 2]}"


def _opening(words: list[str], classes: list[str]) -> Iterator[str]:
    for length in (1, 2, 3):
        yield "F:" + " ".join(words[:length])
        yield "FC:" + " ".join(classes[:length])
    yield from (f"f:{word}" for word in words)
    yield from (f"fc:{name}" for name in classes)


def _of_whole(reading: Reading, clauses: int) -> Iterator[str]:
    names = reading.classes
    yield f"len:{min(6, int(log2(len(names) + 1)))}"
    yield f"clauses:{min(4, clauses)}"
    yield f"asked:{reading.agent_asked:d}"
    for place in "aqen":
        yield f"said:{place}{min(3, sum(name in (f'_{place}', f'#{place}') for name in names))}"
    yield f"good:{min(3, sum(name in GOOD for name in names))}"
    yield f"bad:{min(3, sum(name in BAD for name in names))}"
