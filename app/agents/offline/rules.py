"""Rules that can be followed without understanding them: six forms, found in knowledge rows and in instructions.

`prefer TOOL` (the name of a tool occurs) · `avoid TOOL` (the name follows a negation) · `arg=value` · a negation before
`arg=value` · `say "…"` · `never say "…"`. A text in none of these forms is not followed
and is reported as unread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
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
_SAY = r"\b(?P<say>say(?:ing)?)\s*(?:\"(?P<plain>[^\"]+)\"|“(?P<curly>[^”]+)”)"
_VALUE = r"(?:\"(?P<v1>[^\"]*)\"|“(?P<v2>[^”]*)”|'(?P<v3>[^']*)'|(?P<v4>[^\s,;\"“”]+))"
_TRAILING = ".,;:!?)]}"
_JOINED = re.compile(r"\s*(?:(?:and|or|nor)\s+)?")
FORMS = ("prefers", "avoids", "sets", "forbids", "says", "never_says")


@dataclass(frozen=True, slots=True)
class Forms:
    """What one text asks for, in reading order."""

    prefers: tuple[str, ...] = ()
    avoids: tuple[str, ...] = ()
    sets: tuple[tuple[str, str], ...] = ()
    forbids: tuple[tuple[str, str], ...] = ()
    says: tuple[str, ...] = ()
    never_says: tuple[str, ...] = ()
    rest: str = ""

    def __bool__(self) -> bool:
        return bool(self.prefers or self.avoids or self.sets or self.forbids or self.says or self.never_says)


@dataclass(frozen=True, slots=True)
class Rule:
    """A text in at least one form. `row` is its place among the rows of the prompt; instructions have none."""

    forms: Forms
    condition: frozenset[str]
    strength: int
    row: int | None = None

    def applies(self, step_words: Collection[str]) -> bool:
        shared = sum(word in step_words for word in self.condition)
        return 2 * shared >= len(self.condition) or shared >= ENOUGH_SHARED_WORDS


@dataclass(frozen=True, slots=True)
class Rules:
    """Every rule of a prompt, strongest first, and the places of the rows in none of the forms."""

    rules: tuple[Rule, ...]
    unread: tuple[int, ...]
    rows: tuple[ParsedRow, ...] = field(default=())

    def for_step(self, step_words: Collection[str]) -> StepRules:
        return StepRules(tuple(rule for rule in self.rules if rule.applies(step_words)))


@dataclass(frozen=True, slots=True)
class StepRules:
    """The rules that apply to one step, strongest first, earlier before later."""

    rules: tuple[Rule, ...]

    @property
    def rows(self) -> list[int]:
        return [rule.row for rule in self.rules if rule.row is not None]

    def stance(self, tool: str) -> int:
        """1 for a preferred tool, -1 for one to avoid, 0 without a rule."""
        return self._verdict(lambda forms: tool in forms.prefers, lambda forms: tool in forms.avoids)

    def values(self, argument: str) -> list[str]:
        """The values that rules set an argument to, strongest first."""
        wanted = normalise_name(argument)
        return [value for rule in self.rules for name, value in rule.forms.sets if normalise_name(name) == wanted]

    def forbids(self, argument: str, value: object) -> bool:
        pair = (normalise_name(argument), _normalise_value(value))
        if not any(pair in _normalise_pairs(rule.forms.forbids) for rule in self.rules):
            return False
        return (
            self._verdict(
                lambda forms: pair in _normalise_pairs(forms.sets),
                lambda forms: pair in _normalise_pairs(forms.forbids),
            )
            < 0
        )

    def _verdict(self, wanted: Callable[[Forms], bool], unwanted: Callable[[Forms], bool]) -> int:
        """The stronger rule decides; between equals, the negative one."""
        for strength in range(INSTRUCTION + 1):
            level = [rule.forms for rule in self.rules if rule.strength == strength]
            if any(map(unwanted, level)):
                return -1
            if any(map(wanted, level)):
                return 1
        return 0


def read_rules(
    instructions: str, rows: Sequence[ParsedRow], tools: Collection[str], arguments: Collection[str]
) -> Rules:
    """Read the rules in knowledge rows, and in sentences of the instructions, which always apply."""
    found, unread = [], []
    for place, row in enumerate(rows):
        forms = read_forms(row.content, tools, arguments)
        if forms:
            condition = frozenset(words(row.context if row.context else forms.rest))
            found.append(Rule(forms, condition, STRENGTH[row.scope], place))
        else:
            unread.append(place)
    for sentence in lines_and_sentences(instructions):
        if forms := read_forms(sentence, tools, arguments):
            found.append(Rule(forms, frozenset(), INSTRUCTION))
    return Rules(tuple(sorted(found, key=lambda rule: rule.strength)), tuple(unread), tuple(rows))


def read_forms(text: str, tools: Collection[str], arguments: Collection[str]) -> Forms:
    """Read the six forms in one text. Unknown tool and argument names are ordinary words."""
    pattern = _pattern(tuple(sorted(set(tools), key=lambda name: (-len(name), name))))
    known = {normalise_name(name) for name in arguments}
    read: dict[str, list[Any]] = {name: [] for name in FORMS}
    negation = _Negation()
    rest, end, at = "", 0, 0
    while token := pattern.search(text, at):
        at = token.end()
        if token["arg"] and normalise_name(token["arg"]) not in known:
            at = token.end("arg")
            continue
        if form := negation.read_token(token, pattern, text):
            read[form[0]].append(form[1])
            rest, end = f"{rest} {text[end : token.start()]}", token.end()
    return Forms(**{name: tuple(dict.fromkeys(read[name])) for name in FORMS}, rest=rest + " " + text[end:])


@dataclass(slots=True)
class _Negation:
    """Whether a token is negated. A negation ends with its clause or at the next verb, but spans a list of tools."""

    negated: bool = False
    lists: bool = False
    named: bool = False

    def read_token(self, token: re.Match[str], pattern: re.Pattern[str], text: str) -> tuple[str, Any] | None:
        """Update the negation with this token. Returns the form and its content, if the token is one."""
        if token["no"]:
            self.negated, self.named = True, False
            self.lists = not token["no"].lower().startswith(("instead", "rather"))
        elif token["stop"]:
            self.negated = self.negated and self.named and self.lists and _continues_list(token, pattern, text)
        elif token["fresh"]:
            self.negated = self.negated and not self.named
        elif token["say"]:
            return "never_says" if self.negated else "says", token["plain"] or token["curly"]
        else:
            self.named = True
            if token["tool"]:
                return "avoids" if self.negated else "prefers", token["tool"]
            return "forbids" if self.negated else "sets", (token["arg"], _value(token))
        return None


def _continues_list(comma: re.Match[str], pattern: re.Pattern[str], text: str) -> bool:
    """Whether a comma separates the tools of a list."""
    joined = _JOINED.match(text, comma.end())
    follows = pattern.match(text, joined.end() if joined else comma.end())
    return comma[0] == "," and follows is not None and bool(follows["tool"])


def normalise_name(name: str) -> str:
    """`entityType`, `entity_type` and `Entity Type` are one name."""
    return "".join(split_name(name))


@lru_cache(maxsize=256)
def _pattern(tools: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, tools)) or r"(?!)"
    return re.compile(
        rf"(?P<no>(?i:{_NEGATION}))|(?i:{_SAY})|(?P<arg>(?<!\w)[A-Za-z_]\w*)\s?=(?!=)\s?{_VALUE}"
        rf"|(?P<tool>(?<!\w)(?:{names})(?!\w))|(?P<stop>(?i:{_CLAUSE_END}))|(?P<fresh>(?i:{_FRESH_START}))"
    )


def _value(token: re.Match[str]) -> str:
    quoted = next((token[name] for name in ("v1", "v2", "v3") if token[name] is not None), None)
    return quoted if quoted is not None else token["v4"].rstrip(_TRAILING)


def _normalise_value(value: object) -> str:
    return str(value).strip().casefold()


def _normalise_pairs(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(normalise_name(name), _normalise_value(value)) for name, value in pairs]
