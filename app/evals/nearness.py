"""How near the meaning of texts is, from any function that gives vectors of length 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.evals.similarity import Nearness, Pair

Embed = Callable[[Sequence[str]], list[list[float]]]


def nearness_of(embed: Embed) -> Nearness:
    """Cosines of pairs. Each text is embedded once and by itself: a batch of two costs more than two."""

    def near(pairs: Sequence[Pair]) -> list[float]:
        vectors = {text: embed([text])[0] for text in dict.fromkeys(text for pair in pairs for text in pair)}
        return [sum(x * y for x, y in zip(vectors[a], vectors[b], strict=True)) for a, b in pairs]

    return near
