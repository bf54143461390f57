"""Values of responses: how they are written, and whether they fit the criteria they are submitted under."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from app.formats.criteria import RATINGS

PARTS = frozenset(("value", "source", "confidence"))
NUMERIC = ("numeric", "number")
RANKED = ("relation-rank", "relation_rank", "rank")
RATING = "rating"
MAX_TEXT = 20_000
MAX_SOURCE = 2_000
MAX_RANKED = 200


def wrap_value(given: Any) -> dict[str, Any]:
    """`{value, source, confidence}`; a bare value is one without a source."""
    return dict(given) if isinstance(given, Mapping) and "value" in given else {"value": given}


def find_value_errors(values: Mapping[str, Any], dimensions: Mapping[str, Any], criteria: str) -> dict[str, str]:
    """What is wrong with wrapped values, by field; empty when all of them fit the criteria set."""
    found: dict[str, str] = {}
    for name, given in values.items():
        if name not in dimensions:
            found[name] = f"{criteria} has {', '.join(dimensions)}."
        elif wrong := _entry_error(given) or value_error(given["value"], dimensions[name]):
            found[name] = wrong
    return found


def value_error(value: Any, rule: Any) -> str | None:
    """Why a value does not fit a criterion, or None. Null says that nothing was found."""
    kind = rule.get("kind") if isinstance(rule, Mapping) else None
    if value is None:
        return None
    if kind in NUMERIC:
        return None if _is_number(value) else "Enter a number."
    if kind == RATING:
        return None if _is_number(value) and value in RATINGS else "Enter a whole number from 1 to 5."
    if kind in RANKED:
        fits = isinstance(value, list) and len(value) <= MAX_RANKED and all(isinstance(item, str) for item in value)
        return None if fits else f"Enter up to {MAX_RANKED} names, best first."
    if not isinstance(value, str | bool) and not _is_number(value):
        return "Enter a text."
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return f"At most {MAX_TEXT:,} characters."
    options = rule.get("options") if isinstance(rule, Mapping) else None
    if isinstance(options, list) and options and value not in options:
        return f"Use one of {', '.join(map(str, options))}."
    return None


def _entry_error(given: Mapping[str, Any]) -> str | None:
    if unknown := sorted(given.keys() - PARTS):
        return f"Send value, source and confidence only, not {unknown[0][:60]}."
    source, sure = given.get("source"), given.get("confidence")
    if source is not None and (not isinstance(source, str) or len(source) > MAX_SOURCE):
        return f"Enter a source of up to {MAX_SOURCE:,} characters."
    if sure is not None and not (_is_number(sure) and 0 <= sure <= 1):
        return "Enter a confidence from 0 to 1."
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
