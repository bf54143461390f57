"""How likely two signals complain about the same thing.

Each channel gives a cosine, and a logistic regression on a labelled week (`scripts/fit_review.py`) weighs them. No
channel knows a word by itself: rare words count more than frequent ones, whatever they are.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from app.learning.hygiene.checks import EMPTY_STEMS
from app.learning.hygiene.words import stem
from app.learning.review.moments import Moment, content_words
from app.text.embeddings import DIMENSIONS, embed

SENTENCES = "sentences of what was said"


@dataclass(frozen=True)
class Weights:
    """What each channel counts, and how unlikely it is that two rows belong together."""

    channels: Mapping[str, float]
    bias: float


ENCODED = Weights(
    {
        SENTENCES: 3.25,
        "meaning of what was said": 0.7,
        "weighted meaning of what was said": 0.6,
        "words of what was said": 0.37,
        "meaning of the talk": 1.03,
        "weighted meaning of all": 1.6,
        "words of all": 0.87,
        "values": 1.85,
        "fields": 1.17,
        "kinds": 0.86,
        "shapes": 0.64,
        "topics": 1.4,
        "agent": 0.14,
        "tools and fields meant": 0.67,
        "tools and fields named": 1.2,
    },
    -5.05,
)
# Without the encoder. Vectors of words connect less, so a pair must be likelier to be joined.
STATIC = Weights(
    {
        "meaning of what was said": 1.17,
        "weighted meaning of what was said": 0.98,
        "words of what was said": 0.62,
        "meaning of the talk": 1.23,
        "weighted meaning of all": 1.78,
        "words of all": 0.98,
        "values": 1.84,
        "fields": 1.25,
        "kinds": 0.85,
        "shapes": 0.68,
        "topics": 1.4,
        "agent": 0.12,
        "tools and fields meant": 0.85,
        "tools and fields named": 1.4,
    },
    -5.04,
)
# Texts about other things that are thought of beside a batch, so that three rows that say the same are still alike.
UNSEEN = 30
# From where on a text points at a tool or a field.
POINTS = 0.15
IN_WORDS = frozenset(name for name in ENCODED.channels if name.endswith("of what was said"))
# What happened counts for so much at most; words count for more than in the regression, which saw few that are alike.
MOST_SHOWN, WORDS_COUNT = 6.0, 1.15
OPPOSITE = 3.0
SAME_MOMENT, SAME_WORDS, ENOUGH_WORDS = 6.0, 0.15, 2
Bags = Sequence[Counter[Any]]


def affinities(
    moments: Sequence[Moment], agents: Sequence[Hashable], names: Sequence[str], sentences: Any | None = None
) -> Any:
    """The log-odds of each pair, as a square matrix; its diagonal means nothing. `names` are what tools and fields are
    called and are for: two texts that point at the same one are near. `sentences` are the encoder's vectors of what was
    said, if there are any."""
    import numpy

    words, shown = (numpy.zeros((len(moments), len(moments)), dtype=numpy.float32) for _ in range(2))
    weights = STATIC if sentences is None else ENCODED
    for name, make in channels(moments, agents, names, sentences).items():
        matrix = make()
        part = words if name in IN_WORDS else shown
        part += numpy.float32(weights.channels[name]) * (matrix @ matrix.T)
    # Of two different complaints about one answer all but the words is the same, so then the words decide.
    wordy = numpy.asarray([len(_full_words(moment.said)) >= ENOUGH_WORDS for moment in moments])
    apart = (shown > SAME_MOMENT) & (words < SAME_WORDS) & wordy[:, None] & wordy[None, :]
    shown = numpy.where(apart, numpy.float32(0), numpy.float32(MOST_SHOWN) * numpy.tanh(shown / MOST_SHOWN))
    return numpy.float32(weights.bias) + WORDS_COUNT * words + shown - OPPOSITE * _opposites(moments)


def _full_words(text: str) -> set[str]:
    """The words of a text that say more than that something is wrong."""
    return {stem(word) for word in content_words(text)} - EMPTY_STEMS


def _opposites(moments: Sequence[Moment]) -> Any:
    """The pairs of which one switched on what the other switched off: who wants less wants not more."""
    import numpy

    names = sorted({name for moment in moments for name, _ in moment.flags})
    on, off = (
        numpy.asarray([[(name, value) in one.flags for name in names] for one in moments], dtype=numpy.float32)
        for value in (True, False)
    )
    on, off = on.reshape(len(moments), len(names)), off.reshape(len(moments), len(names))
    return (on @ off.T + off @ on.T) > (on * off) @ (on * off).T


def channels(
    moments: Sequence[Moment], agents: Sequence[Hashable], names: Sequence[str], sentences: Any | None = None
) -> dict[str, Callable[[], Any]]:
    """What makes the vectors of each channel, one row of length 1 (or 0) for each moment."""
    said, everything = [moment.said for moment in moments], [moment.everything for moment in moments]
    said_words = [Counter(content_words(text)) for text in said]
    name_words = [Counter(content_words(name)) for name in names]
    all_words = [Counter(content_words(text)) for text in everything]
    encoded = {} if sentences is None else {SENTENCES: lambda: _without_common(sentences)}
    return encoded | {
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
        "topics": lambda: _weigh([moment.topics for moment in moments]),
        "agent": lambda: _weigh([Counter([agent]) for agent in agents]),
        "tools and fields meant": lambda: _point(_embed_by_weight([*said_words, *name_words]), len(moments), POINTS),
        "tools and fields named": lambda: _point(
            _weigh([_stems(bag) for bag in (*said_words, *name_words)]), len(moments), 0
        ),
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
    vector = {word: numpy.frombuffer(_word_vector(word), dtype=numpy.float32) for word in words}
    matrix = numpy.zeros((len(bags), DIMENSIONS), dtype=numpy.float32)
    for row, bag in enumerate(bags):
        for word in sorted(bag):
            matrix[row] += vector[word] * numpy.float32(rarity[stem(word)] * (1 + math.log(bag[word])))
    return _without_common(_unit(matrix))


def _without_common(matrix: Any) -> Any:
    """The vectors without what all of them have in common."""
    import numpy

    full = matrix.any(axis=1)
    if not full.any():
        return matrix
    common = matrix[full].mean(axis=0) * numpy.float32(len(matrix) / (len(matrix) + UNSEEN))
    return _unit(numpy.where(full[:, None], matrix - common, matrix))


@lru_cache(maxsize=8192)
def _word_vector(word: str) -> bytes:
    """The same words come in every window."""
    return array("f", embed([word])[0]).tobytes()


def _point(matrix: Any, count: int, least: float) -> Any:
    """How near the first rows are to each of the others, where they are near at all."""
    import numpy

    near = matrix[:count] @ matrix[count:].T
    return _unit(numpy.where(near > least, near, 0))


def _unit(matrix: Any) -> Any:
    import numpy

    length = numpy.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / numpy.where(length > 0, length, 1)
