"""Whether a value could be given where a JSON schema says what is taken. What the schema leaves open fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.text.values import as_number, from_json, same_leaf

Misfit = tuple[str, str]
DEEPEST = 20
MOST_NAMED = 12
_KINDS: dict[str, tuple[type, ...]] = {
    # A number and the text that writes it are the same to the comparer.
    "string": (str, int, float),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (Mapping,),
}


def misfit(value: Any, schema: Any, path: str = "", depth: int = 0) -> Misfit | None:
    """Where a value does not fit and what to give there, or None. Null fits everywhere: it leaves out or clears."""
    if value is None or not isinstance(schema, Mapping) or "$ref" in schema or depth > DEEPEST:
        return None
    choices = next((schema[key] for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)), None)
    if choices:
        found = [misfit(value, choice, path, depth + 1) for choice in choices if choice != {"type": "null"}]
        return None if None in found or not found else found[0]
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(allowed, list):
        fits = any(same_leaf(value, one) or value == one for one in allowed)
        return None if fits else (path, f"Use one of {', '.join(map(str, allowed[:MOST_NAMED]))}.")
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    known = [kind for kind in kinds if kind in _KINDS]
    if known and not any(_is(value, kind) for kind in known):
        return path, f"Give {_WORDS[known[0]]}."
    return _within(from_json(value), schema, path, depth)


_WORDS = {
    "string": "text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool) or kind == "boolean":
        return isinstance(value, bool) and kind == "boolean"
    if kind in ("number", "integer") and isinstance(value, str):
        value = as_number(value.strip())
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    if kind in ("array", "object"):
        value = from_json(value)
    return isinstance(value, _KINDS[kind])


def _within(value: Any, schema: Mapping[str, Any], path: str, depth: int) -> Misfit | None:
    """The first part of a list or an object that does not fit."""
    if isinstance(value, list):
        found = (misfit(one, schema.get("items"), f"{path}[{place}]", depth + 1) for place, one in enumerate(value))
        return next((one for one in found if one), None)
    inner = schema.get("properties")
    if not isinstance(value, Mapping) or not isinstance(inner, Mapping):
        return None
    for name, held in value.items():
        here = f"{path}.{name}" if path else str(name)
        if name not in inner and schema.get("additionalProperties") is False:
            taken = ", ".join(map(str, list(inner)[:MOST_NAMED]))
            return here, f"It is not taken here; there is {taken}." if taken else "Nothing is taken here."
        wrong = misfit(held, inner.get(name), here, depth + 1)
        if wrong:
            return wrong
    return None
