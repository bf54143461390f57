"""How alike two texts are, and whether a text says a fact. Linear in the length of the texts."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date

from app.text.values import canonical
from app.text.words import WORD

MAX_WORDS = 4096
MAX_TEXT_CHARS = 262_144
MIN_WORDS = 5
# Where the cosine of our embedding model says "nothing in common" and "the same thing in other words".
LOW, HIGH = 0.05, 0.55

Pair = tuple[str, str]
# Cosines of pairs of texts, all at once. Passed in, so that comparing needs no model.
Nearness = Callable[[Sequence[Pair]], Sequence[float]]

_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
           "november", "december")  # fmt: skip
_MONTH = "(?:" + "|".join(f"{name[:3]}(?:{name[3:]})?" if name != "may" else "may" for name in _MONTHS) + r")\.?"
_TOKEN = re.compile(
    rf"""(?P<iso>\b\d{{4}}-\d\d-\d\d\b)
    |(?P<dmy>\b\d{{1,2}}(?:st|nd|rd|th)?\s+{_MONTH}\s*,?\s+\d{{4}}\b)
    |(?P<mdy>\b{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}}\b)
    |(?P<id>\d+[^\W\d_]+\d\w*)
    |(?P<number>(?<![\w.])[-−]?[$€£¥]?(?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\.\d+)?)
    |(?P<percent>%)
    |(?P<word>[^\W_]+)""",
    re.VERBOSE | re.IGNORECASE,
)
SEPARATOR = "\0"
_SIGNS = str.maketrans("", "", ",$€£¥")


def words(text: str) -> list[str]:
    """The first words of a text, in small letters."""
    return WORD.findall(text[:MAX_TEXT_CHARS].casefold())[:MAX_WORDS]


def dice_coefficient(a: Sequence[str], b: Sequence[str]) -> float:
    """Twice what two multisets share ÷ what both hold; 1 when both are empty."""
    if not a and not b:
        return 1.0
    left = Counter(b)
    return 2 * sum(min(count, left[word]) for word, count in Counter(a).items() if word in left) / (len(a) + len(b))


def text_similarity(pairs: Sequence[Pair], nearness: Nearness | None = None, enough: float = 1.0) -> list[float]:
    """How similar the two texts of each pair are, 0 to 1: by their words, or by their meaning if that is higher.
    Meaning is computed only where the words give less than `enough`."""
    split = [(words(a), words(b)) for a, b in pairs]
    found = [
        1.0 if a == b or canonical(a) == canonical(b) else dice_coefficient(*each)
        for (a, b), each in zip(pairs, split, strict=True)
    ]
    if nearness is None:
        return found
    asked = [place for place, score in enumerate(found) if score < enough and min(map(len, split[place])) >= MIN_WORDS]
    cosines = nearness([pairs[place] for place in asked]) if asked else ()
    for place, cosine in zip(asked, cosines, strict=True):
        found[place] = max(found[place], rescale_cosine(cosine))
    return found


def rescale_cosine(cosine: float) -> float:
    """A cosine as a share: 0 where two texts of our model have nothing in common, 1 where they say the same."""
    return min(1.0, max(0.0, (cosine - LOW) / (HIGH - LOW))) if cosine == cosine else 0.0


def tokens(text: str) -> list[object]:
    """Words, numbers by their value and dates by their day: `$1,200` and `1200.00` are one token."""
    # With single spaces no part of the pattern can be tried more than a few times at one place.
    return [_token(match) for match in _TOKEN.finditer(canonical(text[:MAX_TEXT_CHARS]))]


def _token(match: re.Match[str]) -> object:
    kind, text = match.lastgroup, match[0]
    if kind == "number":
        return _number(text)
    if kind in ("iso", "dmy", "mdy"):
        return _day(text) or text.casefold()
    return "percent" if kind == "percent" else text.casefold()


def _number(text: str) -> object:
    digits = text.translate(_SIGNS).replace("−", "-")
    if len(digits) > 1 and digits[0] == "0" and digits.isdigit():
        return digits
    return float(digits) if len(digits) <= 300 else digits


def _day(text: str) -> date | None:
    parts = re.findall(r"\d+|[^\W\d_]+", text)
    try:
        if parts[1].isdigit():
            return date(int(parts[0]), int(parts[1]), int(parts[2]))
        name = next(part for part in parts if part[:3].isalpha() and len(part) >= 3)
        numbers = [int(part) for part in parts if part.isdigit()]
        month = next(place for place, known in enumerate(_MONTHS, 1) if known.startswith(name[:3].casefold()))
        return date(numbers[1], month, numbers[0])
    except (ValueError, IndexError, StopIteration):
        return None


class FactIndex:
    """A text in which facts are looked up."""

    def __init__(self, text: str) -> None:
        self._tokens = _join_tokens(text)

    def mentions(self, fact: str) -> bool:
        """Whether the fact occurs as a run of tokens. A fact without any is nowhere."""
        wanted = _join_tokens(fact)
        return wanted != SEPARATOR and wanted in self._tokens


def _join_tokens(text: str) -> str:
    """The tokens between separators, so that only whole ones are found."""
    return SEPARATOR + "".join(f"{token!r}{SEPARATOR}" for token in tokens(text))
