"""What a signal says and what its moment shows, as counted marks by which two signals can be compared."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from app.learning.hygiene.words import is_content_word, stem
from app.learning.review.topics import topics_of
from app.learning.review.types import Call, EntityType, Signal
from app.text.words import TOKEN, split_name

MAX_VALUE = 24
MAX_LEAVES = 200
MAX_TEXT = 2000
# A kind of record that the row names weighs more than one that a call names, and that more than a tool's name.
OWN, IN_CALL, IN_NAME = 3, 2, 1
LETTERS, DIGIT = re.compile(r"[A-Za-z]+"), re.compile(r"\d")
SPACED = re.compile(r"\S+")
CODE = re.compile(r"[A-Z]{2,}|[^\w\s]+")


@dataclass(frozen=True, slots=True)
class Moment:
    """A signal as texts and marks: words, values in calls and results, names of fields, kinds of record, shapes of
    figures and dates in the answer, topics such as currencies, and what was switched on or off in a call."""

    said: str
    talk: str
    everything: str
    values: Counter[str]
    fields: Counter[str]
    kinds: Counter[str]
    shapes: Counter[str]
    topics: Counter[str]
    flags: frozenset[tuple[str, bool]]


def words_of(signal: Signal) -> str:
    """What the person said about the answer."""
    return signal.preferred_answer or signal.comment or signal.follow_up or ""


def said_of(signal: Signal) -> str:
    """All that the person said: reason, wanted answer, and the next message."""
    parts = (signal.comment, signal.preferred_answer, signal.follow_up)
    return " ".join(part for part in parts if part)[:MAX_TEXT]


def read_moment(signal: Signal, kinds: Sequence[EntityType]) -> Moment:
    calls = [_narrow(call, signal.field_name) for call in signal.calls]
    arguments = [pair for call in calls for pair in leaves(call.arguments)]
    outputs = [(call, pair) for call in calls for pair in leaves(call.output)]
    said = said_of(signal)
    talk = " ".join((said, signal.question or "", (signal.answer or "")[:MAX_TEXT]))
    done = [f"{call.name} {_join(leaves(call.arguments))}" for call in calls]
    return Moment(
        said,
        talk,
        " ".join((talk, *done, _join(pair for _, pair in outputs))),
        _values(calls, outputs),
        Counter(name.lower() for name, _ in (*arguments, *(pair for _, pair in outputs)) if name),
        _kinds(signal, calls, arguments, kinds),
        _shapes(signal.answer or ""),
        topics_of(signal),
        frozenset(_flags(calls)),
    )


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The single values in an argument or a result, each with the name it stands under."""
    stack = [(name, value)]
    for _ in range(MAX_LEAVES):
        if not stack:
            return
        name, value = stack.pop()
        if isinstance(value, Mapping):
            stack += [(str(key), value[key]) for key in reversed(list(value))]
        elif isinstance(value, list | tuple):
            stack += [(name, one) for one in reversed(value)]
        else:
            yield name, value


def content_words(text: str) -> list[str]:
    """The words of a text that mean something, names of tools and fields in their parts."""
    return [part for token in TOKEN.findall(text) if token[0].isalpha() for part in _meaning_parts(token)]


@lru_cache(maxsize=32_768)
def _meaning_parts(token: str) -> tuple[str, ...]:
    return tuple(part for part in split_name(token) if is_content_word(part) and not part.isdigit())


def is_short(value: Any) -> bool:
    """Whether a value can be one of a few: a flag, a code or a word, neither a figure nor a text."""
    if isinstance(value, str):
        return 0 < len(value) <= MAX_VALUE and not DIGIT.search(value)
    return isinstance(value, bool) or value is None


def _narrow(call: Call, field: str | None) -> Call:
    """A call that fills in many fields, cut to the one that was rejected."""
    for values in call.arguments.values() if field else ():
        if isinstance(values, Mapping) and field in values and field is not None:
            given = values[field]
            value = given.get("value") if isinstance(given, Mapping) else given
            return Call(f"{call.name} {field}", {field: value}, call.is_error)
    return call


def _flags(calls: Sequence[Call]) -> Iterator[tuple[str, bool]]:
    for call in calls:
        for name, value in leaves(call.arguments):
            if isinstance(value, bool):
                yield f"{call.name} {name}", value


def _join(pairs: Iterable[tuple[str, Any]]) -> str:
    return " ".join(f"{name} {value}" for name, value in pairs)[:MAX_TEXT]


def _values(calls: Sequence[Call], outputs: Sequence[tuple[Call, tuple[str, Any]]]) -> Counter[str]:
    found = Counter(f"{call.name} failed" for call in calls if call.is_error)
    found.update(f"{call.name} found nothing" for call in calls if _is_empty(call.output))
    for _, (name, value) in outputs:
        found[f"has {name}".lower()] += 1
        if isinstance(value, str) and is_short(value):
            found[f"{name}={value}".lower()] += 1
    return found


def _is_empty(output: Any) -> bool:
    return output == [] or (isinstance(output, Mapping) and any(value == [] for value in output.values()))


def _kinds(
    signal: Signal, calls: Sequence[Call], arguments: Sequence[tuple[str, Any]], kinds: Sequence[EntityType]
) -> Counter[str]:
    found: Counter[str] = Counter()
    values = Counter(value for _, value in arguments if isinstance(value, str))
    names = [{stem(part) for part in split_name(call.name)} for call in calls]
    for kind in kinds:
        parts = {stem(part) for part in split_name(kind.slug)}
        count = OWN * (signal.entity_type_id == kind.id) + IN_CALL * values[kind.slug]
        count += IN_NAME * sum(parts <= name for name in names)
        if count:
            found[kind.slug] = count
    return found


def _shapes(answer: str) -> Counter[str]:
    """How figures, dates and codes are written: `12/04/2026` and `01/09/2025` have one shape."""
    found: Counter[str] = Counter()
    for token in SPACED.findall(answer[:MAX_TEXT]):
        word = token.strip('.,;:!?()"')
        if DIGIT.search(word):
            found["#" + DIGIT.sub("9", LETTERS.sub("A", word))] += 1
        elif CODE.fullmatch(word):
            found[word] += 1
    return found
