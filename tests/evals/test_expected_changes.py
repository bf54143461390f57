"""Expected changes as rows of a form: what was recorded is written so that it reads the same, by what is known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.evals.expected.changes import Change, Known, change_of, describe_effect, effect_of
from app.evals.expected.pairs import read_pairs, read_value, write_pairs, write_value
from app.evals.trace import make_tool
from app.text.values import Reader, equal

DEAL = {"properties": {"stage": {"type": "string"}, "valuation": {"type": "number"}, "name": {"type": "string"}}}
TERMS = {"properties": {"score": {"type": "number"}}}
FLIGHTS = {"name": "update_reservation_flights", "inputSchema": {"properties": {"cabin": {"type": "string"}}}}
TOOLS = {tool.name: tool for definition in (FLIGHTS, {"name": "book_trip"}) if (tool := make_tool(definition))}
KNOWN = Known({"deal": DEAL, "contact": {}}, {"c-1": TERMS}, TOOLS)


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("12", {}, 12),
        ("12", {"type": "string"}, "12"),
        (" 12.50 ", {"type": "number"}, 12.5),
        ("high", {"type": "number"}, "high"),
        ("007", {}, "007"),
        ("", {"type": "string"}, None),
        ('""', {"type": "string"}, ""),
        ('"won"', {"type": "string"}, '"won"'),
        ("true", {}, True),
        ("true", {"type": "string"}, "true"),
        ('"true"', {}, "true"),
        ("false", {"type": ["boolean", "null"]}, False),
        ("2", {"enum": [1, 2]}, 2),
        ("won", {"enum": ["open", "won"]}, "won"),
        ("[draft] terms", {"type": "string"}, "[draft] terms"),
        ("[1, 2]", {}, [1, 2]),
        ("a\n b \n\nc", {"type": "array"}, ["a", "b", "c"]),
        ("1\n2", {"type": "array", "items": {"type": "string"}}, ["1", "2"]),
        ('[{"no": 1}]', {"type": "array"}, [{"no": 1}]),
        ("NaN", {}, "NaN"),
        ("Hello, world", {}, "Hello, world"),
    ],
)
def test_a_text_is_read_as_its_field_says(text: str, schema: dict[str, Any], value: Any) -> None:
    read = read_value(text, schema)
    assert (type(read), read) == (type(value), value)
    assert equal(Reader().value(read_value(write_value(read, schema), schema)), Reader().value(value))


names = some.text("abc_1", min_size=1, max_size=6)
values: Any = some.recursive(
    some.none() | some.booleans() | some.integers(-999, 999) | some.text(max_size=20) | some.sampled_from(["1", "1e5"]),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
schemas = some.sampled_from(
    [{}, {"type": "string"}, {"type": "array"}, {"type": "number"}, {"type": ["array", "null"]}]
)


@given(fields=some.dictionaries(names, values, max_size=4), nested=some.booleans())
def test_every_value_reads_as_it_was_written(fields: dict[str, Any], nested: bool) -> None:
    back = read_pairs(write_pairs(fields, nested=nested), nested=nested)
    assert equal(Reader().value(back), Reader().value(fields))


@given(value=values, schema=schemas)
def test_a_recorded_value_that_does_not_fit_its_schema_is_kept_too(value: Any, schema: dict[str, Any]) -> None:
    as_text = schema.get("type") == "string" and not isinstance(value, str)
    as_list = "array" in schema.get("type", ()) and isinstance(value, str | int | None)
    if not as_text and not as_list:
        back = read_value(write_value(value, schema), schema)
        assert equal(Reader().value({"v": back}), Reader().value({"v": value}))


def test_members_are_written_by_themselves_and_put_together_again() -> None:
    values = {"entityId": "e-1", "changes": {"stage": "won", "tags": [1], "more": {"a.b": 1}}}
    pairs = [("entityId", "e-1"), ("changes.stage", "won"), ("changes.tags", "[1]"), ("changes.more", '{"a.b": 1}')]
    assert write_pairs(values, nested=True) == pairs
    assert read_pairs(pairs, nested=True) == values
    assert read_pairs([("a.b", "1")], {"properties": {"a.b": {}}}, nested=True) == {"a.b": 1}
    for wrong, says in (([("a", "1"), ("a", "2")], "a is given twice"), ([("a", "1"), ("a.b", "2")], "as a whole")):
        with pytest.raises(ValueError, match=says):
            read_pairs(wrong, nested=True)


@pytest.mark.parametrize(
    ("effect", "row"),
    [
        (
            {"kind": "updated", "type": "entity", "target": "e-1", "fields": {"stage": "12", "owner": None}},
            Change("update", "", "e-1", (("stage", "12"), ("owner", ""))),
        ),
        (
            {"kind": "created", "type": "deal", "target": None, "fields": {"name": "Norrland", "valuation": 12.5}},
            Change("create", "deal", "", (("name", "Norrland"), ("valuation", "12.5"))),
        ),
        (
            {"kind": "created", "type": "lesson", "target": None, "fields": {"content": "Say the period."}},
            Change("tool", "addLesson", "", (("content", "Say the period."),)),
        ),
        ({"kind": "updated", "type": "knowledge", "target": "k-1", "fields": {"active": False}}, None),
        ({"kind": "updated", "type": "feedback", "target": "f-1", "fields": {"status": "dismissed"}}, None),
        (
            {"kind": "response", "type": "c-1", "target": "e-1", "fields": {"score": 4}},
            Change("submit", "c-1", "e-1", (("score", "4"),)),
        ),
        (
            {"kind": "response", "type": "c-9", "target": "e-1", "fields": {"score": 4}},
            Change(
                "tool", "submitResponse", "", (("criteriaSetId", "c-9"), ("entityId", "e-1"), ("values.score", "4"))
            ),
        ),
        ({"kind": "response", "type": "", "target": None, "fields": {"score": 4}}, None),
        (
            {"kind": "updated", "type": "update_reservation_flights", "target": "1N99U6", "fields": {"cabin": "eco"}},
            Change("tool", "update_reservation_flights", "1N99U6", (("cabin", "eco"),)),
        ),
        (
            {"kind": "created", "type": "book_trip", "target": None, "fields": {"legs": [{"no": 1}], "for": {"id": 2}}},
            Change("tool", "book_trip", "", (("legs", '[{"no": 1}]'), ("for.id", "2"))),
        ),
        ({"kind": "updated", "type": "cancel_reservation", "target": "1N99U6", "fields": {}}, None),
    ],
)
def test_every_kind_of_change_comes_back_as_it_was(effect: dict[str, Any], row: Change | None) -> None:
    made = change_of(effect, KNOWN, "deal")
    assert row in (None, made)
    back = effect_of(made, KNOWN, "deal")
    assert back | {"fields": Reader().value(back["fields"])} == effect | {"fields": Reader().value(effect["fields"])}


def test_what_is_left_empty_in_a_new_record_is_not_given() -> None:
    made = effect_of(Change("create", "deal", "", (("name", "Norrland"), ("stage", ""))), KNOWN)
    assert made["fields"] == {"name": "Norrland"}


def test_a_tool_names_its_target_as_in_a_recording() -> None:
    row = Change("tool", "update_reservation_flights", "", (("reservation_id", "1N99U6"), ("cabin", "economy")))
    assert effect_of(row, KNOWN) == {
        "kind": "updated",
        "type": "update_reservation_flights",
        "target": "1N99U6",
        "fields": {"cabin": "economy"},
    }


def test_a_change_is_described_in_a_few_words() -> None:
    names = {"c-1": "Deal terms", "e-1": "Halden"}
    said = {
        "update Halden: stage = won, owner = empty": ("updated", "entity", "e-1", {"stage": "won", "owner": None}),
        "create deal: name = Norrland": ("created", "deal", None, {"name": "Norrland"}),
        "submit Deal terms for Halden: score = 4": ("response", "c-1", "e-1", {"score": 4}),
        "cancel_order A12": ("updated", "cancel_order", "A12", {}),
        "addLesson: content = Say it": ("created", "lesson", None, {"content": "Say it"}),
    }
    for words, (kind, of, target, fields) in said.items():
        effect = {"kind": kind, "type": of, "target": target, "fields": fields}
        assert describe_effect(effect, {"deal"}, names) == words
