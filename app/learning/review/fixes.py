"""What would have been the right call, where the feedback and the calls show it: another tool, one before another, or
another value. Written in a form that also the offline model follows (`app/learning/rules.py`)."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.learning.hygiene.words import content_stems, is_content_word, stem
from app.learning.review.moments import is_short, leaves, said_of
from app.learning.review.types import Agent, EntityType, Signal
from app.learning.rules import read_forms
from app.text.words import sentences, split_name

MOSTLY = 0.5
MAX_PHRASE = 200
EARLIER = re.compile(r"\b(?:before|first|beforehand|prior|then|until|ahead|in front)\b", re.IGNORECASE)
RATHER = r"(?:instead of|rather than|not(?: with| by)?|never)\s+(?:\w+\s+){{0,2}}{tool}\b"
FLAGS = {"true": "false", "false": "true"}


@dataclass(frozen=True)
class Used:
    """A value that a call was given: tool, argument and value as text."""

    tool: str
    argument: str
    value: str


def find_fix(
    signals: Sequence[Signal],
    agents: Sequence[Agent],
    kinds: Sequence[EntityType],
    values: Mapping[str, Collection[str]],
) -> str | None:
    """An instruction such as "Call getRates with basis=gross.", or None. `values` are those that arguments are given
    elsewhere."""
    return _find_tool(signals, agents) or _find_value(signals, kinds, values) or _find_phrase(signals)


def _find_tool(signals: Sequence[Signal], agents: Sequence[Agent]) -> str | None:
    """A tool that people name and that was not called."""
    has = {tool.name for agent in agents if agent.id in {s.agent_id for s in signals} for tool in agent.tools}
    said = [said_of(signal) for signal in signals]
    named = Counter(tool for tool in has for text in said if _has(text, tool))
    called = Counter(name for signal in signals for name in {call.name for call in signal.calls})
    missing = [tool for tool in named if called[tool] < MOSTLY * len(signals) and _is_wanted(tool, said)]
    if not missing:
        return None
    tool = max(missing, key=lambda name: (named[name], -called[name], name))
    text = " ".join(one for one in said if _has(one, tool))
    for other in sorted(has - {tool}, key=lambda name: (-called[name], name)):
        if called[other] >= MOSTLY * len(signals):
            if re.search(RATHER.format(tool=re.escape(other)), text):
                return f"Use {tool} instead of {other}."
            if EARLIER.search(text) and _has(text, other):
                return f"Call {tool} before {other}."
    return f"Use {tool}."


def _is_wanted(tool: str, texts: Sequence[str]) -> bool:
    """Whether a text names a tool without forbidding it."""
    return any(("prefers", tool) in read_forms(text, [tool], [])[0] for text in texts)


def _find_phrase(signals: Sequence[Signal]) -> str | None:
    """A sentence that several people put into the answer, or took out of it, letter by letter the same."""
    edits = [signal for signal in signals if signal.preferred_answer and signal.answer]
    before = [set(sentences(signal.answer or "")) for signal in edits]
    after = [set(sentences(signal.preferred_answer or "")) for signal in edits]
    pairs = list(zip(before, after, strict=True))
    added = Counter(one for old, new in pairs for one in new - old)
    dropped = Counter(one for old, new in pairs for one in old - new)
    for counts, opening in ((added, "Say"), (dropped, "Never say")):
        usual = [one for one, count in counts.items() if count > 1 and count >= MOSTLY * len(signals)]
        usual = [one for one in usual if '"' not in one and len(one) <= MAX_PHRASE]
        if usual:
            return f'{opening} "{max(usual, key=lambda one: (counts[one], one))}"'
    return None


def _find_value(
    signals: Sequence[Signal], kinds: Sequence[EntityType], values: Mapping[str, Collection[str]]
) -> str | None:
    """A value that was wrong in most of the calls, and the one that people name for it."""
    given = Counter(used for signal in signals for used in set(used_values(signal)))
    slugs = {kind.slug for kind in kinds}
    found = []
    for used, count in given.items():
        if count < MOSTLY * len(signals):
            continue
        options = {*values.get(used.argument, ()), *(slugs if used.value in slugs else ())}
        options |= {value for signal in signals for value in _named_instead(used, said_of(signal))}
        options.discard(used.value)
        for value, support in _wanted(used, options, signals):
            found.append((support, count, used, value))
    if not found:
        return None
    _, _, used, value = max(found, key=lambda one: (one[0], one[1], one[2].tool, one[2].argument, one[3]))
    return f"Call {used.tool} with {used.argument}={_quote(value)}."


def _wanted(used: Used, options: set[str], signals: Sequence[Signal]) -> Iterator[tuple[str, int]]:
    """The values that people may have meant, with how many of them did."""
    texts = [said_of(signal) for signal in signals]
    if used.value in FLAGS:
        parts = {stem(part) for part in split_name(used.argument)} - {stem("include"), stem("is")}
        support = sum(bool(parts & content_stems(text)) for text in texts)
        if support >= max(2, MOSTLY * len(signals)):
            yield FLAGS[used.value], support
    for value in sorted(options - FLAGS.keys()):
        support = sum(_means(value, used, text) for text in texts)
        if support:
            yield value, support


def _named_instead(used: Used, text: str) -> Iterator[str]:
    """The values that a text names beside a wrong one: "total, not net", "not net but total", "fare must be total"."""
    wrong, argument = re.escape(used.value), re.escape(used.argument)
    patterns = (
        rf"([\w.-]+),? (?:and )?(?:not|instead of|rather than) (?:\w+ )?{wrong}\b",
        rf"\bnot (?:\w+ )?{wrong},? (?:but|use|it['’]?s|should be) (?:the )?([\w.-]+)",
        rf"\b{argument}\s?(?:should be|must be|has to be|needs to be|to|as|=|:)\s?([\w.-]+)",
    )
    for pattern in patterns:
        for found in re.findall(pattern, text, re.IGNORECASE):
            value = found.strip(".-")
            if value and is_content_word(value) and value.isupper() == used.value.isupper():
                yield value


def _means(value: str, used: Used, text: str) -> bool:
    """Whether a text asks for a value. An ordinary word counts only beside the argument's name or the wrong value."""
    if not _has(text, value):
        return False
    return not value.islower() or not value.isalpha() or _has(text, used.argument) or _has(text, used.value)


def _has(text: str, word: str) -> bool:
    return bool(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text, re.IGNORECASE))


def used_values(signal: Signal) -> Iterator[Used]:
    for call in signal.calls:
        for name, value in leaves(call.arguments):
            if value is not None and is_short(value):
                yield Used(call.name, name, _text(value))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quote(value: str) -> str:
    return value if re.fullmatch(r"[\w.-]+", value) else f'"{value}"'
