"""What the arguments of a call are, by fixed rules: from rules, from the step, from results, from the schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.agents.offline.conversation import OfferedTool, Turn
from app.agents.offline.names import pair_values, runs, spoken_fields
from app.agents.offline.rules import Rulebook, same
from app.agents.offline.values import (
    FORMATS,
    NOTHING,
    SAME_FORMAT,
    Schema,
    alternatives,
    fit,
    fit_all,
    fits,
    items_of,
    kind_of,
    leaves,
    members,
    name_of,
    numbers,
    of_format,
    resolved,
)
from app.text.words import quotations, split_name, spoken, stem, stems, without_quotations

TEXT_NAMES = frozenset(("query", "q", "search", "text", "content", "question", "message"))
TITLE_NAMES = frozenset(("name", "title"))
OBJECT_NAMES = frozenset(("fields", "changes", "values"))
NEAR = 3
DATE_NAMES = frozenset(("date", "day", "since", "until", "from", "to", "before", "after"))
URL_NAMES = frozenset(("url", "uri", "link"))
# With one of these, a step speaks of what was spoken of before.
POINTING = re.compile(r"\b(?:it|its|this|that|them|their|these|those|same)\b", re.IGNORECASE)


# What follows is the value of something.
SET_TO = re.compile(r"(?:\bto|\bis|[=:])\s*$", re.IGNORECASE)


@dataclass(frozen=True)
class Known:
    """What a value may be taken from: the step, the results of this turn, earlier turns; newest first."""

    step: str
    results: tuple[Any, ...] = ()
    earlier: tuple[Turn, ...] = ()
    # A lookup searches for the name that the step gives, not for all that it says.
    looking_up: bool = False

    def past_results(self) -> Iterator[Any]:
        yield from self.results
        for turn in self.earlier:
            yield from turn.results

    def past(self) -> Iterator[Any]:
        yield from self.results
        for turn in self.earlier:
            yield from turn.results
            yield turn.text
            yield turn.answer


@dataclass
class Filled:
    """The arguments of a call, and the required ones that nothing was found for."""

    arguments: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def fill(tool: OfferedTool, known: Known, book: Rulebook, given: dict[str, Any] | None = None) -> Filled:
    """Every argument by the first rule that yields a valid value, required ones first."""
    filling = _Filling(tool, known, book, Filled(dict(given or {})))
    optional = [name for name in tool.arguments if name not in tool.required]
    for name in [*tool.required, *optional]:
        if name in filling.done.arguments:
            continue
        value = filling.value(name)
        if value is not NOTHING:
            filling.done.arguments[name] = value
        elif name in tool.required:
            filling.done.missing.append(name)
    order = list(tool.arguments)
    filling.done.arguments = dict(
        sorted(filling.done.arguments.items(), key=lambda pair: order.index(pair[0]) if pair[0] in order else -1)
    )
    return filling.done


def is_id(name: str, schema: Schema) -> bool:
    parts = split_name(name)
    return (bool(parts) and parts[-1] == "id") or schema.get("format") == "uuid"


def named_item(items: Sequence[dict[str, Any]], step: str) -> dict[str, Any] | None:
    """The one record whose name or title occurs in the step. A name inside a longer one that occurs does not count."""
    text = f" {' '.join(_tokens(step))} "
    found = [(item, f" {' '.join(_tokens(name))} ") for item in items if (name := name_of(item)) and _tokens(name)]
    found = [(item, name) for item, name in found if name in text]
    longest = [item for item, name in found if not any(name in other and name != other for _, other in found)]
    return longest[0] if len({str(item.get("id")) for item in longest}) == 1 else None


def _tokens(text: str) -> list[str]:
    return [part.casefold() for part in re.findall(r"[^\W_]+", re.sub(r"['’]s\b", "", text))]


@dataclass
class _Filling:
    tool: OfferedTool
    known: Known
    book: Rulebook
    done: Filled

    def value(self, name: str) -> Any:
        schema = resolved(self.tool.arguments.get(name) or {}, self.tool.schema)
        for value in self._candidates(name, schema):
            if value is not NOTHING and not self.book.forbids(name, value):
                return value
        return NOTHING

    def _candidates(self, name: str, schema: Schema) -> Iterator[Any]:
        step, root = self.known.step, self.tool.schema
        whole = self.tool.arguments.get(name) or {}
        yield from (fit(text, whole, root) for text in self.book.values(name))
        yield from (fit(text, whole, root) for text in pair_values(name, step))
        yield from self._enumerated(whole)
        yield from self._formatted(name, schema)
        if kind_of(schema) in ("integer", "number") and not members(schema):
            yield from self._counted(name, schema)
        if same(name) in TEXT_NAMES:
            yield from (fit(text, schema, root) for text in self._texts())
        if split_name(name)[-1:] and split_name(name)[-1] in TITLE_NAMES:
            yield from (fit(text, schema, root) for text in [*quotations(step)[:1], *runs(step)])
        if name.lower() in OBJECT_NAMES and kind_of(schema) == "object":
            yield self._fields(schema)
        if schema.get("default") is not None and fits(schema["default"], whole, root):
            yield schema["default"]

    def _enumerated(self, whole: Schema) -> Iterator[Any]:
        """Members of an enumeration that the step names: what it says to change to first, then as they occur."""
        if kind_of(resolved(whole, self.tool.schema)) == "array":
            items = resolved(whole, self.tool.schema).get("items") or {}
            named = [value for _, value in self._named_members(items)]
            yield named or NOTHING
            return
        yield from (value for _, value in self._named_members(whole))

    def _named_members(self, schema: Schema) -> list[tuple[tuple[bool, int], Any]]:
        said = stems(self.known.step)
        found = []
        for choice in alternatives(schema, self.tool.schema):
            for value in members(choice):
                parts = stems(str(value))
                spots = [at for at in range(len(said)) if parts and said[at : at + len(parts)] == parts]
                if spots:
                    found.append(((not any(at and said[at - 1] == "to" for at in spots), spots[0]), value))
        return sorted(found, key=lambda pair: pair[0])

    def _formatted(self, name: str, schema: Schema) -> Iterator[Any]:
        if kind_of(schema) == "array":
            items = resolved(schema.get("items") or {}, self.tool.schema)
            wanted = _format_of("", items)
            yield fit_all(of_format(wanted, self.known.step), schema, self.tool.schema) if wanted else NOTHING
            return
        wanted = _format_of(name, schema)
        if not wanted or kind_of(schema) != "string" or members(schema):
            return
        required = name in self.tool.required
        if required or wanted != "uuid" or self._is_meant(name):
            yield from self._free(of_format(wanted, self.known.step), schema)
        if required and not (is_id(name, schema) and self._names_another()):
            yield from self._free(self._remembered(name, schema, wanted), schema)

    def _free(self, texts: Iterator[str] | list[str], schema: Schema) -> Iterator[Any]:
        """Those that no other argument of this call has taken."""
        taken = [value for value in self.done.arguments.values() if isinstance(value, str)]
        yield from (fit(text, schema, self.tool.schema) for text in texts if text not in taken)

    def _is_meant(self, name: str) -> bool:
        """An id that may be left out is given only when the step says whose it is, or when there is no other."""
        nouns = [stem(part) for part in split_name(name)[:-1]]
        said = stems(self.known.step)
        others = [other for other, schema in self.tool.arguments.items() if is_id(other, schema)]
        return others == [name] or bool(nouns and all(noun in said for noun in nouns))

    def _remembered(self, name: str, schema: Schema, wanted: str) -> Iterator[str]:
        """From results of this turn, then from earlier turns: the named record's, then under the same key, then any."""
        past = list(self.known.past())
        if is_id(name, schema):
            for result in self.known.past_results():
                item = named_item(items_of(result) or [], self.known.step)
                if item is not None and isinstance(item.get("id"), str):
                    yield item["id"]
        for source in past:
            if isinstance(source, str):
                yield from of_format(wanted, source)
                continue
            scalars = [(key, value) for key, value in leaves(source) if isinstance(value, str)]
            own = [value for key, value in scalars if same(key) == same(name)]
            ids = [value for key, value in scalars if key == "id"] if is_id(name, schema) else []
            for text in [*own, *ids, *(value for _, value in scalars)]:
                yield from of_format(wanted, text)

    def _names_another(self) -> bool:
        """Whether a step that is to change something names a record that nothing so far has told of.

        Without this, "set the stage of Tessera to won" would change whichever record was spoken of last.
        """
        if not self.tool.writes or POINTING.search(without_quotations(self.known.step)):
            return False
        if any(named_item(items_of(result) or [], self.known.step) for result in self.known.past_results()):
            return False
        for run in runs(self.known.step):
            before = self.known.step[: self.known.step.find(run)]
            if any(sign.islower() for sign in run) and not SET_TO.search(before):
                return True
        return False

    def _counted(self, name: str, schema: Schema) -> Iterator[Any]:
        """The number nearest to the argument's name, at most three words away, else the only number."""
        step = self.known.step
        taken = [value for value in self.done.arguments.values() if not isinstance(value, str)]
        found = [(at, fit(text, schema, self.tool.schema)) for at, text in numbers(step)]
        free = [(at, value) for at, value in found if value is not NOTHING and value not in taken]
        wanted = {stem(part) for part in split_name(name)}
        spots = [token.start() for token in re.finditer(r"[^\W_]+", step) if stem(token[0].lower()) in wanted]
        near = [
            (distance, at, value)
            for at, value in free
            for spot in spots
            if (distance := _words_between(step, spot, at)) <= NEAR
        ]
        yield from (value for _, _, value in sorted(near, key=lambda one: one[:2]))
        if len(found) == 1:
            yield from (value for _, value in free)

    def _texts(self) -> list[str]:
        step = self.known.step
        if self.known.looking_up:
            return [*_named(step), *quotations(step)[:1], spoken(step)]
        return [*quotations(step)[:1], spoken(step)]

    def _fields(self, schema: Schema) -> Any:
        """Each `X to Y` or `X = Y` whose X is a property of the schema; of an open schema, any X."""
        root, step = self.tool.schema, self.known.step
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            return dict(spoken_fields(step)) or NOTHING if schema.get("additionalProperties") is not False else NOTHING
        found = {}
        for name, inner in properties.items():
            values = (fit(text, inner or {}, root) for text in pair_values(name, step))
            value = next((one for one in values if one is not NOTHING and not self.book.forbids(name, one)), NOTHING)
            if value is not NOTHING:
                found[name] = value
        return found or NOTHING


def _named(step: str) -> list[str]:
    """What a record may be called in a step: what is quoted, unless something is set to it, then capitalised words."""
    quoted = [text for text in quotations(step) if not SET_TO.search(step[: step.find(text) - 1])]
    return [*quoted[:1], *runs(without_quotations(step))]


def _format_of(name: str, schema: Schema) -> str:
    """The format that a schema names, or that the argument's name speaks of."""
    given = str(schema.get("format") or "")
    if given:
        return given if SAME_FORMAT.get(given, given) in FORMATS else ""
    parts = split_name(name)
    last = parts[-1] if parts else ""
    if last == "id":
        return "uuid"
    if last == "email" or last in URL_NAMES:
        return "email" if last == "email" else "uri"
    return "date" if last in DATE_NAMES else ""


def _words_between(text: str, one: int, other: int) -> int:
    first, second = sorted((one, other))
    return len(re.findall(r"[^\W_]+(?:[.,]\d+)*", text[first:second]))
