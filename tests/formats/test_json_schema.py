"""Arguments against the schemas of other people's tools: what is said, and what is left to the other side."""

from __future__ import annotations

import time
from typing import Any

import pytest

from app.errors import Invalid
from app.formats.json_schema import check_arguments

SCHEMA: dict[str, Any] = {
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 5},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "kind": {"enum": ["a", 1, None]},
        "many": {"type": "array", "items": {"type": ["number", "null"]}},
        "deep": {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]},
        "free": {},
    },
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "more",
    [
        {}, {"count": 9}, {"count": 3.0}, {"kind": None}, {"many": [1, 2.5, None]}, {"deep": {"on": False, "x": 1}},
        {"free": []},
    ],
)  # fmt: skip
def test_what_fits(more: dict[str, Any]) -> None:
    check_arguments({"name": "abc"} | more, SCHEMA)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({}, "name"), ({"name": "a"}, "name"), ({"name": "abcdef"}, "name"), ({"name": 7}, "name"),
        ({"name": "abc", "count": 0}, "count"), ({"name": "abc", "count": 10}, "count"),
        ({"name": "abc", "count": True}, "count"), ({"name": "abc", "count": 1.5}, "count"),
        ({"name": "abc", "kind": True}, "kind"), ({"name": "abc", "kind": "b"}, "kind"),
        ({"name": "abc", "many": [1, "x"]}, "many.1"), ({"name": "abc", "deep": {}}, "deep.on"),
        ({"name": "abc", "deep": {"on": 1}}, "deep.on"), ({"name": "abc", "other": 1}, "other"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(given: dict[str, Any], place: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_arguments(given, SCHEMA)
    assert refused.value.detail.startswith(f"`{place}`: ")


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"name": {"pattern": "(a+)+$"}}},
        {"properties": {"name": {"$ref": "http://169.254.169.254/"}}},
        {"$ref": "#"},
        {"properties": ["wrong"], "required": "name", "enum": 3, "additionalProperties": {"type": "string"}},
        {"properties": {"name": {"type": "made up", "minLength": "x", "maxLength": None}}},
    ],
)
def test_no_schema_costs_time_or_reaches_anything(schema: dict[str, Any]) -> None:
    began = time.perf_counter()
    check_arguments({"name": "a" * 50_000 + "!"}, schema)
    assert time.perf_counter() - began < 0.5
