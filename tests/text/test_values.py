from __future__ import annotations

from typing import Any

import pytest

from app.text.values import TRUNCATED, Reader, differences, equal, format_path, leaves, likeness


def same_arguments(a: Any, b: Any, schema: dict[str, Any] | None = None) -> bool:
    return equal(Reader().arguments(a, schema), Reader().arguments(b, schema))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 120}, {"a": 120.0}),
        ({"a": 1_000_000_000}, {"a": 1_000_000_000.4}),
        ({"a": None, "b": 1}, {"b": 1}),
        ({"a": "x  y\n"}, {"a": " x y"}),
        ({"a": "e\u0301"}, {"a": "é"}),
        ('{"a": [1, 2]}', {"a": [1, 2]}),
        ({"a": '{"b": 1}'}, {"a": {"b": 1.0}}),
        ({"a": "12.50"}, {"a": 12.5}),
        ({"a": "2026-03-01T10:00:00+02:00"}, {"a": "2026-03-01T08:00:00Z"}),
        ({"a": "2026-03-01 08:00:00Z"}, {"a": "2026-03-01T08:00Z"}),
        ("", None),
        ({"fields": {"a": None}}, {"fields": {"a": None}}),
        ({"a": 10**400}, {"a": 10**400}),
    ],
)
def test_these_are_equal(a: Any, b: Any) -> None:
    assert same_arguments(a, b)
    assert same_arguments(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"a": 1}, {"a": True}),
        ({"a": 0}, {"a": False}),
        ({"a": "X"}, {"a": "x"}),
        ({"a": "12"}, {"a": "12.0"}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": {}}, {"a": []}),
        ({"a": {}}, {}),
        ({"a": 1}, {"b": 1}),
        ({"fields": {"a": None}}, {"fields": {}}),
        ({"a": "2026-03-01T10:00:00"}, {"a": "2026-03-01T10:00:00Z"}),
        ({"a": 10**400}, {"a": 1.5}),
        ({"a": None}, {"a": 0}),
    ],
)
def test_these_are_not(a: Any, b: Any) -> None:
    assert not same_arguments(a, b)
    assert not same_arguments(b, a)


def test_the_schema_says_where_order_and_spelling_of_numbers_do_not_count() -> None:
    schema = {"properties": {"tags": {"type": "array", "uniqueItems": True}, "count": {"type": "integer"}}}

    assert same_arguments({"tags": ["b", "a"], "count": "12"}, {"tags": ["a", "b"], "count": "12.0"}, schema)
    assert not same_arguments({"tags": ["b", "b"]}, {"tags": ["a", "b"]}, schema)


PAIRED = {"item_ids": [3, 1, "2"], "new_item_ids": ["c", "a", "b"]}


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ({"item_ids": [10, 9, 2]}, {"item_ids": ["2", "9", "10"]}, True),
        ({"itemIds": ["a", "b", "b"]}, {"itemIds": ["b", "a", "b"]}, True),
        ({"itemIds": ["a", "b", "b"]}, {"itemIds": ["a", "a", "b"]}, False),
        ({"item_ids": ["007", "7"]}, {"item_ids": ["7", "007"]}, True),
        ({"order": {"tag_ids": [2, 1]}}, {"order": {"tag_ids": [1, 2]}}, True),
        (PAIRED, {"item_ids": [1, 2, 3], "new_item_ids": ["a", "b", "c"]}, True),
        (PAIRED, {"item_ids": [1, 2, 3], "new_item_ids": ["a", "c", "b"]}, False),
        ({**PAIRED, "tag_ids": [5, 6]}, {**PAIRED, "tag_ids": [6, 5]}, True),
        ({"item_ids": [[1], [2]]}, {"item_ids": [[2], [1]]}, False),
        ({"kids": [1, 2]}, {"kids": [2, 1]}, False),
        ({"ids": [1, 2]}, {"ids": [2, 1]}, False),
    ],
)
def test_lists_of_ids_have_no_order_and_those_of_one_length_belong_together(a: Any, b: Any, same: bool) -> None:
    assert same_arguments(a, b) is same_arguments(b, a) is same


@pytest.mark.parametrize("about", [{"x-upshot-ordered": True}, {"prefixItems": [{}, {}]}, {"items": [{}, {}]}])
def test_a_schema_can_say_that_the_order_of_ids_matters(about: dict[str, Any]) -> None:
    schema = {"properties": {"stop_ids": {"type": "array", **about}}}
    assert not same_arguments({"stop_ids": [1, 2]}, {"stop_ids": [2, 1]}, schema)
    assert same_arguments({"stop_ids": [1, 2]}, {"stop_ids": [1, 2]}, schema)


def test_a_list_without_order_is_kept_as_it_came() -> None:
    assert list(Reader().value({"item_ids": [3, 1]})["item_ids"]) == [3, 1]


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), nested(70), "x" * 300_000, ["é" * 200] * 2000, [1] * 200_000]
)
def test_what_is_too_much_is_cut_and_equals_nothing(value: Any) -> None:
    reader = Reader()

    read = reader.value({"a": value})

    assert read is TRUNCATED
    assert reader.cut
    assert not equal(read, read)


def test_values_of_ordinary_size_are_not_cut() -> None:
    reader = Reader()

    assert reader.value({"a": nested(60), "b": "x" * 200_000, "c": [1] * 10_000}) is not TRUNCATED
    assert not reader.cut


def test_likeness_counts_the_leaves_of_both() -> None:
    a, b = leaves({"a": 1, "b": {"c": 2, "d": [1, 2]}}), leaves({"a": 1, "b": {"c": 3, "d": [1]}, "e": 1})

    assert likeness(a, b) == 2 / 5
    assert [format_path(path) for path in differences(a, b)] == ["b.c", "b.d[1]", "e"]
    assert likeness({}, {}) == 1.0


def test_ids_that_belong_together_keep_together_however_numbers_are_written() -> None:
    golden = Reader().value({"new_part_ids": [1, "1", 0], "part_ids": [3, 5, 2]})
    replay = Reader().value({"new_part_ids": [1.0, "1", 0.0], "part_ids": [3.0, 5.0, 2.0]})
    assert equal(golden, replay)
