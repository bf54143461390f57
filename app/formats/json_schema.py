"""Arguments against the JSON schema of somebody's tool: what is worth saying to a model before the call is made.

Only what can be checked in one pass is: no references and no patterns, whose cost whoever wrote them decides. The rest
of a schema is for the model to read and for the other side to check.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from app.errors import Invalid

DEEPEST = 12
KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def check_arguments(given: dict[str, Any], schema: dict[str, Any]) -> None:
    """Raise Invalid with the first thing that does not fit."""
    _check(given, {"type": "object", **schema}, "", 0)


def _check(value: Any, schema: Any, name: str, depth: int) -> None:
    if not isinstance(schema, dict) or depth > DEEPEST:
        return
    kinds = [kind for kind in _texts(schema.get("type")) if kind in KINDS]
    if kinds and not any(_is(value, kind) for kind in kinds):
        raise _invalid(name, f"Send {' or '.join(kinds)}.")
    allowed = schema.get("enum")
    if isinstance(allowed, list) and not any(type(value) is type(one) and value == one for one in allowed):
        raise _invalid(name, f"Use one of {', '.join(str(one)[:80] for one in allowed[:20])}.")
    if isinstance(value, str):
        _check_length(value, schema, name)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_size(value, schema, name)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            _check(inner, schema.get("items"), f"{name}.{place}", depth + 1)
    elif isinstance(value, dict):
        _check_members(value, schema, name, depth)


def _check_members(value: dict[str, Any], schema: dict[str, Any], name: str, depth: int) -> None:
    known = schema.get("properties")
    known = known if isinstance(known, dict) else {}
    for needed in _texts(schema.get("required")):
        if needed not in value:
            raise _invalid(_within(name, needed), "This is needed.")
    for key, inner in value.items():
        if key in known:
            _check(inner, known[key], _within(name, key), depth + 1)
        elif schema.get("additionalProperties") is False:
            raise _invalid(_within(name, key), f"Not known; it takes {', '.join(known) or 'nothing'}.")


def _check_length(value: str, schema: dict[str, Any], name: str) -> None:
    least, most = schema.get("minLength"), schema.get("maxLength")
    if isinstance(least, int) and len(value) < least:
        raise _invalid(name, f"Send at least {least} characters.")
    if isinstance(most, int) and len(value) > most:
        raise _invalid(name, f"Send at most {most} characters.")


def _check_size(value: float, schema: dict[str, Any], name: str) -> None:
    least, most = schema.get("minimum"), schema.get("maximum")
    if isinstance(least, int | float) and isfinite(least) and value < least:
        raise _invalid(name, f"Send {least} or more.")
    if isinstance(most, int | float) and isfinite(most) and value > most:
        raise _invalid(name, f"Send {most} or less.")


def _is(value: Any, kind: str) -> bool:
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, KINDS[kind]) and (kind == "boolean") == isinstance(value, bool)


def _texts(given: Any) -> list[str]:
    found = given if isinstance(given, list) else [given]
    return [one for one in found if isinstance(one, str)]


def _within(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _invalid(name: str, sentence: str) -> Invalid:
    return Invalid(f"`{(name or 'arguments')[:100]}`: {sentence}")
