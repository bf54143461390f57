"""A small network over the words of a message: what each word means, what it does, and where it was said before.

Each word becomes a row: its vector, its class and its place. Filters look at runs of one to five rows, and the
strongest match of each filter, wherever it is in the message, decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from app.learning.gate.reading import CLAUSE_END, Reading, known_roles
from app.text.embeddings import DIMENSIONS, embed

WIDTHS = (1, 2, 3, 5)
# Of a longer message the beginning and the end are read.
MAX_ROWS, LAST_ROWS = 48, 16
PLACES = ("_a", "_q", "_e", "_n", "#a", "#q", "#e", "#n")
# Word vectors are short; about this long they train best.
STRETCH = 3.0


@cache
def _columns() -> dict[str, int]:
    """Which column of a row stands for a class or a place."""
    names = (*known_roles(), *PLACES)
    return {name: DIMENSIONS + place for place, name in enumerate(names)}


def row_width() -> int:
    """The vector, the classes and places, and four marks: first clause, first word, end of a clause, a word at all."""
    return DIMENSIONS + len(_columns()) + 4


def rows_of(reading: Reading) -> Any:
    """The matrix of a message, one row for each token; at least as many rows as the widest filter sees."""
    import numpy

    tokens = list(zip(reading.tokens, reading.roles, reading.places, strict=True))
    if len(tokens) > MAX_ROWS:
        tokens = tokens[: MAX_ROWS - LAST_ROWS] + tokens[-LAST_ROWS:]
    matrix = numpy.zeros((max(WIDTHS[-1], len(tokens)), row_width()), dtype=numpy.float32)
    clause = 0
    for place, (token, role, said) in enumerate(tokens):
        row = matrix[place]
        row[:DIMENSIONS] = _vector(token)
        if role:
            row[_columns()[role]] = 1
        if token[0].isalnum():
            row[_columns()[said]] = 1
        ends = token in CLAUSE_END or token[0] in "?!"
        row[-4:] = (clause == 0, place == 0, ends, 1)
        clause += ends
    return matrix


@lru_cache(8192)
def _vector(token: str) -> Any:
    import numpy

    return numpy.asarray(embed([token])[0], dtype=numpy.float32) * STRETCH


@dataclass(frozen=True)
class Network:
    """The trained weights of one network."""

    weights: Mapping[str, Any]

    def scores(self, matrix: Any) -> Any:
        """How much speaks for each label."""
        import numpy

        hidden = numpy.maximum(matrix @ self.weights["in"] + self.weights["in_bias"], 0) * matrix[:, -1:]
        best = []
        for width in WIDTHS:
            runs = numpy.concatenate([hidden[at : len(hidden) - width + 1 + at] for at in range(width)], axis=1)
            found = runs @ self.weights[f"filter{width}"] + self.weights[f"filter{width}_bias"]
            best.append(numpy.maximum(found.max(axis=0), 0))
        return numpy.concatenate(best) @ self.weights["out"] + self.weights["out_bias"]
