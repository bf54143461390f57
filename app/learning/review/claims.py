"""What a row says that is so: the values it names and those it turns down; and which rows say the opposite."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from operator import mul
from uuid import UUID

from app.learning.hygiene.checks import EMPTY_STEMS
from app.learning.hygiene.contradictions import find_contradiction, read_statement, shared_words
from app.learning.hygiene.words import NUMBERS, is_content_word, stem
from app.learning.review.clarity import split_sentences
from app.learning.review.orders import instructions_of, says_what_to_do, statements_of
from app.learning.review.types import Signal
from app.text.embeddings import embed

FIGURE = re.compile(r"\d[\d.,:/-]*")
# Names stand capitalised within a sentence.
NAME = re.compile(r"(?<=[\w,;:] )[A-Z][a-zà-ÿ]+\b")
# Currencies and formats: "GBP", "CSV". A word that somebody shouts is none.
CODE = re.compile(r"\b[A-Z]{3,4}\b")
NUMBER_WORD = re.compile(
    rf"\b(?:{'|'.join(word for word, value in NUMBERS.items() if int(value) > 1)})\b", re.IGNORECASE
)
TURNED_DOWN = re.compile(
    r"\b(?:not|instead of|rather than|never|no longer|and no)\s+(?:[a-z]+\s+){0,2}?(?:\d[\d.,:/-]*|[A-Z][a-zà-ÿ]+)"
    r"(?:\s+(?!but\b|and\b)[a-z]+)?"
)
# "…, the desk keeps saying 50": what it did wrong, at the end of what is right.
REPORT = re.compile(
    r"[,;–—-]?\s+(?:but\s+|and\s+|yet\s+)?(?:the|this|that|your|our|it|you|they)\b(?:\s+\w+){0,2}?\s+"
    r"(?:keeps?|kept|still|said|says|gave|gives|told|tells|quoted|quotes)\b.*$",
    re.IGNORECASE,
)
# From where on two texts say the same, and from where on they speak of the same.
AGREE, ABOUT = 0.55, 0.4
MIN_LEFT = 2
MAX_SIDES = 80


@dataclass(frozen=True)
class Claim:
    """A sentence without what it turns down: its values and the ones it turns down."""

    text: str
    values: frozenset[str]
    refused: frozenset[str]


@lru_cache(maxsize=8192)
def read_claim(sentence: str) -> Claim:
    own = without_report(sentence)
    refused = frozenset(value for part in TURNED_DOWN.findall(own) for value in values_in(part))
    text = TURNED_DOWN.sub(" ", own)
    return Claim(" ".join(text.split()), values_in(text) - refused, refused)


def without_report(sentence: str) -> str:
    """A sentence without the part that tells what was done instead."""
    own = REPORT.sub("", sentence)
    return own if len(own.split()) > MIN_LEFT else sentence


def values_in(text: str) -> frozenset[str]:
    figures = (found.rstrip(".,:/-") for found in FIGURE.findall(text))
    words = (NUMBERS[word.lower()] for word in NUMBER_WORD.findall(text))
    codes = () if text.isupper() else (code.lower() for code in CODE.findall(text))
    names = (name.lower() for name in NAME.findall(f" {text}"))
    return frozenset((*figures, *words, *names, *filter(_says_something, codes)))


def _says_something(word: str) -> bool:
    return is_content_word(word) and stem(word) not in EMPTY_STEMS


def claims_of(signal: Signal) -> list[Claim]:
    """What a person says that is so, or should be."""
    text = signal.comment or signal.follow_up or ""
    return [read_claim(one) for one in dict.fromkeys((*instructions_of(text), *statements_of(text)))]


def source_of(signal: Signal) -> Hashable:
    """Who says it: a person, or for the system's rows a session."""
    return signal.author_id or signal.session_id


def shared_values(signals: Sequence[Signal]) -> frozenset[str]:
    """The values that two of them name and their answers did not have."""
    said: dict[str, set[Hashable]] = {}
    for signal in signals:
        for value in named_values(signal):
            said.setdefault(value, set()).add(source_of(signal))
    return frozenset(value for value, sources in said.items() if len(sources) > 1)


def named_values(signal: Signal) -> frozenset[str]:
    """The values that a row names and its answer and question did not have."""
    had = values_in(f"{signal.answer or ''} {signal.question or ''}")
    return frozenset(value for claim in claims_of(signal) for value in claim.values) - had


def disagree(a: Claim, b: Claim) -> bool:
    """Whether two sentences cannot both hold."""
    if not (a.values & b.values):
        if a.refused & b.values or b.refused & a.values:
            return True
        one, other = read_statement(a.text).measures, read_statement(b.text).measures
        differ = any(one[unit][0] != other[unit][0] for unit in one.keys() & other.keys())
        if differ and shared_words(a.text, b.text) >= ABOUT:
            return True
    return find_contradiction(a.text, b.text) is not None


def contradicts(sentence: str, other: str) -> bool:
    return disagree(read_claim(sentence), read_claim(other))


@dataclass(frozen=True)
class _Side:
    """The rows that say one thing in the same words."""

    claims: tuple[Claim, ...]
    signals: list[Signal]

    @property
    def sources(self) -> set[Hashable]:
        return {source_of(signal) for signal in self.signals}

    @property
    def ids(self) -> set[UUID]:
        return {signal.id for signal in self.signals}


def opposes(signal: Signal, content: str) -> bool:
    """Whether a row wants the opposite of what a rule says."""
    said = [read_claim(sentence) for sentence in split_sentences(content)]
    return _disagree(_orders(signal), said)


def find_disputed(signals: Sequence[Signal]) -> tuple[set[UUID], set[UUID]]:
    """The rows that more people contradict than agree with, and those of which nobody can say who is right. A flag of
    an admin outweighs people."""
    said: dict[tuple[Claim, ...], _Side] = {}
    for signal in signals:
        if claims := tuple(_orders(signal)):
            said.setdefault(claims, _Side(claims, [])).signals.append(signal)
    sides = list(said.values())[:MAX_SIDES]
    pairs = [
        (one, other)
        for one, other in combinations(sides, 2)
        if len(one.sources | other.sources) > 1 and _disagree(one.claims, other.claims)
    ]
    lost: set[UUID] = set()
    weights = _weigh(sides) if pairs else {}
    for pair in pairs:
        light, heavy = sorted(pair, key=lambda side: weights[side.claims])
        lost |= light.ids if weights[light.claims] < weights[heavy.claims] else set()
    tied = {id for one, other in pairs for id in one.ids | other.ids if not lost & (one.ids | other.ids)}
    return lost, tied


def _weigh(sides: Sequence[_Side]) -> dict[tuple[Claim, ...], tuple[bool, int]]:
    """Whether an admin flagged it, and how many people say it."""
    vectors = embed([" ".join(claim.text for claim in side.claims) for side in sides])
    weights = {}
    for side, vector in zip(sides, vectors, strict=True):
        sources = set(side.sources)
        for other, its in zip(sides, vectors, strict=True):
            sources |= other.sources if _agree(side.claims, other.claims, sum(map(mul, vector, its))) else set()
        weights[side.claims] = any(signal.admin_flag for signal in side.signals), len(sources)
    return weights


def _orders(signal: Signal) -> list[Claim]:
    """What a row wants. That it names a figure of the answer, without an order, tells what was wrong."""
    text, had = signal.comment or signal.follow_up or "", values_in(signal.answer or "")
    claims = [(one, read_claim(one)) for one in dict.fromkeys((*instructions_of(text), *statements_of(text)))]
    return [claim for one, claim in claims if says_what_to_do(one) or not claim.values & had]


def _disagree(claims: Iterable[Claim], others: Sequence[Claim]) -> bool:
    return any(disagree(one, other) for one in claims for other in others)


def _agree(claims: Sequence[Claim], others: Sequence[Claim], near: float) -> bool:
    mine, theirs = (frozenset[str]().union(*(one.values for one in some)) for some in (claims, others))
    same = mine & theirs or (not mine and not theirs and near >= AGREE)
    return bool(same) and not _disagree(claims, others)
