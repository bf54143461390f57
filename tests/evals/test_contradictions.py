"""What no replay could ever do is known before it is kept: values that do not fit, names with a slip, two wishes."""

from __future__ import annotations

from typing import Any

import pytest

from app import tools
from app.errors import Invalid
from app.evals.compare import builtin_tools
from app.evals.compare.sessions import compare_sessions
from app.evals.expected.expectations import check_consistent, check_makable, find_conflict, read_expected
from app.evals.trace import make_tool
from app.formats.json_schema import expected_error
from app.services.evals.expected import is_typo, nearest_name
from tests.evals.test_compare import talk
from tests.evals.test_corrected import filled, judged, moved

TRIP = {
    "type": "object",
    "properties": {
        "seats": {"type": "integer"},
        "class": {"enum": ["business", "economy"]},
        "price": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "bags": {"type": "array", "items": {"type": "object", "properties": {"kg": {"type": "number"}}}},
        "pets": {"type": "boolean"},
        "code": {"type": "string"},
    },
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"seats": 2, "class": "business", "price": None, "bags": [{"kg": 2.5}], "pets": True, "code": "A"}, None),
        ({"seats": "2", "price": "12.50", "code": 12}, None),
        ({"seats": None}, None),
        ({"bags": '[{"kg": 2}]'}, None),
        ({"seats": 2.5}, ("seats", "Enter a whole number.")),
        ({"seats": "two"}, ("seats", "Enter a whole number.")),
        ({"seats": True}, ("seats", "Enter a whole number.")),
        ({"class": "first"}, ("class", "Use one of business, economy.")),
        ({"price": "dear"}, ("price", "Enter a number.")),
        ({"bags": {"kg": 2}}, ("bags", "Enter a list.")),
        ({"bags": [{"kg": "much"}]}, ("bags[0].kg", "Enter a number.")),
        ({"pets": "yes"}, ("pets", "Enter true or false.")),
        ({"code": ["A"]}, ("code", "Enter text.")),
        ({"seat": 2}, ("seat", "Not used here. Use seats, class, price, bags, pets, code.")),
    ],
)
def test_a_value_fits_its_schema_or_the_error_says_what_does(given: dict[str, Any], wrong: Any) -> None:
    assert expected_error(given, TRIP) == wrong


@pytest.mark.parametrize("schema", [None, {}, {"$ref": "#/x"}, {"type": "date"}, {"properties": {"a": {}}}])
def test_what_a_schema_leaves_open_fits(schema: Any) -> None:
    assert expected_error({"a": [1, "x"], "b": {}}, schema) is None


def test_what_our_tools_take_is_known() -> None:
    for tool in tools.TOOLS:
        known = builtin_tools.schema_of(tool.name)
        assert known is not None, tool.name
        kinds = {name: {"type": given["type"]} for name, given in tool.parameters["properties"].items()}
        assert known["properties"] == kinds, tool.name
    assert builtin_tools.schema_of("sendMail") is None


@pytest.mark.parametrize(
    ("name", "other", "slip"),
    [
        ("updateEntty", "updateEntity", True),
        ("update_entity", "updateEntity", True),
        ("get_reservation", "set_reservation", False),
        ("list_order", "list_orders", False),
        ("sendMail", "searchAccounts", False),
    ],
)
def test_a_typing_error_is_distinguished_from_another_name(name: str, other: str, slip: bool) -> None:
    assert is_typo(name, other) == slip


def test_the_nearest_name_is_the_one_that_was_meant() -> None:
    known = {"updateEntity", "createEntity", "cancel_order"}
    assert nearest_name("updateEntties", known) == "updateEntity"
    assert nearest_name("Cancel-Order", known) == "cancel_order"
    assert nearest_name("weather", known) is None
    assert nearest_name("x" * 100_000, known) is None


def update(target: Any, **fields: Any) -> dict[str, Any]:
    return {"kind": "updated", "type": "entity", "target": target, "fields": fields}


def test_one_record_has_one_value() -> None:
    assert find_conflict([update("k", stage="won"), update("m", stage="lost")]) is None
    assert find_conflict([update("k", stage="won", size=1), update("k", stage="won", size=1.0)]) is None
    assert find_conflict([update("k", stage="won"), update("k", lead="Mara"), update("k", stage="lost")]) == (
        0,
        2,
        "stage",
    )
    created = {"kind": "created", "type": "deal", "target": None}
    assert find_conflict([{**created, "fields": {"name": "A"}}, {**created, "fields": {"name": "B"}}]) is None
    with pytest.raises(Invalid) as refused:
        check_consistent(read_expected({"effects": [update("k", stage="won"), update("k", stage="lost")]}))
    assert list(refused.value.fields) == ["expected.effects.1"]


def test_two_lines_about_one_record_are_one_change() -> None:
    golden = talk("Close it", moved("k", stage="open"), "Done.")
    right = talk("Close it", moved("k", stage="won"), moved("k", lead="Mara"), "Done.")
    effects = [update("k", stage="won"), update("k", lead="Mara")]
    assert judged(golden, right, effects=effects)[0] == "pass"
    assert judged(golden, golden, effects=effects)[0] == "fail"


TOOLS = {
    tool.name: tool
    for given in (
        {"name": "cancel_order", "parameters": {"properties": {"order_id": {"type": "string"}}}},
        {"name": "find", "writes": False},
    )
    if (tool := make_tool(given))
}
CANCELLED = {"kind": "updated", "type": "cancel_order", "target": "A1", "fields": {}}
DEAL = {"kind": "created", "type": "deal", "target": None, "fields": {"name": "Norrland", "valuation": 3}}


def call(tool: str, /, **arguments: Any) -> list[dict[str, Any]]:
    return [{"name": tool, "arguments": arguments}]


@pytest.mark.parametrize(
    "expected",
    [
        {"effects": [CANCELLED], "calls": call("cancel_order", order_id="A1")},
        {"effects": [CANCELLED], "calls": call("cancel_order")},
        {"effects": [CANCELLED], "calls": call("find", what="A1")},
        {"effects": [DEAL], "calls": call("createEntity", entityType="deal", name="Norrland")},
        {"effects": [DEAL], "calls": call("createEntity", name="Norrland")},
        {"effects": [update("k", stage="won")], "calls": call("updateEntity", changes={"stage": "won"})},
        {"effects": [DEAL, update("$1", stage="won")], "calls": call("updateEntity", entityId="k")},
        {"effects": [], "calls": call("find"), "no_calls": ["createEntity"]},
        {"calls": call("cancel_order")},
    ],
)
def test_calls_and_changes_that_go_together(expected: dict[str, Any]) -> None:
    check_both(expected)


def check_both(expected: dict[str, Any]) -> None:
    check_consistent(read_expected(expected))
    check_makable(read_expected(expected), TOOLS, {"deal"})


@pytest.mark.parametrize(
    ("expected", "fields"),
    [
        ({"effects": [], "calls": call("cancel_order")}, ["calls", "effects"]),
        ({"effects": [CANCELLED], "calls": call("cancel_order", order_id="A2")}, ["calls", "effects"]),
        ({"effects": [CANCELLED], "calls": call("updateEntity")}, ["calls", "effects"]),
        ({"effects": [DEAL], "calls": call("createEntity", entityType="ltm", name="Norrland")}, ["calls", "effects"]),
        ({"effects": [DEAL], "calls": call("createEntity", entityType="deal", name="Oslo")}, ["calls", "effects"]),
        (
            {
                "effects": [update("k", stage="won")],
                "calls": call("updateEntity", entityId="k", changes={"stage": "lost"}),
            },
            ["calls", "effects"],
        ),
        ({"effects": [DEAL], "no_calls": ["createEntity"]}, ["effects", "no_calls"]),
        (
            {"effects": [{"kind": "created", "type": "lesson", "fields": {}}], "no_calls": ["addLesson"]},
            ["effects", "no_calls"],
        ),
    ],
)
def test_calls_and_changes_that_exclude_each_other(expected: dict[str, Any], fields: list[str]) -> None:
    with pytest.raises(Invalid) as refused:
        check_both(expected)
    assert list(refused.value.fields) == [f"expected.{name}" for name in fields]


def test_expected_values_are_not_described_as_before() -> None:
    golden = talk("Close it", moved("k", stage="won", lead="Mara"), "Done.")
    more = talk("Close it", moved("k", stage="won", lead="Mara", size=2), "Done.")

    assert judged(golden, more)[1] == "entity k: size is 2; it was not there before"
    expected = [update("k", stage="won")]
    assert judged(golden, golden, effects=expected)[1] == "entity k: lead is “Mara”; it is not expected"
    wanted = [update("k", stage="won", lead="Mara", fit="strong")]
    assert judged(golden, golden, effects=wanted)[1] == "entity k: fit is missing; expected is “strong”"
    assert judged(golden, talk("Close it", "Done."), effects=[])[1].startswith("changed nothing, as expected")


def test_values_that_should_have_been_submitted_are_not_described_as_before() -> None:
    effect = {"kind": "response", "type": "terms", "target": "tern", "fields": {"valuation": 148.5, "fit": "good"}}
    golden = filled(148500, session_type="response")
    result = compare_sessions({**golden, "expected": {"effects": [effect]}, "criteria": {"lead": {}}}, golden)
    reasons = {name: one["reason"] for name, one in result["dimensions"].items()}
    assert reasons["lead"] == "lead was left empty, as expected"
    assert reasons["fit"] == "fit was left empty; expected is “good”"
    assert reasons["currency"] == "currency is “EUR”; it is expected to be empty"
    recorded = compare_sessions({**golden, "criteria": {"lead": {}}}, golden)["dimensions"]
    assert recorded["lead"]["reason"] == "lead was left empty, as before"
    assert recorded["currency"]["reason"] == "currency is the same"
