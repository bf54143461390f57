"""What would have been the right call, where the feedback and the calls show it: another tool, one before another, or
another value. Written in a form that also the offline model follows (`app/learning/rules.py`)."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.learning.hygiene.words import content_stems, is_content_word, stem
from app.learning.review.moments import is_short, leaves, said_of
from app.learning.review.types import Agent, EntityType, Signal
from app.learning.rules import read_forms
from app.text.words import sentences, split_name, stems, words

MOSTLY = 0.5
MAX_PHRASE = 200
EARLIER = re.compile(r"\b(?:before|first|beforehand|prior|then|until|ahead|in front)\b", re.IGNORECASE)
RATHER = r"(?:instead of|rather than|not(?: with| by)?|never)\s+(?:\w+\s+){{0,2}}{tool}\b"
ASKED = re.compile(
    r"\bI (?:only |just |merely )?(?:asked|wanted to know)\b|\b(?:only|just|merely) (?:asks?|asked|asking|a question)\b"
    r"|\b(?:was|is) (?:only |just )?a question\b",
    re.IGNORECASE,
)
# Verbs with which people ask for a change.
CHANGES = frozenset(
    words(
        "add create log new book record submit update set change move rename assign mark correct delete remove cancel"
        " archive put fill take make enter save write send post reply draft open close hold file"
    )
)
RECORDING = frozenset({"create", "add", "update", "set", "change", "delete", "remove", "submit", "save"})
FLAGS = {"true": "false", "false": "true"}


@dataclass(frozen=True)
class Used:
    """A value that a call was given: tool, argument and value as text."""

    tool: str
    argument: str
    value: str


@dataclass(frozen=True)
class Fix:
    """An instruction such as "Call getRates with basis=gross.", and when it applies if the calls show that too."""

    text: str
    occasion: str | None = None


def find_fix(
    signals: Sequence[Signal],
    agents: Sequence[Agent],
    kinds: Sequence[EntityType],
    values: Mapping[str, Collection[str]],
    occasion: str | None = None,
) -> Fix | None:
    """What would have been right, or None. `values` are those that arguments are given elsewhere; `occasion` says when
    the rule will apply."""
    if kind := _find_kind(signals, kinds):
        return kind
    text = (
        _find_expected(signals, agents, kinds, occasion)
        or _find_tool(signals, agents, occasion)
        or _find_needless_change(signals, agents)
        or _find_value(signals, kinds, values)
        or _find_phrase(signals)
    )
    return Fix(text) if text else None


def _find_tool(signals: Sequence[Signal], agents: Sequence[Agent], occasion: str | None) -> str | None:
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
    writes = {one.name: one.writes for agent in agents for one in agent.tools}
    for other in sorted(has - {tool}, key=lambda name: (-called[name], name)):
        if called[other] >= MOSTLY * len(signals):
            if re.search(RATHER.format(tool=re.escape(other)), text):
                return f"Use {tool} instead of {other}."
            if EARLIER.search(text) and (_has(text, other) or writes[tool] < writes[other]):
                return f"Call {tool} before {other}."
            if occasion and writes[tool] == writes[other]:
                return f"Use {tool} instead of {other}."
    return f"Use {tool}."


def _find_expected(
    signals: Sequence[Signal], agents: Sequence[Agent], kinds: Sequence[EntityType], occasion: str | None
) -> str | None:
    """What the golden called and its replay did not."""
    writes = {tool.name: tool.writes for agent in agents for tool in agent.tools}
    slugs = {kind.slug for kind in kinds}
    found: Counter[str] = Counter()
    for signal in signals:
        wanted, called = ({call.name for call in calls} for calls in (signal.expected, signal.calls))
        for tool in sorted(wanted - called) if signal.expected else ():
            other = next((one for one in sorted(called - wanted) if writes.get(one) == writes.get(tool)), None)
            found[f"Use {tool} instead of {other}." if other else f"Use {tool}."] += 1
        given = set(used_values(signal))
        for used in used_values(replace(signal, calls=signal.expected)):
            known = used.value in slugs or used.value in FLAGS
            if known and used not in given and used.tool in called:
                found[f"Call {used.tool} with {used.argument}={_quote(used.value)}."] += 1
    best = max(found, key=lambda text: (found[text], text), default=None)
    return best if best and occasion and found[best] >= MOSTLY * len(signals) else None


def _find_needless_change(signals: Sequence[Signal], agents: Sequence[Agent]) -> str | None:
    """A tool that changed something when a person only asked."""
    own = (tool for agent in agents for tool in agent.tools if tool.writes)
    writes = {tool.name for tool in own if split_name(tool.name)[0] in RECORDING}
    wrong = [signal for signal in signals if _only_asks(signal) and any(call.name in writes for call in signal.calls)]
    if not wrong or len(wrong) < MOSTLY * len(signals):
        return None
    if not any(ASKED.search(said_of(signal)) for signal in wrong):
        return None
    tools = sorted({call.name for signal in wrong for call in signal.calls if call.name in writes})
    return f"Never use {' or '.join(tools)} to answer a question."


def _only_asks(signal: Signal) -> bool:
    asked = set(words(signal.question or ""))
    return bool(asked) and not asked & CHANGES and not any(asked & set(words(call.name)[:1]) for call in signal.calls)


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


def _find_kind(signals: Sequence[Signal], kinds: Sequence[EntityType]) -> Fix | None:
    """The kind of record that people named in the question where the call looked for another."""
    slugs = {kind.slug: stems(kind.slug) for kind in kinds}
    found: Counter[tuple[str, str]] = Counter()
    for signal in signals:
        asked = stems(signal.question or "")
        named = [slug for slug, parts in slugs.items() if len(parts) > 1 and _stand_in(parts, asked)]
        wrong = {used for used in used_values(signal) if used.value in slugs and used.value not in named}
        if len(named) == 1 and not any(_stand_in(slugs[used.value], asked) for used in wrong):
            found.update({(f"Call {used.tool} with {used.argument}={named[0]}", named[0]) for used in wrong})
    best = max(found, key=lambda one: (found[one], one), default=None)
    if best is None or found[best] < MOSTLY * len(signals):
        return None
    name = " ".join(split_name(best[1]))
    return Fix(f"{best[0]} when someone asks for the {name}.", name)


def _stand_in(parts: Sequence[str], text: Sequence[str]) -> bool:
    return any(list(text[start : start + len(parts)]) == list(parts) for start in range(len(text)))


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
