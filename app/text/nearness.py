"""How near the meaning of texts is, from any function that gives vectors of length 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import mul

from app.text.similarity import Nearness, Pair

Embed = Callable[[Sequence[str]], list[list[float]]]


def nearness_of(embed: Embed, remembered: int = 512) -> Nearness:
    """Cosines of pairs. Each text is embedded by itself, since a batch of two costs more than two; the last ones are
    remembered, since the same golden is compared with many replays."""

    @lru_cache(remembered)
    def vector(text: str) -> list[float]:
        return embed([text])[0]

    def near(pairs: Sequence[Pair]) -> list[float]:
        return [cosine(vector(a), vector(b)) for a, b in pairs]

    return near


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """The cosine of two vectors of length 1."""
    return float(sum(map(mul, a, b)))
