"""Vectors of what people said that see each word in its context. They connect complaints that share no word, and cost
10 ms each, so a review has them for a limited number of texts; beyond, the vectors of words must do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.text import encoder

MAX_TEXTS = 800
MAX_LENGTH = 400


class SentenceVectors:
    """The vectors of the texts of one review. Each text is encoded once."""

    def __init__(self, max_texts: int = MAX_TEXTS) -> None:
        self._left = max_texts if encoder.is_installed() else 0
        self._vectors: dict[str, Any] = {}

    def encode(self, texts: Sequence[str]) -> Any | None:
        """A matrix with a row for each text; None where the encoder is missing or these are too many."""
        import numpy

        cut = [text[:MAX_LENGTH] for text in texts]
        new = [text for text in dict.fromkeys(cut) if text not in self._vectors]
        if len(new) > self._left or not cut:
            return None
        if new:
            self._vectors.update(zip(new, encoder.encode(new), strict=True))
            self._left -= len(new)
        return numpy.stack([self._vectors[text] for text in cut])
