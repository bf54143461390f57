"""Values that stand in texts and results, and whether they fit a JSON schema."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

from app.text.words import stems

Schema = dict[str, Any]
NOTHING = object()
MOST_LEAVES = 2000
DEEPEST = 8
LONGEST_STRING = 4000
LONGEST_JSON = 1_000_000
ITEM_KEYS = ("items", "results", "rows", "data")
NAME_KEYS = ("name", "title")

FORMATS = {
    "uuid": re.compile(r"(?<![\w-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![\w-])"),
    "email": re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}"),
    "date": re.compile(r"(?<![\w-])\d{4}-\d{2}-\d{2}(?![\w-])"),
    "date-time": re.compile(r"(?<![\w-])\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?"),
    "uri": re.compile(r"https?://[^\s<>\"“”]+[^\s<>\"“”.,;:!?)\]]"),
}
SAME_FORMAT = {"url": "uri", "uri-reference": "uri", "http-url": "uri", "idn-email": "email"}
_NUMBER = re.compile(r"(?<![\w.,-])[-+]?[$€£]?(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)%?(?![\w-]|[.,]\d)")
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
# A pattern with a repeated repetition could keep us busy for ever.
_RISKY = re.compile(r"[+*}][)\]]*[+*{]|\([^)]*[+*][^)]*\)[+*{]")


def resolved(schema: Any, root: Schema, depth: int = 0) -> Schema:
    """A schema behind its `$ref`; of alternatives, the first that is not null."""
    if not isinstance(schema, dict) or depth > DEEPEST:
        return {}
    if isinstance(ref := schema.get("$ref"), str):
        target: Any = root
        for part in ref.lstrip("#/").split("/"):
            target = target.get(part) if isinstance(target, dict) else None
        return resolved(target, root, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(choices := schema.get(key), list):
            kinds = [resolved(choice, root, depth + 1) for choice in choices]
            merged = next((kind for kind in kinds if kind and kind.get("type") != "null"), {})
            return {**merged, **{name: value for name, value in schema.items() if name != key}}
    return schema


def kind_of(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), None)
    if isinstance(kind, str):
        return kind
    return "object" if isinstance(schema.get("properties"), dict) else "string"


def members(schema: Schema) -> list[Any]:
    """What an enumeration allows."""
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return [one for one in found if one is not None] if isinstance(found, list) else []


def fit(text: str, schema: Schema, root: Schema) -> Any:
    """A text as a value that is valid under the schema, or `NOTHING`."""
    found = (_fit(text, choice, root) for choice in alternatives(schema, root))
    return next((value for value in found if value is not NOTHING), NOTHING)


def alternatives(schema: Schema, root: Schema) -> list[Schema]:
    """The schemas of which a value has to fit one."""
    for key in ("anyOf", "oneOf"):
        if isinstance(schema, dict) and isinstance(choices := schema.get(key), list):
            return [found for choice in choices if (found := resolved(choice, root)).get("type") != "null"]
    return [resolved(schema, root)]


def _fit(text: str, schema: Schema, root: Schema) -> Any:
    if allowed := members(schema):
        return _member(text, allowed)
    kind = kind_of(schema)
    if kind in ("integer", "number"):
        return _number(text, kind, schema)
    if kind == "boolean":
        word = text.strip().lower()
        return True if word in _TRUE else False if word in _FALSE else NOTHING
    if kind == "array":
        return fit_all([part for part in re.split(r"\s*,\s*|\s+and\s+", text.strip()) if part], schema, root)
    return text if kind == "string" and _string_fits(text, schema) else NOTHING


def fit_all(texts: list[str], schema: Schema, root: Schema) -> Any:
    """A list of texts as a list that is valid under an array's schema, or `NOTHING`."""
    found = [fit(text, schema.get("items") or {"type": "string"}, root) for text in texts]
    least, most = schema.get("minItems", 1), schema.get("maxItems", len(found))
    if not found or any(value is NOTHING for value in found) or not _within(len(found), max(_int(least), 1), most):
        return NOTHING
    return found


def fits(value: Any, schema: Schema, root: Schema) -> bool:
    """Whether a value that is no text, such as a default or an id of a result, is valid; texts as in `fit`."""
    if isinstance(value, str):
        return bool(fit(value, schema, root) == value)
    schema = resolved(schema, root)
    if allowed := members(schema):
        return value in allowed
    kinds: dict[str, tuple[type, ...]] = {
        "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,), "object": (dict,),
    }  # fmt: skip
    kind = kind_of(schema)
    return isinstance(value, kinds.get(kind, ())) and (kind == "boolean") == isinstance(value, bool)


def numbers(text: str) -> list[tuple[int, str]]:
    """The numbers of a text that are no part of a date, an id or an address, each with its place."""
    for pattern in FORMATS.values():
        text = pattern.sub(lambda found: "_" * len(found[0]), text)
    return [(found.start(), found[0]) for found in _NUMBER.finditer(text)]


def of_format(name: str, text: str) -> list[str]:
    pattern = FORMATS.get(SAME_FORMAT.get(name, name))
    return list(dict.fromkeys(pattern.findall(text[:LONGEST_STRING]))) if pattern else []


def parsed(result: Any) -> Any:
    """A result as JSON's types; a text that is JSON counts as what it says."""
    if isinstance(result, str) and result.lstrip()[:1] in ("{", "[") and len(result) <= LONGEST_JSON:
        try:
            return json.loads(result)
        except (ValueError, RecursionError):
            return result
    return result


def items_of(result: Any) -> list[dict[str, Any]] | None:
    """The records in a result; nothing when it is no list of records and no record with an id."""
    result = parsed(result)
    if isinstance(result, dict):
        keys = [*(key for key in ITEM_KEYS if key in result), *(key for key in result if key not in ITEM_KEYS)]
        for key in keys:
            if isinstance(inner := result[key], list) and (not inner or isinstance(inner[0], dict)):
                return [item for item in inner if isinstance(item, dict)]
        return [result] if "id" in result else None
    if isinstance(result, list) and all(isinstance(item, dict) for item in result):
        return result
    return None


def name_of(item: dict[str, Any]) -> str | None:
    """The name or title of a record."""
    return next((item[key] for key in NAME_KEYS if isinstance(item.get(key), str) and item[key].strip()), None)


def leaves(result: Any) -> Iterator[tuple[str, Any]]:
    """Every scalar in a result with its key, in reading order, as far as a reader would go."""
    stack: list[tuple[str, Any, int]] = [("", parsed(result), 0)]
    seen = 0
    while stack and seen < MOST_LEAVES:
        key, value, depth = stack.pop()
        seen += 1
        if isinstance(value, dict) and depth < DEEPEST:
            stack += [(str(name), inner, depth + 1) for name, inner in reversed(list(value.items())[:MOST_LEAVES])]
        elif isinstance(value, list) and depth < DEEPEST:
            stack += [(key, inner, depth + 1) for inner in reversed(value[:MOST_LEAVES])]
        elif is_scalar(value):
            yield key, value


def is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)


def _member(text: str, allowed: list[Any]) -> Any:
    wanted = text.strip()
    for read in (str, lambda value: str(value).casefold(), lambda value: stems(str(value))):
        for value in allowed:
            if read(value) == read(wanted) and read(wanted):
                return value
    return NOTHING


def _number(text: str, kind: str, schema: Schema) -> Any:
    found = _NUMBER.fullmatch(text.strip())
    if not found or len(found[1]) > 30:
        return NOTHING
    value = float(found[1].replace(",", "")) * (-1 if found[0].startswith("-") else 1)
    if kind == "integer" and not value.is_integer():
        return NOTHING
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
    if not _within(value, low, high) or not (_within(value, above, below) and value not in (above, below)):
        return NOTHING
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def _within(value: float, low: Any, high: Any) -> bool:
    ends = [end if isinstance(end, int | float) else None for end in (low, high)]
    return (ends[0] is None or value >= ends[0]) and (ends[1] is None or value <= ends[1])


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _string_fits(text: str, schema: Schema) -> bool:
    if not _within(len(text), schema.get("minLength"), schema.get("maxLength")) or not text.strip():
        return False
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _RISKY.search(pattern) and len(text) <= LONGEST_STRING:
        try:
            if not re.search(pattern, text):
                return False
        except re.error:
            return False
    return _format_fits(text, str(schema.get("format") or ""))


def _format_fits(text: str, name: str) -> bool:
    name = SAME_FORMAT.get(name, name)
    if name not in FORMATS:
        return True
    if not FORMATS[name].fullmatch(text):
        return False
    try:
        if name == "date":
            date.fromisoformat(text)
        if name == "date-time":
            datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
