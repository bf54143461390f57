"""The arguments of a call, each by the first rule that yields a valid value; `Filling._candidates` has the order.
Values come from what a person wrote (`stage to won`, `limit: 5`, dates, ids, numbers) and fit a JSON schema."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from app.agents.offline.conversation import OfflineTool, is_id, iter_texts, record_name, records_in
from app.agents.offline.wording import Field, make_field, split_title, with_title
from app.formats.ids import UUID_PATTERN
from app.formats.json_schema import fits_schema
from app.learning.rules import TRAILING, Rules, normalise_name
from app.text.words import (
    QUOTED,
    STOP,
    WORD,
    drop_stop_words,
    quotations,
    split_name,
    stem,
    stems,
    without_quotations,
    words,
)

Schema = dict[str, Any]
NOTHING = object()
MAX_DEPTH = 8
MAX_WORDS = 12
MAX_STRING = 4000
FORMATS = {
    "uuid": re.compile(rf"(?<![\w-]){UUID_PATTERN.pattern}(?![\w-])", re.IGNORECASE),
    "email": re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}"),
    "date": re.compile(r"(?<![\w-])\d{4}-\d{2}-\d{2}(?![\w-])"),
    "date-time": re.compile(r"(?<![\w-])\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?"),
    "uri": re.compile(r"https?://[^\s<>\"“”]+[^\s<>\"“”.,;:!?)\]]"),
}
# The letters after a number multiply it, unless the title of the field has the same unit: "Price, m".
NUMBER = re.compile(
    r"(?<![\w.,-])[-+]?[$€£]?(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)(?:%|(k|m|mn|bn|x)\b)?(?![\w-]|[.,]\d)"
)
FACTORS = {"k": 1e3, "m": 1e6, "mn": 1e6, "bn": 1e9}
MAX_DIGITS = 30
PARSERS = {"date": date.fromisoformat, "date-time": datetime.fromisoformat}
BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
# After the name of an argument, its value follows one of these.
SIGNS = (r"\s?=\s?(?!=)", r"\s?:(?!//)\s?", r"\s+is\s+", r"(?:\s+(?:of|for)\s+[^,;:=]{1,80}?)?\s+to\s+")
_ENDS = re.compile(
    r",(?!\d{3}(?!\d))|[;\n]|[.!?](?=\s|$)|\s(?:and|for|where|when|with|because|but|then)\s|\s(?:please|pls|too|again)\b|\s\w+\s*[=:]\s*\S",
    re.IGNORECASE,
)
# A pattern with nested repetition can take exponential time.
_RISKY = re.compile(r"[+*}][)\]]*[+*{]|\([^)]*[+*][^)]*\)[+*{]")
_TOKEN = re.compile(r"[^\W_](?:[\w&’'-]*[^\W_])?")
TEXT_NAMES = frozenset(("query", "q", "search", "text", "content", "question", "message"))
TITLE_NAMES = frozenset(("name", "title"))
OBJECT_NAMES = frozenset(("fields", "changes", "values"))
MAX_WORDS_AWAY = 3
# What follows this is a value.
# Verbs with which people ask to see something.
ASKING = frozenset(map(stem, ("show", "find", "list", "look", "search", "open", "pull", "check")))
BEFORE_VALUES = frozenset(("to", "as", "at", "in"))
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
    """The arguments of one call while they are filled, required ones first. Values in `done` are kept. `past` are the
    results and texts so far, newest first. A lookup searches for the name in the step, not for its other words."""

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
        step, given = self.step, self.tool.arguments.get(name)
        whole: Schema = given if isinstance(given, dict) else {}
        schema = choices(whole, self.tool.schema)[0]
        yield from self._convert([*self.rules.values(name), *values_after(name, step)], whole)
        yield from self._from_enum(whole)
        if type_of(schema) == "string" and not enum_of(schema):
            yield from self._from_format(name, schema)
        if type_of(schema) in ("integer", "number") and not enum_of(schema):
            yield from self._from_numbers(name, schema)
        if normalise_name(name) in TEXT_NAMES:
            names = self._record_names() if self.looking_up else []
            yield from self._convert([*names, *quotations(step)[:1], self._words_to_find(name)], schema)
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
        said = stems(self.step)
        found = []
        values = [value for choice in choices(whole, self.tool.schema) for value in enum_of(choice)]
        for value in values:
            if places := _places_of(value, said):
                found.append((not any(at and said[at - 1] == "to" for at in places), places[0], value))
        named = [value for *_, value in sorted(found, key=lambda one: one[:2])]
        return [*named, *self._from_description(whole, values)]

    def _from_description(self, whole: Schema, values: Sequence[Any]) -> list[Any]:
        """Members of an enumeration that a description explains as `member: other words;`, if all these words are in
        the step."""
        about, said = str(whole.get("description", "")), set(words(self.step))
        clauses = [clause.partition(":") for clause in about.split(";")]
        meant = {name.strip(): set(words(rest)) for name, _, rest in clauses}
        return [value for value in values if (wanted := meant.get(str(value))) and wanted <= said]

    def _words_to_find(self, name: str) -> str:
        """The words of the step. An optional argument gets none of those that only say which tool is meant."""
        kept = drop_stop_words(self.step)
        if name in self.tool.required:
            return kept
        known = self.tool.known_words | {
            stem(part) for schema in self.tool.arguments.values() for part in _explained(schema)
        }
        return " ".join(part for part in kept.split() if not (known | ASKING).issuperset(words(part)))

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
        plain = without_quotations(self.step)
        runs = capitalised_runs(plain)
        return [*quoted[:1], *sorted(runs, key=lambda run: _is_value(run, plain))]

    def _names_unknown_record(self) -> bool:
        """Whether a writing step names a record that no result so far contains. Without this, "set the stage of Tessera
        to won" would change the record mentioned last."""
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
        """The properties of an object that the step gives a value, by the name or title of each."""
        found: dict[str, Any] = {}
        properties = schema.get("properties")
        for name, inner in properties.items() if isinstance(properties, dict) else ():
            taken = [*self.done.values(), *found.values()]
            values = (value for value in self._field_values(name, inner) if value not in taken)
            found[name] = self._first_allowed(name, values)
        return {name: value for name, value in found.items() if value is not NOTHING} or NOTHING

    def _field_values(self, name: str, inner: Any) -> Iterator[Any]:
        """`X to Y` and its like; then a member of an enumeration, a date or address, a number beside the field."""
        step, whole = self.step, with_title(inner) if isinstance(inner, dict) else {}
        known = make_field(name, whole)
        names = list(dict.fromkeys((name, known.label)))
        yield from self._convert((value for one in names for value in values_after(one, step)), inner)
        schema = choices(inner, self.tool.schema)[0]
        kind, wanted = type_of(schema), format_of(schema)
        if allowed := enum_of(schema):
            yield from (value for value in allowed if _stands_beside(value, known, step))
        elif kind in ("integer", "number"):
            yield from self._convert(_numbers_beside(known, step), inner)
        elif wanted and known.is_mentioned(words(step)):
            yield from self._convert(find_format(wanted, step), inner)
        elif kind == "string":
            yield from self._convert((text for one in names for text in _words_after(one, step)), inner)


def _places_of(value: Any, said: Sequence[str]) -> list[int]:
    parts = stems(str(value))
    return [at for at in range(len(said)) if parts and list(said[at : at + len(parts)]) == parts]


def _explained(schema: Any) -> list[str]:
    """The words with which the description of an enumeration explains its members."""
    if not isinstance(schema, dict) or not enum_of(schema):
        return []
    return split_name(f"{schema.get('description', '')} {' '.join(map(str, enum_of(schema)))}")


def _stands_beside(value: Any, known: Field, step: str) -> bool:
    """Whether a member of an enumeration is said as a value: after "to", "as", "at", "in" or beside the field."""
    said, own = stems(step), {word for way in known.spoken for word in way}
    size = len(stems(str(value)))
    around = [(said[at - 1 : at] or [""], said[at + size : at + size + 1] or [""]) for at in _places_of(value, said)]
    return any(before[0] in BEFORE_VALUES or {before[0], after[0]} & own for before, after in around)


def _numbers_beside(known: Field, step: str) -> Iterator[str]:
    """The numbers of which the name of the field is at most three words away, the nearest first. In a list of several
    fields the one that follows the name is meant, unless the number stands right before it."""
    own = {word for way in known.spoken for word in way}
    spots = [token for token in WORD.finditer(step) if stem(token[0].lower()) in own]
    found = []
    for at, text in find_numbers(step):
        for spot in spots:
            between = step[spot.end() : at] if at > spot.start() else step[at + len(text) : spot.start()]
            distance = len(WORD.findall(between))
            if distance <= MAX_WORDS_AWAY and not re.search(r"[,;]\s|\d", between):
                found.append((distance, at, text))
    yield from (text for *_, text in sorted(found))


def _words_after(name: str, step: str) -> Iterator[str]:
    """`role CFO`: a text that follows the name of a field at once, if it opens with a capital or a quotation."""
    spelled = _spell_pattern(name)
    for found in re.finditer(spelled + r"\s+(?=[^\W\d_a-z]|[\"“])", step):
        yield from _values_in(step[found.end() :], one_word=False)


def _is_value(run: str, step: str) -> tuple[bool, bool]:
    """Whether capitalised words are a value to set, or an abbreviation, rather than the name of a record."""
    return SET_TO.search(step[: step.find(run)]) is not None, run.isupper()


def _words_between(text: str, one: int, other: int) -> int:
    first, second = sorted((one, other))
    return len(re.findall(r"[^\W_]+(?:[.,]\d+)*", text[first:second]))


def values_after(name: str, text: str) -> Iterator[str]:
    """The values that a text gives a name, in the order of `name=…`, `name: …`, `name is …`, `name to …`. An unquoted
    phrase comes whole first, then shorter and shorter, so that the schema can take the first valid one."""
    spelled = _spell_pattern(name)
    for sign in SIGNS:
        for found in re.finditer(spelled + sign, text, re.IGNORECASE):
            yield from _values_in(text[found.end() :], one_word=sign == SIGNS[0])


def _spell_pattern(name: str) -> str:
    return r"(?<![\w-])" + r"[\s_-]*".join(map(re.escape, split_name(name))) + r"(?!\w)"


def _values_in(rest: str, *, one_word: bool) -> Iterator[str]:
    if quoted := QUOTED.match(rest):
        yield quoted[1] or quoted[2] or ""
        return
    end = _ENDS.search(rest)
    phrase = (rest[: end.start()] if end else rest).split()[:MAX_WORDS]
    if one_word:
        yield rest.split(maxsplit=1)[0].split(";")[0].rstrip(TRAILING) if rest.strip() else ""
    elif any(word.lower() not in STOP or word.lower() in BOOLEANS for word in phrase):
        yield from (" ".join(phrase[:size]).rstrip(TRAILING) for size in range(len(phrase), 0, -1))


def capitalised_runs(text: str) -> list[str]:
    """Runs of capitalised words, longest first, without the word that opens the text."""
    found: list[list[str]] = []
    end = -1
    for token in list(_TOKEN.finditer(text))[1:]:
        word = re.sub(r"['’]s$", "", token[0])
        if not word[0].isupper():
            continue
        if end >= 0 and not text[end : token.start()].strip(" "):
            found[-1].append(word)
        else:
            found.append([word])
        end = token.end() if word == token[0] else -1
    return [" ".join(run) for run in sorted(found, key=len, reverse=True)]


def find_numbers(text: str) -> list[tuple[int, str]]:
    """The numbers of a text that are not part of a date, an id or an address, each with its position."""
    for pattern in FORMATS.values():
        text = pattern.sub(lambda found: "_" * len(found[0]), text)
    return [(found.start(), found[0]) for found in NUMBER.finditer(text)]


def find_format(name: str, text: str) -> list[str]:
    return list(dict.fromkeys(FORMATS[name].findall(text[:MAX_STRING])))


def choices(schema: Any, root: Schema, depth: int = 0) -> list[Schema]:
    """The schemas of which a value must match one: references followed, alternatives side by side, null left out."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return [{}]
    if isinstance(ref := schema.get("$ref"), str):
        target: Any = root
        for part in ref.lstrip("#/").split("/"):
            target = target.get(part) if isinstance(target, dict) else None
        return choices(target, root, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(several := schema.get(key), list):
            rest = {name: value for name, value in schema.items() if name != key}
            found = [choice for one in several for choice in choices(one, root, depth + 1)]
            return [{**choice, **rest} for choice in found if choice.get("type") != "null"] or [{}]
    return [schema]


def type_of(schema: Schema) -> str:
    kind = schema.get("type")
    kinds = [one for one in (kind if isinstance(kind, list) else [kind]) if isinstance(one, str) and one != "null"]
    return kinds[0] if kinds else "object" if isinstance(schema.get("properties"), dict) else "string"


def enum_of(schema: Schema) -> list[Any]:
    """The values that an enumeration allows."""
    found = [schema["const"]] if "const" in schema else schema.get("enum")
    return [one for one in found if one is not None] if isinstance(found, list) else []


def format_of(schema: Schema) -> str:
    given = {"url": "uri", "http-url": "uri"}.get(schema.get("format", ""), schema.get("format"))
    return given if given in FORMATS else ""


def convert(text: str, schema: Any, root: Schema) -> Any:
    """Convert a text to a value that is valid under the schema, or `NOTHING`."""
    found = ((_read_as(text.strip(), choice, root), choice) for choice in choices(schema, root))
    return next((value for value, choice in found if value is not NOTHING and is_valid(value, choice, root)), NOTHING)


def is_valid(value: Any, schema: Any, root: Schema) -> bool:
    """Whether a value, such as a default or an id from a result, is valid."""
    return any(_fits(value, choice) for choice in choices(schema, root))


def _fits(value: Any, schema: Schema) -> bool:
    if allowed := enum_of(schema):
        return value in allowed
    wanted = format_of(schema)
    if isinstance(value, str) and wanted:
        try:
            PARSERS.get(wanted, str)(value)
        except ValueError:
            return False
        return FORMATS[wanted].fullmatch(value) is not None
    return value != "" and _has_pattern(value, schema) and fits_schema(value, {**schema, "type": type_of(schema)})


def _has_pattern(value: Any, schema: Schema) -> bool:
    pattern = schema.get("pattern")
    if not isinstance(value, str) or not isinstance(pattern, str) or _RISKY.search(pattern) or len(value) > MAX_STRING:
        return True
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return False


def _read_as(text: str, schema: Schema, root: Schema) -> Any:
    if allowed := enum_of(schema):
        exact = (value for value in allowed if str(value) == text)
        alike = (value for value in allowed if stems(text) and stems(str(value)) == stems(text))
        return next(exact, next(alike, NOTHING))
    kind = type_of(schema)
    if kind in ("integer", "number"):
        return _read_number(text, split_title(str(schema.get("title", "")))[1])
    if kind == "boolean":
        return BOOLEANS.get(text.lower(), NOTHING)
    if kind == "array":
        found = [convert(part, schema.get("items") or {}, root) for part in re.split(r",|\sand\s", text)]
        return NOTHING if NOTHING in found else found
    return text if kind == "string" else NOTHING


def _read_number(text: str, unit: str) -> Any:
    found = NUMBER.fullmatch(text)
    if not found or len(found[1]) > MAX_DIGITS:
        return NOTHING
    value = float(found[1].replace(",", "")) * (-1 if text.startswith("-") else 1)
    if found[2] and found[2][0] != unit[:1]:
        value = round(value * FACTORS.get(found[2], 1), 6)
    return int(value) if value.is_integer() else value
