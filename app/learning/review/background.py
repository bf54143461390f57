"""What is usual in a batch of feedback: how many questions have a word, and which values arguments are given."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.learning.hygiene.words import stem
from app.learning.review.fixes import used_values
from app.learning.review.moments import content_words
from app.learning.review.types import Signal

MAX_ROWS = 2000


@dataclass(frozen=True)
class Background:
    """Counts of rows by the stems in their question, and the values by argument."""

    size: int
    asked: Mapping[str, int]
    values: Mapping[str, frozenset[str]]


def read_background(signals: Sequence[Signal]) -> Background:
    """The newest rows stand for all."""
    some = signals[-MAX_ROWS:]
    values: dict[str, set[str]] = {}
    for signal in some:
        for used in used_values(signal):
            values.setdefault(used.argument, set()).add(used.value)
    return Background(
        len(some),
        _count(signal.question or "" for signal in some),
        {argument: frozenset(found) for argument, found in values.items()},
    )


def _count(texts: Iterable[str]) -> Counter[str]:
    return Counter(mark for text in texts for mark in {stem(word) for word in content_words(text)})
