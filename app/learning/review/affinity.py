"""How likely two signals complain about the same thing.

Each channel gives a cosine, and a logistic regression on a labelled week (`scripts/fit_review.py`) weighs them. No
channel knows a word by itself: rare words count more than frequent ones, whatever they are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from app.learning.hygiene.words import stem
from app.learning.review.moments import Moment, content_words
from app.text.embeddings import DIMENSIONS, embed

WEIGHTS = {
    "meaning of what was said": 1.58,
    "weighted meaning of what was said": 1.27,
    "words of what was said": 1.01,
    "meaning of the talk": 1.35,
    "weighted meaning of all": 1.88,
    "words of all": 1.11,
    "values": 1.88,
    "fields": 1.33,
    "kinds": 0.88,
    "shapes": 0.55,
    "agent": 0.14,
}
BIAS = -4.96
# Texts about other things that are thought of beside a batch, so that three rows that say the same are still alike.
UNSEEN = 30
IN_WORDS = frozenset(name for name in WEIGHTS if name.endswith("of what was said"))
# What happened counts for so much at most; words count for more than in the regression, which saw few that are alike.
MOST_SHOWN, WORDS_COUNT = 6.0, 1.3
SAME_MOMENT, SAME_WORDS, ENOUGH_WORDS = 6.0, 0.5, 4
Bags = Sequence[Counter[Any]]


def affinities(moments: Sequence[Moment], agents: Sequence[Hashable]) -> Any:
    """The log-odds of each pair, as a square matrix; its diagonal means nothing."""
    import numpy

    words, shown = (numpy.zeros((len(moments), len(moments)), dtype=numpy.float32) for _ in range(2))
    for name, make in channels(moments, agents).items():
        matrix = make()
        part = words if name in IN_WORDS else shown
        part += numpy.float32(WEIGHTS[name]) * (matrix @ matrix.T)
    # Of two different complaints about one answer all but the words is the same, so then the words decide.
    wordy = numpy.asarray([len(content_words(moment.said)) >= ENOUGH_WORDS for moment in moments])
    apart = (shown > SAME_MOMENT) & (words < SAME_WORDS) & wordy[:, None] & wordy[None, :]
    shown = numpy.where(apart, numpy.float32(0), numpy.float32(MOST_SHOWN) * numpy.tanh(shown / MOST_SHOWN))
    return numpy.float32(BIAS) + WORDS_COUNT * words + shown


def channels(moments: Sequence[Moment], agents: Sequence[Hashable]) -> dict[str, Callable[[], Any]]:
    """What makes the vectors of each channel, one row of length 1 (or 0) for each moment."""
    said, everything = [moment.said for moment in moments], [moment.everything for moment in moments]
    said_words = [Counter(content_words(text)) for text in said]
    all_words = [Counter(content_words(text)) for text in everything]
    return {
        "meaning of what was said": lambda: _embed(said),
        "weighted meaning of what was said": lambda: _embed_by_weight(said_words),
        "words of what was said": lambda: _weigh([_stems(bag) for bag in said_words]),
        "meaning of the talk": lambda: _embed([moment.talk for moment in moments]),
        "weighted meaning of all": lambda: _embed_by_weight(all_words),
        "words of all": lambda: _weigh([_stems(bag) for bag in all_words]),
        "values": lambda: _weigh([moment.values for moment in moments]),
        "fields": lambda: _weigh([moment.fields for moment in moments]),
        "kinds": lambda: _weigh([moment.kinds for moment in moments]),
        "shapes": lambda: _weigh([moment.shapes for moment in moments]),
        "agent": lambda: _weigh([Counter([agent]) for agent in agents]),
    }


def _stems(bag: Counter[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for word, count in bag.items():
        found[stem(word)] += count
    return found


def _embed(texts: Sequence[str]) -> Any:
    import numpy

    return numpy.asarray(embed(texts), dtype=numpy.float32)


def _rarity(bags: Bags) -> dict[Any, float]:
    seen = Counter(mark for bag in bags for mark in bag)
    return {mark: math.log(1 + (len(bags) + UNSEEN) / (1 + count)) for mark, count in seen.items()}


def _weigh(bags: Bags) -> Any:
    """Rare marks count more. A mark that one bag alone has counts in its length and needs no column."""
    import numpy

    rarity, seen = _rarity(bags), Counter(mark for bag in bags for mark in bag)
    column = {mark: place for place, mark in enumerate(mark for mark, count in seen.items() if count > 1)}
    matrix = numpy.zeros((len(bags), len(column)), dtype=numpy.float32)
    for row, bag in enumerate(bags):
        weights = {mark: rarity[mark] * (1 + math.log(count)) for mark, count in bag.items()}
        length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        for mark, weight in weights.items():
            if mark in column:
                matrix[row, column[mark]] = weight / length
    return matrix


def _embed_by_weight(bags: Bags) -> Any:
    """The mean of the words' vectors, rare words first, without what all texts have in common."""
    import numpy

    rarity = _rarity([_stems(bag) for bag in bags])
    words = sorted({word for bag in bags for word in bag})
    vector = dict(zip(words, numpy.asarray(embed(words), dtype=numpy.float32), strict=True))
    matrix = numpy.zeros((len(bags), DIMENSIONS), dtype=numpy.float32)
    for row, bag in enumerate(bags):
        for word in sorted(bag):
            matrix[row] += vector[word] * numpy.float32(rarity[stem(word)] * (1 + math.log(bag[word])))
    matrix = _unit(matrix)
    full = matrix.any(axis=1)
    if full.any():
        matrix[full] -= matrix[full].mean(axis=0) * numpy.float32(len(bags) / (len(bags) + UNSEEN))
    return _unit(matrix)


def _unit(matrix: Any) -> Any:
    import numpy

    length = numpy.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / numpy.where(length > 0, length, 1)
