"""The gate's trained model: a layer over hashed features and a sentence vector, and small networks that read along."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from app.learning.gate.features import features_of
from app.learning.gate.network import Network, rows_of
from app.learning.gate.reading import Reading

LABELS: tuple[str | None, ...] = (None, "not_ok", "ok", "neutral")
BUCKETS = 1 << 16
WEIGHTS = Path(__file__).parent / "weights.npz"


@dataclass(frozen=True)
class Linear:
    """Weights by bucket and label, those of the sentence vector, a constant, and the words that it knows."""

    table: Any
    vector: Any
    bias: Any
    vocabulary: frozenset[str]

    def scores(self, reading: Reading, vector: Sequence[float]) -> Any:
        """How much speaks for each label."""
        import numpy

        rows = buckets_of(features_of(reading, self.vocabulary))
        found = self.table[rows].sum(axis=0) / (len(rows) + 1) ** 0.5
        return found + numpy.asarray(vector, dtype=numpy.float32) @ self.vector + self.bias


@dataclass(frozen=True)
class Model:
    """Both ways of reading count the same. `sharpness` turns their agreement into a confidence."""

    linear: Linear
    networks: list[Network]
    sharpness: float

    def probabilities(self, reading: Reading, vector: Sequence[float]) -> list[float]:
        """How likely each label is."""
        import numpy

        rows = rows_of(reading)
        read = sum(log_softmax(network.scores(rows)) for network in self.networks) / len(self.networks)
        agreed = (log_softmax(self.linear.scores(reading, vector)) + log_softmax(read)) / 2
        return [float(chance) for chance in numpy.exp(log_softmax(self.sharpness * agreed))]


def log_softmax(scores: Any) -> Any:
    import numpy

    moved = scores - scores.max(axis=-1, keepdims=True)
    return moved - numpy.log(numpy.exp(moved).sum(axis=-1, keepdims=True))


def buckets_of(features: Iterable[str]) -> list[int]:
    """The buckets of the features, each once, in order."""
    return sorted({crc32(name.encode()) % BUCKETS for name in features})


@cache
def load_model() -> Model:
    """Read the weights that `scripts/fit_gate.py` wrote. The table is kept in steps of a byte."""
    import numpy

    with numpy.load(WEIGHTS, allow_pickle=False) as stored:
        named = {name: stored[name] for name in stored.files}
    table = named["table"].astype(numpy.float32) * named["step"]
    vocabulary = frozenset(bytes(named["vocabulary"]).decode().split("\n"))
    networks: dict[str, dict[str, Any]] = {}
    for name, values in named.items():
        net, slash, part = name.partition("/")
        if slash:
            networks.setdefault(net, {})[part] = values.astype(numpy.float32)
    linear = Linear(table, named["vector"], named["bias"], vocabulary)
    return Model(linear, [Network(networks[net]) for net in sorted(networks)], float(named["sharpness"]))
