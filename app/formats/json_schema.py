"""Values against JSON schemas that users wrote: the arguments of tool calls, and what a golden expects of them.

Only keywords that cost one pass are checked: no references, no patterns. What a schema leaves open fits, and so does
anything under a part of it that is malformed or beyond the bounds.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from app.errors import Invalid
from app.text.values import as_number, from_json, same_leaf

Schema = dict[str, Any]
MAX_DEPTH = 20
MAX_NODES = 5000
MAX_NAMES = 12
# Each type in words, and what the comparer reads as it: a number and the text that writes it are the same to it.
TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("text", (str, int, float)),
    "number": ("a number", (int, float)),
    "integer": ("a whole number", (int,)),
    "boolean": ("true or false", (bool,)),
    "array": ("a list", (list, tuple)),
    "object": ("an object", (Mapping,)),
}
ARGUMENT_SENTENCES: dict[str, Callable[[Any, Schema], str]] = {
    "type": lambda kinds, _: f"Send {' or '.join(kinds)}.",
    "enum": lambda allowed, _: f"Use one of {', '.join(str(one)[:80] for one in allowed[:20])}.",
    "required": lambda _, __: "This is required.",
    "additionalProperties": lambda _, known: f"Not known. It takes {', '.join(known) or 'nothing'}.",
    "minLength": lambda least, _: f"Send at least {least} characters.",
    "maxLength": lambda most, _: f"Send at most {most} characters.",
    "minimum": lambda least, _: f"Send {least} or more.",
    "maximum": lambda most, _: f"Send {most} or less.",
    "exclusiveMinimum": lambda least, _: f"Send more than {least}.",
    "exclusiveMaximum": lambda most, _: f"Send less than {most}.",
    "minItems": lambda least, _: f"Send at least {least} items.",
    "maxItems": lambda most, _: f"Send at most {most} items.",
}
BOUNDS = [name for name in ARGUMENT_SENTENCES if "min" in name.lower() or "max" in name.lower()]


def check_arguments(given: dict[str, Any], schema: dict[str, Any]) -> None:
    """Refuse the arguments of a tool call with the first thing that does not fit."""
    from jsonschema import Draft202012Validator

    pruned = _prune({"type": "object", **schema}, iter(range(MAX_NODES)))
    wrong = next(Draft202012Validator(pruned).iter_errors(given), None)
    if wrong is not None:
        place = ".".join(map(str, _path(wrong)))[:100] or "arguments"
        sentence = ARGUMENT_SENTENCES[wrong.validator](wrong.validator_value, wrong.schema.get("properties", {}))
        raise Invalid(f"`{place}`: {sentence}")


def fits_schema(value: Any, schema: Any) -> bool:
    from jsonschema import Draft202012Validator

    return bool(Draft202012Validator(_prune(schema, iter(range(MAX_NODES)))).is_valid(value))


def expected_error(value: Any, schema: Any) -> tuple[str, str] | None:
    """Where an expected value does not fit a schema and what to give there, or None.

    As lenient as the comparer: null fits everywhere, and a number, a list or an object may be written as text.
    """
    wrong = next(_expected_validator()(_prune_expected(schema, iter(range(MAX_NODES)))).iter_errors(value), None)
    while wrong is not None and wrong.context:
        wrong = wrong.context[0]
    if wrong is None:
        return None
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in _path(wrong))
    return place.removeprefix("."), _expected_sentence(wrong)


def _path(wrong: Any) -> list[str | int]:
    """Where an error is. A missing or unknown member is named too."""
    found, given = list(wrong.absolute_path), from_json(wrong.instance)
    if wrong.validator == "required":
        found += [name for name in wrong.validator_value if name not in given][:1]
    if wrong.validator == "additionalProperties":
        found += [name for name in given if name not in wrong.schema.get("properties", {})][:1]
    return found


def _prune(schema: Any, budget: Iterator[int], depth: int = 0) -> Schema:
    """The well-formed keywords that arguments are checked against, in the order in which they are reported."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH or next(budget, None) is None:
        return {}
    return {
        **_types(schema, (*TYPES, "null")),
        **{name: schema[name] for name in ("enum",) if isinstance(schema.get(name), list)},
        **{name: schema[name] for name in BOUNDS if type(schema.get(name)) in (int, float)},
        "required": _texts(schema.get("required")),
        **_members(schema, partial(_prune, budget=budget, depth=depth + 1)),
        **({"additionalProperties": False} if schema.get("additionalProperties") is False else {}),
    }


def _prune_expected(schema: Any, budget: Iterator[int], depth: int = 0) -> Schema:
    """The keywords that an expected value is checked against. A choice or a list of values decides alone."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH or next(budget, None) is None:
        return {}
    inner = partial(_prune_expected, budget=budget, depth=depth + 1)
    choices = next((schema[key] for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)), None)
    if choices:
        possible = [inner(choice) for choice in choices if choice != {"type": "null"}]
        return {"anyOf": possible} if possible else {}
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(allowed, list):
        return {"enum": allowed}
    found = {**_types(schema, tuple(TYPES)), **_members(schema, inner)}
    closed = schema.get("additionalProperties") is False and "properties" in found
    return found | ({"additionalProperties": False} if closed else {})


def _types(schema: Mapping[str, Any], known: tuple[str, ...]) -> Schema:
    kinds = [kind for kind in _texts(schema.get("type")) if kind in known]
    return {"type": kinds} if kinds else {}


def _members(schema: Mapping[str, Any], prune: Callable[[Any], Schema]) -> Schema:
    items, properties = schema.get("items"), schema.get("properties")
    found: Schema = {"items": prune(items)} if isinstance(items, Mapping) else {}
    if isinstance(properties, Mapping):
        found["properties"] = {name: prune(inner) for name, inner in properties.items()}
    return found


def _texts(given: Any) -> list[str]:
    return [one for one in (given if isinstance(given, list) else [given]) if isinstance(one, str)]


def _expected_sentence(wrong: Any) -> str:
    if wrong.validator == "type":
        return f"Enter {TYPES[wrong.validator_value[0]][0]}."
    if wrong.validator == "enum":
        return f"Use one of {', '.join(map(str, wrong.validator_value[:MAX_NAMES]))}."
    known = ", ".join(map(str, list(wrong.schema["properties"])[:MAX_NAMES]))
    return f"Not used here. Use {known}." if known else "This takes no values."


@cache
def _expected_validator() -> Any:
    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.validators import extend

    def check_enum(_: Any, allowed: list[Any], value: Any, __: Schema) -> Iterator[ValidationError]:
        if value is not None and not any(same_leaf(value, one) or value == one for one in allowed):
            yield ValidationError("Not one of them.")

    def check(keyword: str, validator: Any, wanted: Any, value: Any, schema: Schema) -> Iterator[ValidationError]:
        if value is not None:
            value = value if keyword == "type" else from_json(value)
            yield from Draft202012Validator.VALIDATORS[keyword](validator, wanted, value, schema)

    lenient = {name: partial(check, name) for name in ("type", "items", "properties", "additionalProperties")}
    kinds = {kind: lambda _, value, kind=kind: _reads_as(value, kind) for kind in TYPES}
    types = Draft202012Validator.TYPE_CHECKER.redefine_many(kinds)
    return extend(Draft202012Validator, {**lenient, "enum": check_enum}, type_checker=types)


def _reads_as(value: Any, kind: str) -> bool:
    if isinstance(value, bool) or kind == "boolean":
        return isinstance(value, bool) and kind == "boolean"
    if kind in ("number", "integer") and isinstance(value, str):
        value = as_number(value.strip())
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    if kind in ("array", "object"):
        value = from_json(value)
    return isinstance(value, TYPES[kind][1])
