"""Whether two rules exclude each other: what one tells to do, the other forbids or sets to another value."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from app.learning.hygiene.words import NUMBERS, bag, excludes, is_content_word, stem
from app.text.words import IDENTIFIER, TOKEN

PAIR = re.compile(r"\b([A-Za-z]\w*)=(\"[^\"]*\"|[\w./%-]+)")
NEGATORS = bag("never not don't doesn't cannot can't mustn't shouldn't won't isn't aren't avoid stop nor no")
# What follows these words is not to be used.
PASSED_OVER = re.compile(r"\b(?:instead of|rather than|(?<=prefer )(\S+(?: \S+){0,2}) over)\b", re.IGNORECASE)
ENDS = frozenset(".;:!?,()\n")
# A clause that says when or which is no order: what it negates is not forbidden.
SIDE = bag("if when whenever where while that which who whose because")
# Small words that turn a rule round are read, unlike other stop words.
TURNING = bag("before after with under")
# Verbs that say little by themselves: "use LTM" and "take LTM" are one rule.
LIGHT = frozenset(map(stem, bag("use take make do call prefer apply set give keep get choose pick go put let")))


@dataclass(frozen=True)
class Statement:
    """What a rule tells to do, what it forbids, and the values it sets."""

    asked: frozenset[str]
    # Each span behind a negation: its words, and how it reads.
    forbidden: dict[str, tuple[str, ...]]
    pairs: dict[str, str]
    # Numbers by what they count, each with the words that say so.
    measures: dict[str, tuple[str, str]]
    words: frozenset[str]
    tools: frozenset[str]
    counts: Counter[str]
    shown: dict[str, str]


@lru_cache(maxsize=4096)
def read_statement(text: str) -> Statement:
    plain = PASSED_OVER.sub(lambda found: f"{found[1] or ''} not", PAIR.sub(" ", text))
    tokens = TOKEN.findall(plain)
    asked, forbidden = _read_orders(tokens)
    return Statement(
        asked=frozenset(asked).difference(*forbidden.values()),
        forbidden=forbidden,
        pairs={name.lower(): value.strip('"').lower() for name, value in PAIR.findall(text)},
        measures=_read_measures(tokens),
        words=frozenset(word for word in asked.union(*forbidden.values()) if not word.isdigit()) - LIGHT,
        tools=frozenset(map(stem, IDENTIFIER.findall(text))),
        counts=Counter(map(stem, tokens)),
        shown={stem(word): word for word in tokens},
    )


def find_contradiction(a: str, b: str) -> str | None:
    """How two texts exclude each other, quoting the words; nothing when they go together."""
    one, other = read_statement(a), read_statement(b)
    forbidden = _find_forbidden(one, other) or _find_forbidden(other, one)
    if forbidden:
        return f"one says not “{forbidden}”, the other asks for it"
    # The same sentence but for a value: where both say something else as well, they are two rules.
    mine, theirs = one.words - other.words, other.words - one.words
    for left, right, words in _differences(one, other):
        if not (mine - words and theirs - words):
            return f"“{left}” here, “{right}” there"
    return None


def tells_apart(a: str, b: str) -> bool:
    """Whether two texts that sound alike say different things: another tool, number or value, or the verb that one
    asks for is the one that the other forbids."""
    one, other = read_statement(a), read_statement(b)
    opposed = _is_opposed(one, other) or _is_opposed(other, one)
    return opposed or one.tools != other.tools or any(_differences(one, other))


def shared_words(a: str, b: str) -> float:
    """How much of what two texts say is said in the same words, 0 to 1."""
    one, other = read_statement(a).words, read_statement(b).words
    return 2 * len(one & other) / (len(one) + len(other)) if one or other else 0.0


def _read_orders(tokens: list[str]) -> tuple[set[str], dict[str, tuple[str, ...]]]:
    """The stems asked for, and the spans behind negations."""
    asked: set[str] = set()
    spans: list[list[str]] = []
    span: list[str] | None = None
    side = False
    for token in tokens:
        word = token.lower()
        if word in ENDS or word in SIDE or word == "but":
            side, span = word in SIDE, None
        elif word in NEGATORS:
            span = []
            spans += [] if side else [span]
        elif span is not None:
            span.append(token)
        elif is_content_word(token) or word in TURNING:
            asked.add(stem(token))
    read = {" ".join(one): tuple(stem(word) for word in one if is_content_word(word)) for one in spans}
    meant = {shown: tuple(word for word in words if word not in LIGHT) for shown, words in read.items()}
    return asked, {shown: words for shown, words in meant.items() if words}


def _read_measures(tokens: list[str]) -> dict[str, tuple[str, str]]:
    """Numbers by what they count: "2 hours", "500 EUR", "priority one"."""
    found: dict[str, tuple[str, str]] = {}
    for before, token, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
        number = NUMBERS.get(token.lower(), token).replace(",", "")
        if not number[:1].isdigit():
            continue
        if after == "%" or (after and is_content_word(after)):
            found.setdefault(stem(after), (number, f"{token} {after}"))
        elif before and is_content_word(before):
            found.setdefault(stem(before), (number, f"{before} {token}"))
    return found


def _is_opposed(one: Statement, other: Statement) -> bool:
    return any(words[0] in other.asked for words in one.forbidden.values())


def _find_forbidden(one: Statement, other: Statement) -> str | None:
    """What one forbids and the other asks for."""
    return next((shown for shown, words in one.forbidden.items() if other.asked.issuperset(words)), None)


def _differences(one: Statement, other: Statement) -> Iterator[tuple[str, str, set[str]]]:
    """What one sets to another value than the other: how each reads, and the words that say so."""
    for name in one.pairs.keys() & other.pairs.keys():
        if one.pairs[name] != other.pairs[name]:
            yield f"{name}={one.pairs[name]}", f"{name}={other.pairs[name]}", set()
    for unit in sorted(one.measures.keys() & other.measures.keys()):
        if one.measures[unit][0] != other.measures[unit][0]:
            yield one.measures[unit][1], other.measures[unit][1], set()
    for left in sorted((one.counts - other.counts).keys() & one.words):
        for right in sorted((other.counts - one.counts).keys() & other.words):
            if excludes(left, right):
                yield one.shown[left], other.shown[right], {left, right}
