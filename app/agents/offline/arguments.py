"""The arguments of a call, each by the first rule that yields a valid value; `Filling._candidates` has the order."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.agents.offline.conversation import OfflineTool, is_id, iter_texts, record_name, records_in
from app.agents.offline.rules import Rules, normalise_name
from app.agents.offline.values import (
    NOTHING,
    Schema,
    capitalised_runs,
    choices,
    convert,
    enum_of,
    find_format,
    find_numbers,
    format_of,
    is_valid,
    type_of,
    values_after,
)
from app.text.words import WORD, drop_stop_words, quotations, split_name, stem, stems, without_quotations

TEXT_NAMES = frozenset(("query", "q", "search", "text", "content", "question", "message"))
TITLE_NAMES = frozenset(("name", "title"))
OBJECT_NAMES = frozenset(("fields", "changes", "values"))
MAX_WORDS_AWAY = 3
# What follows this is a value.
SET_TO = re.compile(r"(?:\bto|\bis|[=:])\s*$", re.IGNORECASE)


def find_named_record(items: Sequence[dict[str, Any]], step: str) -> dict[str, Any] | None:
    """The one record whose name or title occurs in the step. Part of a longer name that occurs does not count."""
    names = [(item, _spell(record_name(item) or "")) for item in items]
    found = [(item, name) for item, name in names if name.strip() and name in _spell(step)]
    longest = [item for item, name in found if not any(name in other and name != other for _, other in found)]
    return longest[0] if len({str(item.get("id")) for item in longest}) == 1 else None


def _spell(text: str) -> str:
    """The words of a text between spaces, so that only whole words are found in it."""
    return " ".join(["", *WORD.findall(re.sub(r"['’]s\b", "", text.casefold())), ""])


@dataclass
class Filling:
    """The arguments of one call while they are filled, required ones first. Values in `done` are kept.

    `past` are the results and texts so far, newest first. A lookup searches for the name in the step, not for its
    other words.
    """

    tool: OfflineTool
    rules: Rules
    step: str
    past: Sequence[Any]
    done: dict[str, Any] = field(default_factory=dict)
    looking_up: bool = False
    missing: list[str] = field(default_factory=list)

    def fill(self) -> "Filling":
        for name in dict.fromkeys([*self.tool.required, *self.tool.arguments]):
            if name in self.done:
                continue
            value = self._first_allowed(name, self._candidates(name))
            if value is not NOTHING:
                self.done[name] = value
            elif name in self.tool.required:
                self.missing.append(name)
        return self

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments in the order of the schema."""
        order = {name: place for place, name in enumerate(self.tool.arguments)}
        return dict(sorted(self.done.items(), key=lambda pair: order.get(pair[0], -1)))

    def _first_allowed(self, name: str, values: Iterable[Any]) -> Any:
        allowed = (value for value in values if value is not NOTHING and not self.rules.forbids(name, value))
        return next(allowed, NOTHING)

    def _candidates(self, name: str) -> Iterator[Any]:
        step, whole = self.step, self.tool.arguments.get(name) or {}
        schema = choices(whole, self.tool.schema)[0]
        yield from self._convert([*self.rules.values(name), *values_after(name, step)], whole)
        yield from self._from_enum(whole)
        if type_of(schema) == "string" and not enum_of(schema):
            yield from self._from_format(name, schema)
        if type_of(schema) in ("integer", "number") and not enum_of(schema):
            yield from self._from_numbers(name, schema)
        if normalise_name(name) in TEXT_NAMES:
            names = self._record_names() if self.looking_up else []
            yield from self._convert([*names, *quotations(step)[:1], drop_stop_words(step)], schema)
        if TITLE_NAMES.intersection(split_name(name)[-1:]):
            yield from self._convert([*quotations(step)[:1], *capitalised_runs(step)], schema)
        if name.lower() in OBJECT_NAMES and type_of(schema) == "object":
            yield self._from_fields(schema)
        if schema.get("default") is not None and is_valid(schema["default"], whole, self.tool.schema):
            yield schema["default"]

    def _convert(self, texts: Iterable[str], schema: Any) -> Iterator[Any]:
        return (convert(text, schema, self.tool.schema) for text in texts)

    def _from_enum(self, whole: Schema) -> list[Any]:
        """Members of an enumeration in the step: first those after "to", then in the order of the step."""
        words = stems(self.step)
        found = []
        for value in [value for choice in choices(whole, self.tool.schema) for value in enum_of(choice)]:
            parts = stems(str(value))
            places = [at for at in range(len(words)) if parts and words[at : at + len(parts)] == parts]
            if places:
                found.append((not any(at and words[at - 1] == "to" for at in places), places[0], value))
        return [value for *_, value in sorted(found, key=lambda one: one[:2])]

    def _from_format(self, name: str, schema: Schema) -> Iterator[Any]:
        """Values of the format that no other argument of this call has: in the step, then in what came before."""
        wanted = format_of(schema) or ("uuid" if is_id(name) else "")
        if not wanted:
            return
        required = name in self.tool.required
        texts = []
        if required or wanted != "uuid" or self._is_wanted_id(name):
            texts += find_format(wanted, self.step)
        if required and not (is_id(name) and self._names_unknown_record()):
            texts += self._from_past(name, wanted)
        yield from self._convert((text for text in texts if text not in self.done.values()), schema)

    def _is_wanted_id(self, name: str) -> bool:
        """Whether an optional id gets a value: the step names its noun, or the tool takes no other id."""
        nouns = {stem(part) for part in split_name(name)[:-1]}
        ids = [other for other in self.tool.arguments if is_id(other)]
        return ids == [name] or (bool(nouns) and nouns <= set(stems(self.step)))

    def _from_past(self, name: str, wanted: str) -> Iterator[str]:
        """Values of this turn's results, then of earlier turns: the named record's, those under the same key, any."""
        if is_id(name):
            yield from self._named_ids()
        for source in self.past:
            texts = sorted(
                iter_texts(source), key=lambda pair: (normalise_name(pair[0]) != normalise_name(name), pair[0] != "id")
            )
            for _, text in texts:
                yield from find_format(wanted, text)

    def _named_ids(self) -> list[str]:
        """The ids of records in past results that the step names."""
        found = [find_named_record(records_in(result) or [], self.step) for result in self.past]
        return [item["id"] for item in found if item is not None and isinstance(item.get("id"), str)]

    def _record_names(self) -> list[str]:
        """Possible record names in the step: quoted text, unless it is a value to set, then capitalised words."""
        quoted = [text for text in quotations(self.step) if not SET_TO.search(self.step[: self.step.find(text) - 1])]
        return [*quoted[:1], *capitalised_runs(without_quotations(self.step))]

    def _names_unknown_record(self) -> bool:
        """Whether a writing step names a record that no result so far contains.

        Without this, "set the stage of Tessera to won" would change the record mentioned last.
        """
        step = self.step
        if not self.tool.writes or self._named_ids():
            return False
        names = [run for run in capitalised_runs(step) if any(letter.islower() for letter in run)]
        return any(not SET_TO.search(step[: step.find(name)]) for name in names)

    def _from_numbers(self, name: str, schema: Schema) -> Iterator[Any]:
        """The number nearest to the argument's name, at most three words away, else the only number."""
        taken = [value for value in self.done.values() if not isinstance(value, str)]
        found = [(at, convert(text, schema, self.tool.schema)) for at, text in find_numbers(self.step)]
        free = [(at, value) for at, value in found if value is not NOTHING and value not in taken]
        wanted = {stem(part) for part in split_name(name)}
        spots = [token.start() for token in WORD.finditer(self.step) if stem(token[0].lower()) in wanted]
        near = sorted((_words_between(self.step, spot, at), at, value) for at, value in free for spot in spots)
        yield from (value for distance, _, value in near if distance <= MAX_WORDS_AWAY)
        if len(found) == 1:
            yield from (value for _, value in free)

    def _from_fields(self, schema: Schema) -> Any:
        """Each `X to Y` or `X = Y` whose X is a property of the schema."""
        found = {}
        properties = schema.get("properties")
        for name, inner in properties.items() if isinstance(properties, dict) else ():
            found[name] = self._first_allowed(name, self._convert(values_after(name, self.step), inner))
        return {name: value for name, value in found.items() if value is not NOTHING} or NOTHING


def _words_between(text: str, one: int, other: int) -> int:
    first, second = sorted((one, other))
    return len(re.findall(r"[^\W_]+(?:[.,]\d+)*", text[first:second]))
