"""Rules that can be followed without understanding them: six forms, found in knowledge rows and in instructions.

`prefer TOOL` (the name of a tool occurs) · `avoid TOOL` (the name follows a negation) · `arg=value` · a negation before
`arg=value` · `say "…"` · `never say "…"`. A text in none of these forms is not followed
and is reported as unread.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from app.learning.prompt import ParsedRow
from app.text.words import lines_and_sentences, split_name, words

# Rules closer to the agent are stronger. A row is stronger than an instruction.
STRENGTH = {"both": 0, "agent": 1, "entity_type": 2, "workspace": 3}
INSTRUCTION = 4
ENOUGH_SHARED_WORDS = 3

# "not found" and the like say when a rule applies, not what to avoid.
_STATES = "found|sure|known|clear|certain|available|enough|possible|yet"
_NEGATION = rf"\b(?:instead\s+of|rather\s+than|not(?!\s+(?:{_STATES}|only)\b)|never|avoid\w*|don['’]?t)\b"
# A negation reaches to the end of its clause, or to the verb that opens the next one.
_CLAUSE_END = r"[,;:!?()\n—–]|\.(?=\s|$)|\bbut\b"
_FRESH_START = r"\b(?:use|prefer|call|take|try)\b"
_SAY = r"\bsay(?:ing)?\s*(?:\"(?P<say>[^\"]+)\"|“(?P<say_curly>[^”]+)”)"
_VALUE = r"(?:\"(?P<v1>[^\"]*)\"|“(?P<v2>[^”]*)”|'(?P<v3>[^']*)'|(?P<v4>[^\s,;\"“”]+))"
TRAILING = ".,;:!?)]}"
PAIR = re.compile(r"(?<!\w)([A-Za-z_]\w*)\s?=(?!=)")
# Each form with the one that a negation makes of it.
NEGATED = {"prefers": "avoids", "sets": "forbids", "says": "never_says"}

# The name of a form with its content: a tool, an (argument, value) pair, or a text to say.
Form = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """A text in at least one form. `row` is its place among the rows of the prompt; instructions have none."""

    forms: tuple[Form, ...]
    condition: frozenset[str]
    strength: int
    row: int | None = None

    def applies(self, step_words: Collection[str]) -> bool:
        return condition_applies(self.condition, step_words)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a prompt or of one step, strongest first, earlier before later."""

    rules: tuple[Rule, ...]

    def for_step(self, step_words: Collection[str]) -> Rules:
        return Rules(tuple(rule for rule in self.rules if rule.applies(step_words)))

    @property
    def rows(self) -> list[int]:
        return [rule.row for rule in self.rules if rule.row is not None]

    def contents(self, form: str) -> list[Any]:
        return [content for rule in self.rules for name, content in rule.forms if name == form]

    def stance(self, tool: str) -> int:
        """1 for a preferred tool, -1 for one to avoid, 0 without a rule."""
        return self._verdict("prefers", tool)

    def values(self, argument: str) -> list[str]:
        """The values that rules set an argument to, strongest first."""
        return [value for name, value in self.contents("sets") if normalise_name(name) == normalise_name(argument)]

    def forbids(self, argument: str, value: object) -> bool:
        return self._verdict("sets", (argument, value)) < 0

    def _verdict(self, form: str, content: Any) -> int:
        """The stronger rule decides; between equals, the negative one."""
        wanted = _normalise(content)
        for strength in range(INSTRUCTION + 1):
            level = Rules(tuple(rule for rule in self.rules if rule.strength == strength))
            if wanted in map(_normalise, level.contents(NEGATED[form])):
                return -1
            if wanted in map(_normalise, level.contents(form)):
                return 1
        return 0


def read_rules(
    instructions: str, rows: Sequence[ParsedRow], tools: Collection[str], arguments: Collection[str]
) -> tuple[Rules, list[int]]:
    """The rules in knowledge rows, and in sentences of the instructions, which always apply; and the unread rows."""
    found, unread = [], []
    for place, row in enumerate(rows):
        forms, rest = read_forms(row.content, tools, arguments)
        if forms:
            found.append(Rule(forms, read_condition(row.context, rest), STRENGTH[row.scope], place))
        else:
            unread.append(place)
    for sentence in lines_and_sentences(instructions):
        if forms := read_forms(sentence, tools, arguments)[0]:
            found.append(Rule(forms, frozenset(), INSTRUCTION))
    return Rules(tuple(sorted(found, key=lambda rule: rule.strength))), unread


def read_condition(context: str | None, rest: str) -> frozenset[str]:
    """The words that say when a rule applies: of its condition, else of its text without what it orders."""
    return frozenset(words(context or rest))


def condition_applies(condition: Collection[str], step_words: Collection[str]) -> bool:
    """Whether half of the words of a condition, or three of them, are there. A rule without one always applies."""
    shared = sum(word in step_words for word in condition)
    return 2 * shared >= len(condition) or shared >= ENOUGH_SHARED_WORDS


def applies_to_texts(content: str, context: str | None, tools: Collection[str], texts: Iterable[str]) -> bool:
    """Whether a rule applies to any of these messages. Names of tools and pairs such as `limit=5` are no condition."""
    rest = read_forms(content, tools, PAIR.findall(content))[1]
    condition = read_condition(context, rest)
    return any(condition_applies(condition, set(words(text))) for text in texts)


def read_forms(text: str, tools: Collection[str], arguments: Collection[str]) -> tuple[tuple[Form, ...], str]:
    """The forms in a text in reading order, and its other words. Unknown tools and arguments are ordinary words."""
    pattern = _pattern(tuple(sorted(set(tools), key=lambda name: (-len(name), name))))
    known = {normalise_name(name) for name in arguments}
    found: list[Form] = []
    negation, named = "", False
    rest, end, at = "", 0, 0
    while token := pattern.search(text, at):
        at = token.end()
        if token["no"]:
            negation, named = token["no"].lower(), False
        elif token["stop"]:
            negation = ""
        elif token["fresh"]:
            negation = "" if named else negation
        elif token["arg"] and normalise_name(token["arg"]) not in known:
            at = token.end("arg")
        else:
            form, content = _read_form(token)
            found.append((NEGATED[form] if negation else form, content))
            named = named or form != "says"
            if token["listed"] and negation.startswith(("instead", "rather")):
                negation = ""
            rest, end = f"{rest} {text[end : token.start()]}", token.end()
    return tuple(dict.fromkeys(found)), f"{rest} {text[end:]}"


def _read_form(token: re.Match[str]) -> Form:
    if token["tool"]:
        return "prefers", token["tool"]
    if token["arg"]:
        quoted = next((token[name] for name in ("v1", "v2", "v3") if token[name] is not None), None)
        return "sets", (token["arg"], token["v4"].rstrip(TRAILING) if quoted is None else quoted)
    return "says", token["say"] or token["say_curly"]


def normalise_name(name: str) -> str:
    """`entityType`, `entity_type` and `Entity Type` are one name."""
    return "".join(split_name(name))


def _normalise(content: Any) -> Any:
    if isinstance(content, tuple):
        return normalise_name(content[0]), str(content[1]).strip().casefold()
    return content


@lru_cache(maxsize=256)
def _pattern(tools: tuple[str, ...]) -> re.Pattern[str]:
    """The tokens of a rule. A comma between two tools belongs to the first and does not end a clause."""
    name = rf"(?<!\w)(?:{'|'.join(map(re.escape, tools)) or r'(?!)'})(?!\w)"
    return re.compile(
        rf"(?P<no>(?i:{_NEGATION}))|(?i:{_SAY})|(?P<arg>(?<!\w)[A-Za-z_]\w*)\s?=(?!=)\s?{_VALUE}"
        rf"|(?P<tool>{name})(?P<listed>,\s*(?:(?:and|or|nor)\s+)?(?={name}))?"
        rf"|(?P<stop>(?i:{_CLAUSE_END}))|(?P<fresh>(?i:{_FRESH_START}))"
    )
