"""The sentence for each way in which a value can fail to fit: what to send instead, in the product's own words."""

from collections.abc import Callable
from typing import Any

from pydantic import AfterValidator, ValidationError

from app.errors import Invalid

INVALID = "This value isn’t valid."


def field_errors(error: Any) -> dict[str, str]:
    """The sentence for each field that a validation found wrong, by its name."""
    fields: dict[str, str] = {}
    for found in error.errors(include_url=False, include_input=False):
        fields.setdefault(".".join(str(part) for part in found["loc"])[:100], sentence(found))
    return fields


def sentence(found: Any) -> str:
    """One of a validation's errors as a sentence. Neither the value nor anything of it is repeated."""
    kind, about = found["type"], found.get("ctx") or {}
    if kind in {"value_error", "assertion_error"}:
        return str(about.get("error", INVALID))
    if kind == "string_pattern_mismatch" and about["pattern"] == r"\S":
        return "Enter some text."
    return _SENTENCES.get(kind, INVALID).format_map(about).replace("at least 1 characters", "at least 1 character")


def invalid_values(name: str, wrong: ValidationError) -> Invalid:
    """What a validation found, under the place of each value within `name`."""
    errors = wrong.errors(include_url=False, include_input=False)
    return Invalid.of({".".join([name, *(str(part)[:60] for part in one["loc"])]): sentence(one) for one in errors})


def must(accept: Callable[[Any], Any], refusal: str) -> AfterValidator:
    """A validator that refuses what is not accepted, with this sentence."""

    def check(value: Any) -> Any:
        if not accept(value):
            raise ValueError(refusal)
        return value

    return AfterValidator(check)


_SENTENCES = {
    "missing": "This is required.",
    "extra_forbidden": "Unknown field. Leave it out.",
    "model_type": "Send a JSON object.",
    "model_attributes_type": "Send a JSON object.",
    "dict_type": "Send a JSON object.",
    "list_type": "Send a list.",
    "string_type": "Send text.",
    "string_too_long": "Send at most {max_length} characters.",
    "string_too_short": "Send at least {min_length} characters.",
    "string_pattern_mismatch": "Send text of the form {pattern}.",
    "literal_error": "Send one of {expected}.",
    "uuid_type": "Send an ID (a UUID).",
    "uuid_parsing": "Send an ID (a UUID).",
    "bool_type": "Send true or false.",
    "bool_parsing": "Send true or false.",
    "int_type": "Send a whole number.",
    "int_parsing": "Send a whole number.",
    "int_parsing_size": "Send a smaller whole number.",
    "int_from_float": "Send a whole number.",
    "float_type": "Send a number.",
    "float_parsing": "Send a number.",
    "finite_number": "Send a finite number.",
    "greater_than_equal": "Send at least {ge}.",
    "less_than_equal": "Send at most {le}.",
    "greater_than": "Send more than {gt}.",
    "less_than": "Send less than {lt}.",
    "too_long": "Send at most {max_length} entries.",
    "too_short": "Add at least {min_length}.",
}
