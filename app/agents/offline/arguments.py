"""The arguments of a call, each by the first rule that yields a valid value; `_Filling._candidates` has the order."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from app.agents.offline.conversation import OfflineTool, Turn, iter_scalars, record_name, records_in
from app.agents.offline.rules import StepRules, normalise_name
from app.agents.offline.schema import (
    NOTHING,
    Schema,
    alternatives,
    convert,
    convert_all,
    enum_of,
    is_valid,
    resolve,
    type_of,
)
from app.agents.offline.texts import (
    FORMAT_ALIASES,
    FORMATS,
    capitalised_runs,
    find_fields,
    find_format,
    find_numbers,
    values_after,
)
from app.text.words import drop_stop_words, quotations, split_name, stem, stems, without_quotations

TEXT_NAMES = frozenset(("query", "q", "search", "text", "content", "question", "message"))
TITLE_NAMES = frozenset(("name", "title"))
OBJECT_NAMES = frozenset(("fields", "changes", "values"))
MAX_WORDS_AWAY = 3
FORMAT_OF_NAME = {
    "id": "uuid",
    "email": "email",
    **dict.fromkeys(("url", "uri", "link"), "uri"),
    **dict.fromkeys(("date", "day", "since", "until", "from", "to", "before", "after"), "date"),
}
# With one of these words, a step refers to an earlier record.
POINTING = re.compile(r"\b(?:it|its|this|that|them|their|these|those|same)\b", re.IGNORECASE)
# What follows this is a value.
SET_TO = re.compile(r"(?:\bto|\bis|[=:])\s*$", re.IGNORECASE)


@dataclass(frozen=True)
class Sources:
    """Where a value may come from: the step, the results of this turn, earlier turns; newest first."""

    step: str
    results: tuple[Any, ...] = ()
    earlier: tuple[Turn, ...] = ()
    # A lookup searches for the name in the step, not for its other words.
    looking_up: bool = False

    def past_results(self) -> Iterator[Any]:
        yield from self.results
        for turn in self.earlier:
            yield from turn.results

    def past(self) -> Iterator[Any]:
        """Past results, and the texts of earlier turns."""
        yield from self.results
        for turn in self.earlier:
            yield from (*turn.results, turn.text, turn.answer)


@dataclass
class Filled:
    """The arguments of a call, and the required ones without a value."""

    arguments: dict[str, Any]
    missing: list[str]


def fill_arguments(
    tool: OfflineTool, sources: Sources, rules: StepRules, given: dict[str, Any] | None = None
) -> Filled:
    """Fill the arguments, required ones first. Values in `given` are kept."""
    filling = _Filling(tool, sources, rules, dict(given or {}))
    missing = []
    for name in dict.fromkeys([*tool.required, *tool.arguments]):
        if name in filling.done:
            continue
        value = filling.value(name)
        if value is not NOTHING:
            filling.done[name] = value
        elif name in tool.required:
            missing.append(name)
    order = {name: place for place, name in enumerate(tool.arguments)}
    return Filled(dict(sorted(filling.done.items(), key=lambda pair: order.get(pair[0], -1))), missing)


def is_id(name: str, schema: Schema) -> bool:
    parts = split_name(name)
    return (bool(parts) and parts[-1] == "id") or schema.get("format") == "uuid"


def find_named_record(items: Sequence[dict[str, Any]], step: str) -> dict[str, Any] | None:
    """The one record whose name or title occurs in the step. Part of a longer name that occurs does not count."""
    text = f" {' '.join(_tokens(step))} "
    found = [(item, f" {' '.join(_tokens(name))} ") for item in items if (name := record_name(item)) and _tokens(name)]
    found = [(item, name) for item, name in found if name in text]
    longest = [item for item, name in found if not any(name in other and name != other for _, other in found)]
    return longest[0] if len({str(item.get("id")) for item in longest}) == 1 else None


def _tokens(text: str) -> list[str]:
    return [part.casefold() for part in re.findall(r"[^\W_]+", re.sub(r"['’]s\b", "", text))]


@dataclass
class _Filling:
    tool: OfflineTool
    sources: Sources
    rules: StepRules
    done: dict[str, Any]

    def value(self, name: str) -> Any:
        schema = resolve(self.tool.arguments.get(name) or {}, self.tool.schema)
        return self._first_allowed(name, self._candidates(name, schema))

    def _first_allowed(self, name: str, values: Iterable[Any]) -> Any:
        allowed = (value for value in values if value is not NOTHING and not self.rules.forbids(name, value))
        return next(allowed, NOTHING)

    def _candidates(self, name: str, schema: Schema) -> Iterator[Any]:
        step, root = self.sources.step, self.tool.schema
        whole = self.tool.arguments.get(name) or {}
        yield from self._convert([*self.rules.values(name), *values_after(name, step)], whole)
        yield from self._from_enum(whole)
        yield from self._from_format(name, schema)
        if type_of(schema) in ("integer", "number") and not enum_of(schema):
            yield from self._from_numbers(name, schema)
        if normalise_name(name) in TEXT_NAMES:
            yield from self._convert(self._search_texts(), schema)
        if TITLE_NAMES.intersection(split_name(name)[-1:]):
            yield from self._convert([*quotations(step)[:1], *capitalised_runs(step)], schema)
        if name.lower() in OBJECT_NAMES and type_of(schema) == "object":
            yield self._from_fields(schema)
        if schema.get("default") is not None and is_valid(schema["default"], whole, root):
            yield schema["default"]

    def _convert(self, texts: Iterable[str], schema: Schema) -> Iterator[Any]:
        return (convert(text, schema, self.tool.schema) for text in texts)

    def _from_enum(self, whole: Schema) -> Iterator[Any]:
        """Members of an enumeration in the step: first those after "to", then in the order of the step."""
        schema = resolve(whole, self.tool.schema)
        if type_of(schema) == "array":
            yield self._named_members(schema.get("items") or {}) or NOTHING
            return
        yield from self._named_members(whole)

    def _named_members(self, schema: Schema) -> list[Any]:
        words = stems(self.sources.step)
        found = []
        for choice in alternatives(schema, self.tool.schema):
            for value in enum_of(choice):
                parts = stems(str(value))
                places = [at for at in range(len(words)) if parts and words[at : at + len(parts)] == parts]
                if places:
                    found.append((not any(at and words[at - 1] == "to" for at in places), places[0], value))
        return [value for *_, value in sorted(found, key=lambda one: one[:2])]

    def _from_format(self, name: str, schema: Schema) -> Iterator[Any]:
        if type_of(schema) == "array":
            items = resolve(schema.get("items") or {}, self.tool.schema)
            wanted = _format_of("", items)
            yield convert_all(find_format(wanted, self.sources.step), schema, self.tool.schema) if wanted else NOTHING
            return
        wanted = _format_of(name, schema)
        if not wanted or type_of(schema) != "string" or enum_of(schema):
            return
        required = name in self.tool.required
        if required or wanted != "uuid" or self._is_wanted_id(name):
            yield from self._unused(find_format(wanted, self.sources.step), schema)
        if required and not (is_id(name, schema) and self._names_unknown_record()):
            yield from self._unused(self._from_past(name, schema, wanted), schema)

    def _unused(self, texts: Iterable[str], schema: Schema) -> Iterator[Any]:
        """Those that no other argument of this call has."""
        taken = [value for value in self.done.values() if isinstance(value, str)]
        return self._convert((text for text in texts if text not in taken), schema)

    def _is_wanted_id(self, name: str) -> bool:
        """Whether an optional id gets a value: the step names its noun, or the tool takes no other id."""
        nouns = {stem(part) for part in split_name(name)[:-1]}
        ids = [other for other, schema in self.tool.arguments.items() if is_id(other, schema)]
        return ids == [name] or (bool(nouns) and nouns <= set(stems(self.sources.step)))

    def _from_past(self, name: str, schema: Schema, wanted: str) -> Iterator[str]:
        """Values of this turn's results, then of earlier turns: the named record's, those under the same key, any."""
        if is_id(name, schema):
            for result in self.sources.past_results():
                item = find_named_record(records_in(result) or [], self.sources.step)
                if item is not None and isinstance(item.get("id"), str):
                    yield item["id"]
        for source in self.sources.past():
            if isinstance(source, str):
                yield from find_format(wanted, source)
                continue
            scalars = [(key, value) for key, value in iter_scalars(source) if isinstance(value, str)]
            own = [value for key, value in scalars if normalise_name(key) == normalise_name(name)]
            ids = [value for key, value in scalars if key == "id"] if is_id(name, schema) else []
            for text in [*own, *ids, *(value for _, value in scalars)]:
                yield from find_format(wanted, text)

    def _names_unknown_record(self) -> bool:
        """Whether a writing step names a record that no result so far contains.

        Without this, "set the stage of Tessera to won" would change the record mentioned last.
        """
        if not self.tool.writes or POINTING.search(without_quotations(self.sources.step)):
            return False
        step = self.sources.step
        if any(find_named_record(records_in(result) or [], step) for result in self.sources.past_results()):
            return False
        names = [run for run in capitalised_runs(step) if any(letter.islower() for letter in run)]
        return any(not SET_TO.search(step[: step.find(name)]) for name in names)

    def _from_numbers(self, name: str, schema: Schema) -> Iterator[Any]:
        """The number nearest to the argument's name, at most three words away, else the only number."""
        step = self.sources.step
        taken = [value for value in self.done.values() if not isinstance(value, str)]
        found = [(at, convert(text, schema, self.tool.schema)) for at, text in find_numbers(step)]
        free = [(at, value) for at, value in found if value is not NOTHING and value not in taken]
        wanted = {stem(part) for part in split_name(name)}
        spots = [token.start() for token in re.finditer(r"[^\W_]+", step) if stem(token[0].lower()) in wanted]
        near = [
            (distance, at, value)
            for at, value in free
            for spot in spots
            if (distance := _words_between(step, spot, at)) <= MAX_WORDS_AWAY
        ]
        yield from (value for _, _, value in sorted(near, key=lambda one: one[:2]))
        if len(found) == 1:
            yield from (value for _, value in free)

    def _search_texts(self) -> list[str]:
        step = self.sources.step
        names = _record_names(step) if self.sources.looking_up else []
        return [*names, *quotations(step)[:1], drop_stop_words(step)]

    def _from_fields(self, schema: Schema) -> Any:
        """Each `X to Y` or `X = Y` whose X is a property of the schema; of an open schema, any X."""
        step = self.sources.step
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            return dict(find_fields(step)) or NOTHING if schema.get("additionalProperties") is not False else NOTHING
        found = {}
        for name, inner in properties.items():
            value = self._first_allowed(name, self._convert(values_after(name, step), inner or {}))
            if value is not NOTHING:
                found[name] = value
        return found or NOTHING


def _record_names(step: str) -> list[str]:
    """Possible record names in a step: quoted text, unless it is a value to set, then capitalised words."""
    quoted = [text for text in quotations(step) if not SET_TO.search(step[: step.find(text) - 1])]
    return [*quoted[:1], *capitalised_runs(without_quotations(step))]


def _format_of(name: str, schema: Schema) -> str:
    """The format that the schema or the argument's name asks for."""
    given = str(schema.get("format") or "")
    if given:
        return given if FORMAT_ALIASES.get(given, given) in FORMATS else ""
    parts = split_name(name)
    return FORMAT_OF_NAME.get(parts[-1], "") if parts else ""


def _words_between(text: str, one: int, other: int) -> int:
    first, second = sorted((one, other))
    return len(re.findall(r"[^\W_]+(?:[.,]\d+)*", text[first:second]))
