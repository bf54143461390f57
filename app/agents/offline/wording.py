"""How the offline model words values: names of fields, numbers with their units, lists, nouns and verbs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from app.agents.offline.conversation import OfflineTool, is_id, record_name
from app.text.words import split_name, words

MAX_VALUE = 300
MAX_DEPTH = 4
# A name of this length, or one that ends like a sentence, is a text and is quoted.
LONG_NAME = 60
MAX_PLAIN_WORDS = 3
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
KIND_KEYS = ("entityType", "entity_type")
# What people call the things that our tools return.
NOUNS = {
    "entities": "records", "entity": "records", "entity types": "kinds of record", "shared context": "rules",
    "context": "rules", "feedback": "comments",
}  # fmt: skip
PAST = {
    "get": "got", "set": "set", "send": "sent", "make": "made", "put": "put", "write": "wrote", "run": "ran",
    "give": "gave", "take": "took", "find": "found", "build": "built", "keep": "kept", "submit": "submitted",
    "log": "logged", "cancel": "cancelled", "plan": "planned", "stop": "stopped",
}  # fmt: skip
VOWELS = frozenset("aeiouy")


@dataclass(frozen=True)
class Field:
    """A field of a record as people know it. `spoken` are the ways in which a message can mention it."""

    label: str
    unit: str = ""
    spoken: tuple[frozenset[str], ...] = ()

    def is_mentioned(self, step_words: Sequence[str]) -> bool:
        """Whether at least half of the words of its name, its title or its description are in the step."""
        return any(2 * len(way.intersection(step_words)) >= len(way) for way in self.spoken if way)


def read_fields(tools: Sequence[OfflineTool]) -> dict[str, Field]:
    """The fields that the schemas of tools describe, by name. A title such as "Price, m" has the unit after the comma;
    each clause of a description, up to a semicolon, is another way to mention the field."""
    found: dict[str, Field] = {}
    for tool in tools:
        for name, schema in _properties(tool.schema):
            known = schema.get("title") or schema.get("description")
            if known and name not in found:
                found[name] = make_field(name, schema)
    return found


def make_field(name: str, schema: dict[str, Any] | None = None) -> Field:
    about = {key: schema[key] for key in ("title", "description") if schema and isinstance(schema.get(key), str)}
    label, unit = split_title(about.get("title", ""))
    ways = [name, label, *about.get("description", "").split(";")]
    return Field(lower_first(label) or spell_name(name), unit, tuple(frozenset(words(way)) for way in ways if way))


def split_title(title: str) -> tuple[str, str]:
    label, _, unit = title.partition(", ")
    return label, unit


def _properties(schema: Any, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        if isinstance(inner, dict):
            if depth:
                yield name, with_title(inner)
            yield from _properties(inner, depth + 1)


def with_title(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, or the first of its alternatives that has a title."""
    several = schema.get("anyOf")
    options = [one for one in several if isinstance(one, dict)] if isinstance(several, list) else []
    return next((one for one in [schema, *options] if isinstance(one.get("title"), str)), schema)


def lower_first(text: str) -> str:
    """`Main contact` in the middle of a sentence; `EBITDA` stays."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def spell_name(name: str) -> str:
    return " ".join(split_name(name)) or name


def say_field(name: str, value: Any, fields: dict[str, Field], *, labelled: bool = True) -> str:
    """`stage LOI`, `EV 118m`, `84 employees` or `under NDA`; a text that needs no label goes without."""
    known = fields.get(name) or make_field(name)
    if isinstance(value, bool):
        return known.label if value else f"not {known.label}"
    if isinstance(value, int) and not known.unit and known.label.endswith("s"):
        return f"{say_value(value)} {known.label}"
    if isinstance(value, str) and not labelled:
        return say_value(value)
    return f"{known.label} {quote_long(value, known.unit)}"


def say_equation(name: str, value: Any, fields: dict[str, Field], of: str = "") -> str:
    """`the stage of Kestrel is LOI`, and for a count `the number of records of Deal is 2`."""
    known = fields.get(name) or make_field(name)
    several = known.label.endswith("s")
    if several and not known.unit and isinstance(value, int) and not isinstance(value, bool):
        return f"the number of {known.label}{of} is {say_value(value)}"
    verb = "are" if several and isinstance(value, list | dict) else "is"
    return f"the {known.label}{of} {verb} {say_value(value, known.unit)}"


def say_value(value: Any, unit: str = "") -> str:
    """A value in a sentence, shortened, numbers with their unit."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return say_number(value) + (unit if len(unit) < 2 else f" {unit}")
    text = " ".join(_spell(value).split())
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 1].rstrip() + "…"


def say_number(value: float) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)


def _spell(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return join_and([_spell_item(one) for one in value[:20]]) or "empty"
    if isinstance(value, dict):
        return join_and([_spell_key(str(key), inner) for key, inner in list(value.items())[:20]]) or "empty"
    return say_number(value) if isinstance(value, int | float) else str(value)


def _spell_key(key: str, inner: Any) -> str:
    """The name of a field in a list of fields; its schema may have a title."""
    title = inner.get("title") if isinstance(inner, dict) else None
    return lower_first(split_title(title)[0]) if isinstance(title, str) else spell_name(key)


def _spell_item(value: Any) -> str:
    return record_name(value) or _spell(value) if isinstance(value, dict) else _spell(value)


def join_and(parts: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f" {last} ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def end_sentence(text: str) -> str:
    text = text.rstrip()
    return text if text[-1:] in ".!?…" or text[-2:] in (".”", "?”", "!”") else f"{text}."


def upper_first(text: str) -> str:
    return text[:1].upper() + text[1:]


def with_article(noun: str) -> str:
    sounds = "AEFHILMNORSX" if noun[:2].isupper() else "aeiouAEIOU"
    return f"{'an' if noun[:1] in sounds else 'a'} {noun}"


def quote(text: str) -> str:
    return f"“{text}”"


def quote_long(value: Any, unit: str = "") -> str:
    """A value that is set or submitted: one of several words is quoted, so that it is clear where it ends."""
    said = say_value(value, unit)
    return quote(said) if isinstance(value, str) and len(said.split()) > MAX_PLAIN_WORDS else said


def is_text(name: str) -> bool:
    """Whether what should be a name is a sentence or a long text."""
    return len(name) > LONG_NAME or name.rstrip()[-1:] in (".", "!", "?")


def say_count(count: int, noun: str) -> str:
    """`one deal`, `12 deals`; `noun` is the plural."""
    number = COUNTS[count] if count < len(COUNTS) else str(count)
    return f"{number} {singular(noun) if count == 1 else noun}"


def name_object(tool: OfflineTool) -> str:
    """What a tool deals with, in the plural: `searchDeals` deals with deals."""
    rest = " ".join(split_name(tool.name)[1:]) or "things"
    return NOUNS.get(rest) or plural(rest)


def plural_kind(kind: str) -> str:
    """`company` as `companies`; a kind whose slug is no word, such as `ltm`, gives its records."""
    is_word = kind.isalpha() and not kind.endswith("ing") and bool(VOWELS.intersection(kind.lower()))
    return plural(kind.lower()) if is_word else f"{spell_kind(kind)} records"


def spell_kind(kind: str) -> str:
    """A kind without a vowel is an abbreviation."""
    return spell_name(kind) if VOWELS.intersection(kind.lower()) else kind.upper()


def plural(noun: str) -> str:
    if noun.endswith("s"):
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in VOWELS else f"{noun}s"


def singular(noun: str) -> str:
    first, of, rest = noun.partition(" of ")
    if first.endswith("ies"):
        first = f"{first[:-3]}y"
    elif first.endswith("s") and not first.endswith("ss"):
        first = first[:-1]
    return first + of + rest


def past_tense(verb: str) -> str:
    if verb in PAST:
        return PAST[verb]
    if verb.endswith("y") and verb[-2:-1] not in VOWELS:
        return f"{verb[:-1]}ied"
    return f"{verb}d" if verb.endswith("e") else f"{verb}ed"


def scalars_of(item: dict[str, Any]) -> dict[str, Any]:
    """The fields of a record that fit into a sentence. Ids, its name under another key, its kind, "no" and empty ones
    are left out."""
    name = spell_name(record_name(item) or "")
    return {
        key: value
        for key, value in item.items()
        if isinstance(value, str | int | float)
        and value not in ("", False)
        and key not in ("name", "title", *KIND_KEYS)
        and not is_id(key)
        and not (isinstance(value, str) and spell_name(value) == name)
    }


def kind_of(item: dict[str, Any]) -> str:
    return next((item[key] for key in KIND_KEYS if isinstance(item.get(key), str)), "")
