"""Sentence vectors from a model whose weights come with its package: nothing is downloaded, ever. A vector is kept with
`MODEL_NAME`, and vectors of two models are never compared."""

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from operator import mul
from pathlib import Path
from threading import Lock
from typing import Any

from app.text.similarity import Nearness, Pair

MODEL_NAME = "wordllama-l2-supercat-256"
DIMENSIONS = 256
# A knowledge row has at most 2,000 characters and a turn that is compared rarely more; the mean of the words beyond
# says little and costs memory.
MAX_LENGTH = 4000
BATCH = 64

Embed = Callable[[Sequence[str]], list[list[float]]]

_lock = Lock()
_model: Any = None


def embed(texts: Sequence[str]) -> list[list[float]]:
    """A vector of length 1 for each text, in order; all zeros for a text without a word."""
    found: list[list[float]] = []
    for start in range(0, len(texts), BATCH):
        batch = [text.strip()[:MAX_LENGTH] for text in texts[start : start + BATCH]]
        split = _load().tokenizer.encode_batch(batch, add_special_tokens=False)
        found += [_mean(_load().embedding, words.ids) for words in split]
    return found


def _mean(of_words: Any, ids: list[int]) -> list[float]:
    """The mean of the words' vectors, in length 1. The package's own way pads and masks, which takes twice as long."""
    if not ids:
        return [0.0] * DIMENSIONS
    mean = of_words[ids].sum(axis=0) / len(ids)
    length = (mean * mean).sum() ** 0.5
    vector: list[float] = (mean / (length or 1)).tolist()
    return vector


def near_pairs(
    vectors: Sequence[Sequence[float]], at_least: float, most_each: int = 20
) -> list[tuple[int, int, float]]:
    """The pairs of texts, as indices, whose vectors are near; of each text at most its nearest few. Exact: every vector
    is compared with every other, a few hundred rows at a time so that memory stays small."""
    if len(vectors) < 2:
        return []
    import numpy

    matrix = numpy.asarray(vectors, dtype=numpy.float32)
    found: dict[tuple[int, int], float] = {}
    for start in range(0, len(matrix), 256):
        block = matrix[start : start + 256] @ matrix.T
        for offset, row in enumerate(block):
            one = start + offset
            row[one] = -1.0
            candidates = numpy.flatnonzero(row >= at_least)
            best = candidates[numpy.argsort(-row[candidates], kind="stable")][:most_each]
            for other in best.tolist():
                found[(min(one, other), max(one, other))] = float(row[other])
    return [(a, b, near) for (a, b), near in sorted(found.items())]


def nearness(vector: Sequence[float], others: Sequence[Sequence[float]]) -> list[float]:
    """The cosine of one vector of length 1 with each of many."""
    if not others:
        return []
    import numpy

    matrix = numpy.asarray(others, dtype=numpy.float32)
    return list((matrix @ numpy.asarray(vector, dtype=numpy.float32)).tolist())


def nearness_of(embed: Embed, remembered: int = 512) -> Nearness:
    """The cosines of pairs of texts. Each text is embedded alone, since a batch of two costs more than two; the last
    ones are remembered, since the same golden is compared with many replays."""

    @lru_cache(remembered)
    def vector(text: str) -> list[float]:
        return embed([text])[0]

    def near(pairs: Sequence[Pair]) -> list[float]:
        # `embed` gives vectors of length 1, so the product is the cosine.
        return [float(sum(map(mul, vector(a), vector(b)))) for a, b in pairs]

    return near


def _load() -> Any:
    """The model, read from disk once; other threads wait for it."""
    global _model
    with _lock:
        if _model is None:
            _model = _read_model()
        return _model


def _read_model() -> Any:
    # On import the package sets up the root logger, unless someone has done so: a handler that does nothing is enough
    # to keep our own logging as it is.
    quiet = logging.NullHandler()
    logging.getLogger().addHandler(quiet)
    try:
        package = import_module("wordllama")
    finally:
        logging.getLogger().removeHandler(quiet)
    # The package looks for its tokenizer under a folder it does not have, and would then go to the network; told that
    # its own folder is the cache, it finds it there.
    folder = Path(str(package.__file__)).parent
    model = package.WordLlama.load(dim=DIMENSIONS, cache_dir=folder, disable_download=True)
    model.tokenizer.no_padding()
    return model
