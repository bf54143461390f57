"""From text to a value that is valid under the JSON schema of an argument."""

import re
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

from app.agents.offline.texts import FORMAT_ALIASES, FORMATS, MAX_STRING, NUMBER
from app.text.words import stems

Schema = dict[str, Any]
NOTHING = object()
MAX_DEPTH = 8

PARSERS: dict[str, Callable[[str], object]] = {"date": date.fromisoformat, "date-time": datetime.fromisoformat}
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
# A pattern with nested repetition can take exponential time.
_RISKY = re.compile(r"[+*}][)\]]*[+*{]|\([^)]*[+*][^)]*\)[+*{]")


def resolve(schema: Any, root: Schema, depth: int = 0) -> Schema:
    """Follow `$ref`; of alternatives, take the first that is not null."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return {}
    if isinstance(ref := schema.get("$ref"), str):
        target: Any = root
        for part in ref.lstrip("#/").split("/"):
            target = target.get(part) if isinstance(target, dict) else None
        return resolve(target, root, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(choices := schema.get(key), list):
            kinds = [resolve(choice, root, depth + 1) for choice in choices]
            merged = next((kind for kind in kinds if kind and kind.get("type") != "null"), {})
            return {**merged, **{name: value for name, value in schema.items() if name != key}}
    return schema


def type_of(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), None)
    if isinstance(kind, str):
        return kind
    return "object" if isinstance(schema.get("properties"), dict) else "string"


def enum_of(schema: Schema) -> list[Any]:
    """The values that an enumeration allows."""
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return [one for one in found if one is not None] if isinstance(found, list) else []


def convert(text: str, schema: Schema, root: Schema) -> Any:
    """Convert a text to a value that is valid under the schema, or `NOTHING`."""
    found = (_convert(text, choice, root) for choice in alternatives(schema, root))
    return next((value for value in found if value is not NOTHING), NOTHING)


def alternatives(schema: Schema, root: Schema) -> list[Schema]:
    """The schemas of which a value must match one."""
    for key in ("anyOf", "oneOf"):
        if isinstance(schema, dict) and isinstance(choices := schema.get(key), list):
            return [found for choice in choices if (found := resolve(choice, root)).get("type") != "null"]
    return [resolve(schema, root)]


def _convert(text: str, schema: Schema, root: Schema) -> Any:
    if allowed := enum_of(schema):
        return _member(text, allowed)
    kind = type_of(schema)
    if kind in ("integer", "number"):
        return _number(text, kind, schema)
    if kind == "boolean":
        word = text.strip().lower()
        return True if word in _TRUE else False if word in _FALSE else NOTHING
    if kind == "array":
        return convert_all([part for part in re.split(r"\s*,\s*|\s+and\s+", text.strip()) if part], schema, root)
    return text if kind == "string" and _is_valid_string(text, schema) else NOTHING


def convert_all(texts: list[str], schema: Schema, root: Schema) -> Any:
    """Convert texts to a list that is valid under an array's schema, or `NOTHING`."""
    found = [convert(text, schema.get("items") or {"type": "string"}, root) for text in texts]
    if not found or NOTHING in found or not _in_range(len(found), schema.get("minItems"), schema.get("maxItems")):
        return NOTHING
    return found


def is_valid(value: Any, schema: Schema, root: Schema) -> bool:
    """Whether a value, such as a default or an id from a result, is valid."""
    if isinstance(value, str):
        return bool(convert(value, schema, root) == value)
    schema = resolve(schema, root)
    if allowed := enum_of(schema):
        return value in allowed
    kinds: dict[str, tuple[type, ...]] = {
        "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,), "object": (dict,),
    }  # fmt: skip
    kind = type_of(schema)
    return isinstance(value, kinds.get(kind, ())) and (kind == "boolean") == isinstance(value, bool)


def _member(text: str, allowed: list[Any]) -> Any:
    wanted = text.strip()
    for read in (str, lambda value: str(value).casefold(), lambda value: stems(str(value))):
        for value in allowed:
            if read(value) == read(wanted) and read(wanted):
                return value
    return NOTHING


def _number(text: str, kind: str, schema: Schema) -> Any:
    found = NUMBER.fullmatch(text.strip())
    if not found or len(found[1]) > 30:
        return NOTHING
    value = float(found[1].replace(",", "")) * (-1 if found[0].startswith("-") else 1)
    if kind == "integer" and not value.is_integer():
        return NOTHING
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if not _in_range(value, schema.get("minimum"), schema.get("maximum")) or not _in_range(value, above, below):
        return NOTHING
    if value in (above, below):
        return NOTHING
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def _in_range(value: float, low: Any, high: Any) -> bool:
    """Whether a value is within bounds that a schema may leave out or have wrong."""
    too_low = isinstance(low, int | float) and value < low
    return not too_low and not (isinstance(high, int | float) and value > high)


def _is_valid_string(text: str, schema: Schema) -> bool:
    if not _in_range(len(text), schema.get("minLength"), schema.get("maxLength")) or not text.strip():
        return False
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _RISKY.search(pattern) and len(text) <= MAX_STRING:
        try:
            if not re.search(pattern, text):
                return False
        except re.error:
            return False
    return _has_format(text, str(schema.get("format") or ""))


def _has_format(text: str, name: str) -> bool:
    name = FORMAT_ALIASES.get(name, name)
    if name not in FORMATS:
        return True
    try:
        PARSERS.get(name, str)(text)
    except ValueError:
        return False
    return FORMATS[name].fullmatch(text) is not None
