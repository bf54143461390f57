"""Values as a form holds them: pairs of a name and a text, which a JSON schema tells apart. Where it leaves open what a
value is, a number, true, false, null, a list or an object is read as JSON, and anything else is text."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from app.text.values import as_number

Pair = tuple[str, str]
Schema = Mapping[str, Any]
_OPEN: Schema = {}
MAX_DEPTH = 6


def member_schema(schema: Any, name: str) -> Schema:
    """What a schema says of one member; empty where it leaves that open."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    found = properties.get(name) if isinstance(properties, Mapping) else None
    return found if isinstance(found, Mapping) else _OPEN


def types_of(schema: Schema) -> list[str]:
    """The types that a schema allows, without null."""
    given = schema.get("type")
    return [one for one in (given if isinstance(given, list) else [given]) if isinstance(one, str) and one != "null"]


def write_pairs(values: Mapping[str, Any], schema: Any = None, *, nested: bool = False) -> list[Pair]:
    """Values as pairs. `nested` writes the members of an object by themselves: `changes.stage`."""
    return [pair for name, value in values.items() for pair in _pairs(name, value, member_schema(schema, name), nested)]


def _pairs(name: str, value: Any, schema: Schema, nested: bool, depth: int = 1) -> list[Pair]:
    if nested and isinstance(value, Mapping) and value and depth < MAX_DEPTH and _has_plain_names(value):
        return [
            pair
            for key, held in value.items()
            for pair in _pairs(f"{name}.{key}", held, member_schema(schema, key), nested, depth + 1)
        ]
    return [(name, write_value(value, schema))]


def _has_plain_names(value: Mapping[Any, Any]) -> bool:
    return all(isinstance(name, str) and name.strip() == name != "" and "." not in name for name in value)


def read_pairs(pairs: Iterable[Pair], schema: Any = None, *, nested: bool = False) -> dict[str, Any]:
    """The values of pairs. ValueError says which name cannot be read together with the others."""
    found: dict[str, Any] = {}
    for name, text in pairs:
        whole = not nested or name in _known(schema)
        *outer, last = [name] if whole else name.split(".")
        inner, about = found, schema
        for part in outer:
            inner, about = inner.setdefault(part, {}), member_schema(about, part)
            if not isinstance(inner, dict):
                raise ValueError(f"{name[:60]} is part of a value that is given as a whole.")
        if last in inner:
            raise ValueError(f"{name[:60]} is given twice.")
        inner[last] = read_value(text, member_schema(about, last))
    return found


def _known(schema: Any) -> Iterable[str]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else ()


def write_value(value: Any, schema: Schema = _OPEN) -> str:
    """A value as one types it. `read_value` gives the same, or a number for the text that writes it."""
    if value is None:
        return ""
    kinds = types_of(schema)
    if isinstance(value, list) and "array" in kinds and value and all(_is_line(one) for one in value):
        lines = "\n".join(write_value(one, _items(schema)) for one in value)
        return lines if lines[0] not in "[{" else json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, default=str)
    if "string" in kinds and value.strip() == value != "":
        return value
    return value if value.strip() == value and _same_word(value) else json.dumps(value, ensure_ascii=False)


def _same_word(text: str) -> bool:
    """Whether a bare text is read as itself, or as the number that it writes."""
    read = read_value(text)
    return read == text or (as_number(text) is not None and not isinstance(read, str | bool))


def _is_line(value: Any) -> bool:
    return value is not None and not isinstance(value, dict | list) and len(str(value).strip().splitlines()) == 1


def _items(schema: Schema) -> Schema:
    items = schema.get("items")
    return items if isinstance(items, Mapping) else _OPEN


def read_value(text: str, schema: Schema = _OPEN) -> Any:
    """The value that a text describes; an empty text is null. What does not fit stays text, for a check to refuse."""
    text = text.strip()
    if not text:
        return None
    kinds = types_of(schema)
    options: Sequence[Any] = schema["enum"] if isinstance(schema.get("enum"), list) else ()
    chosen = [one for one in options if one is not None and str(one) == text]
    if chosen:
        return chosen[0]
    if kinds == ["string"]:
        return _quoted(text)
    if "array" in kinds and text[0] not in "[{":
        return [read_value(line, _items(schema)) for line in text.splitlines() if line.strip()]
    return _parse_word(text)


def _quoted(text: str) -> str:
    """A text of a field that takes text; in quotes where it is empty or has spaces around it."""
    read = _parse_word(text) if text[0] == '"' else text
    return read if isinstance(read, str) and (not read or read.strip() != read) else text


def _parse_word(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)
