"""The gate's trained model: one layer from hashed features and a sentence vector to the four verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

LABELS: tuple[str | None, ...] = (None, "not_ok", "ok", "neutral")
BUCKETS = 1 << 16
WEIGHTS = Path(__file__).parent / "weights.npz"


@dataclass(frozen=True)
class Model:
    """Weights by bucket and label, those of the sentence vector, a constant, and the words it knows."""

    table: Any
    vector: Any
    bias: Any
    vocabulary: frozenset[str]

    def probabilities(self, features: Iterable[str], vector: Sequence[float]) -> list[float]:
        """How likely each label is."""
        import numpy

        rows = buckets_of(features)
        scores = self.bias + self.table[rows].sum(axis=0) / (len(rows) + 1) ** 0.5
        scores = scores + numpy.asarray(vector, dtype=numpy.float32) @ self.vector
        grown = numpy.exp(scores - scores.max())
        return list((grown / grown.sum()).tolist())


def buckets_of(features: Iterable[str]) -> list[int]:
    """The buckets of the features, each once, in order."""
    return sorted({crc32(name.encode()) % BUCKETS for name in features})


@cache
def load_model() -> Model:
    """Read the weights that `scripts/fit_gate.py` wrote. The table is kept in steps of a byte."""
    import numpy

    with numpy.load(WEIGHTS, allow_pickle=False) as stored:
        table = stored["table"].astype(numpy.float32) * stored["step"]
        words = bytes(stored["vocabulary"]).decode().split("\n")
        return Model(table, stored["vector"], stored["bias"], frozenset(words))
