"""Whether two rules exclude each other: what one tells to do, the other forbids or sets to another value."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from app.learning.hygiene.words import (
    KIND_OF,
    LIGHT_STEMS,
    NUMBERS,
    OPPOSITE,
    PAIR,
    STOP,
    TURNING,
    bag,
    excludes,
    identifiers,
    is_content_word,
    names,
    stem,
    tokens,
)

NEGATORS = bag("never not don't doesn't cannot can't mustn't shouldn't won't isn't aren't avoid stop nor no")
# What follows these two words is not to be used.
PASSED_OVER = (("instead", "of"), ("rather", "than"))
ENDS = frozenset(".;:!?,()\n")
# A clause that says when or which is no order: what it negates is not forbidden.
SIDE = bag("if when whenever where while that which who whose because")
EXCEPT = bag("unless without until till except before only")
# How much of what one rule forbids the other has to ask for.
MIN_COVERED = 0.7


@dataclass(frozen=True)
class Forbidden:
    """Words behind a negation. `unless` is the word that opens an exception to it, if one does."""

    words: tuple[str, ...]
    shown: str
    unless: str | None


@dataclass(frozen=True)
class Measure:
    number: str
    shown: str


@dataclass(frozen=True)
class Statement:
    """What a rule tells to do, what it forbids, and the values it sets."""

    asked: frozenset[str]
    forbidden: tuple[Forbidden, ...]
    pairs: dict[str, str]
    measures: dict[str, Measure]
    words: frozenset[str]
    tools: frozenset[str]
    names: frozenset[str]
    raw: Counter[str]
    shown: dict[str, str]


@lru_cache(maxsize=4096)
def read_statement(text: str) -> Statement:
    pairs = {name.lower(): value.strip('"').lower() for name, value in PAIR.findall(text)}
    bare = PAIR.sub(" ", text)
    asked, forbidden = _orders(tokens(bare))
    measures = _measures(tokens(bare))
    words = {word for word in (*asked, *(word for one in forbidden for word in one.words)) if not word.isdigit()}
    return Statement(
        frozenset(asked),
        tuple(forbidden),
        pairs,
        measures,
        frozenset(words - LIGHT_STEMS),
        frozenset(stem(name) for name in identifiers(text)),
        frozenset(stem(name) for name in names(text)),
        Counter(word.lower() for word in tokens(text)),
        {stem(word): word for word in tokens(bare)},
    )


def find_contradiction(a: str, b: str) -> str | None:
    """How two texts exclude each other, quoting the words; nothing when they go together."""
    one, other = read_statement(a), read_statement(b)
    return _forbids(one, other) or _forbids(other, one) or _other_value(one, other)


def tells_apart(a: str, b: str) -> bool:
    """Whether two texts that sound alike say different things: another tool, number, value or name, or the verb that
    one asks for is the one that the other forbids."""
    one, other = read_statement(a), read_statement(b)
    if any(one.pairs[name] != other.pairs[name] for name in one.pairs.keys() & other.pairs.keys()):
        return True
    if one.tools != other.tools or _opposed(one, other) or _opposed(other, one):
        return True
    mine, theirs = _values(one), _values(other)
    if mine - theirs and theirs - mine:
        return True
    if one.names - other.words and other.names - one.words:
        return True
    return any(excludes(left, right) for left in _more(one, other) for right in _more(other, one))


def shared_words(a: str, b: str) -> float:
    """How much of what two texts say is said in the same words, 0 to 1."""
    one, other = read_statement(a).words, read_statement(b).words
    return 2 * len(one & other) / (len(one) + len(other)) if one or other else 0.0


def _opposed(one: Statement, other: Statement) -> bool:
    asked = other.asked - {word for span in other.forbidden for word in span.words}
    return any(span.words[0] in asked for span in one.forbidden)


def _values(said: Statement) -> set[str]:
    return {f"{unit} {one.number}" for unit, one in said.measures.items()} | {
        word for word in said.words if word in KIND_OF
    }


def _orders(read: list[str]) -> tuple[set[str], list[Forbidden]]:
    """The words asked for, and the spans behind negations. What a side clause negates is neither."""
    asked: set[str] = set()
    forbidden: list[Forbidden] = []
    side = False
    place = 0
    while place < len(read):
        word = read[place].lower()
        if word in ENDS:
            side = False
        elif word in SIDE:
            side = True
        elif word in NEGATORS or tuple(w.lower() for w in read[place : place + 2]) in PASSED_OVER or _over(read, place):
            span, place = _span(read, place + (2 if word in ("instead", "rather") else 1))
            if not side and span.words:
                forbidden.append(span)
            continue
        elif is_content_word(word) or word in TURNING:
            asked.add(stem(word))
        place += 1
    return asked, forbidden


def _over(read: list[str], place: int) -> bool:
    """In "prefer compareDeals over getFinancials" the second is passed over."""
    before = [word.lower() for word in read[max(0, place - 4) : place]]
    return read[place].lower() == "over" and any(word.startswith("prefer") for word in before)


def _span(read: list[str], place: int) -> tuple[Forbidden, int]:
    words: list[str] = []
    shown: list[str] = []
    while place < len(read):
        word = read[place].lower()
        if word in ENDS or word in SIDE or word in EXCEPT or word in NEGATORS or word == "but":
            break
        shown.append(read[place])
        if (is_content_word(word) or word in TURNING) and stem(word) not in LIGHT_STEMS:
            words.append(stem(word))
        place += 1
    unless = read[place].lower() if place < len(read) and read[place].lower() in EXCEPT else None
    return Forbidden(tuple(dict.fromkeys(words)), " ".join(shown), unless), place


def _measures(read: list[str]) -> dict[str, Measure]:
    """Numbers by what they count: "2 hours", "500 EUR", "priority one"."""
    found: dict[str, Measure] = {}
    for place, token in enumerate(read):
        number = token if token[0].isdigit() else NUMBERS.get(token.lower())
        if number is None or (token.lower() == "one" and _is_pronoun(read, place)):
            continue
        after = read[place + 1] if place + 1 < len(read) else ""
        before = read[place - 1] if place else ""
        number = number.replace(",", "")
        if after and (is_content_word(after) or after == "%"):
            found.setdefault(stem(after), Measure(number, f"{token} {after}"))
        elif before and is_content_word(before):
            found.setdefault(stem(before), Measure(number, f"{before} {token}"))
    return found


def _is_pronoun(read: list[str], place: int) -> bool:
    after = read[place + 1].lower() if place + 1 < len(read) else ""
    before = read[place - 1].lower() if place else ""
    return not after or after in STOP or before in ("the", "which", "each", "any", "no")


def _forbids(one: Statement, other: Statement) -> str | None:
    for span in one.forbidden:
        if span.unless and span.unless not in other.raw:
            continue
        asked = other.asked - {word for theirs in other.forbidden for word in theirs.words}
        covered = [word for word in span.words if word in asked]
        if not covered or len(covered) / len(span.words) < MIN_COVERED:
            continue
        missing = set(span.words) - set(covered)
        if any(OPPOSITE.get(word, frozenset()) & other.asked for word in missing):
            continue
        if set(span.words) <= one.tools and _elsewhere(one, other, span):
            continue
        return f"one says not “{span.shown}”, the other asks for it"
    return None


def _elsewhere(one: Statement, other: Statement, span: Forbidden) -> bool:
    """A tool passed over for one thing may be right for another."""
    mine = one.words - one.tools - set(span.words)
    theirs = other.words - other.tools - set(span.words)
    return bool(mine and theirs and not mine & theirs)


def _other_value(one: Statement, other: Statement) -> str | None:
    """The same sentence but for a value: another number, day, currency, or the opposite word."""
    mine, theirs = one.words - other.words, other.words - one.words
    for name in one.pairs.keys() & other.pairs.keys():
        if one.pairs[name] != other.pairs[name] and not (mine and theirs):
            return f"“{name}={one.pairs[name]}” here, “{name}={other.pairs[name]}” there"
    if len(one.words & other.words) < 2:
        return None
    counted = sorted(one.measures.keys() & other.measures.keys())
    changed = [unit for unit in counted if one.measures[unit].number != other.measures[unit].number]
    if len(changed) == 1 and not (mine and theirs):
        return f"“{one.measures[changed[0]].shown}” here, “{other.measures[changed[0]].shown}” there"
    if changed:
        return None
    for left in sorted(_more(one, other)):
        for right in sorted(_more(other, one)):
            if excludes(left, right) and not (mine - {left} and theirs - {right}):
                return f"“{one.shown.get(left, left)}” here, “{other.shown.get(right, right)}” there"
    return None


def _more(one: Statement, other: Statement) -> set[str]:
    """The words that one text has more often than another."""
    counts = [Counter(stem(word) for word in said.raw.elements()) for said in (one, other)]
    return {word for word in counts[0] - counts[1] if word in one.words}
