"""Changes in plain words: what people write is read, and what was recorded is written so that it reads the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.evals.expected.effect_text import Line, effect_of, line_of, read_line, write_line
from app.evals.trace import Tool
from app.text.values import Reader

KINDS = {"deal", "contact"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("update Halden: stage = won", Line("update", "Halden", {"stage": "won"})),
        (
            "updated Project Quarry: valuation = 12.5, stage=won",
            Line("update", "Project Quarry", {"valuation": 12.5, "stage": "won"}),
        ),
        (
            "update Halden: note = Hello, world, stage = won",
            Line("update", "Halden", {"note": "Hello, world", "stage": "won"}),
        ),
        (
            'update "Kestrel: II": closed = true, owner = null',
            Line("update", "Kestrel: II", {"closed": True, "owner": None}),
        ),
        ("create deal: name = Norrland", Line("create", "deal", {"name": "Norrland"})),
        ("cancel_reservation 1N99U6", Line("cancel_reservation", "1N99U6", {})),
        ('book_trip {"seats": 2}', Line("book_trip", None, {"seats": 2})),
        (
            'book_trip: flights = [{"no": "HAT1"}], code = 007',
            Line("book_trip", None, {"flights": [{"no": "HAT1"}], "code": "007"}),
        ),
    ],
)
def test_lines_are_read(text: str, line: Line) -> None:
    assert read_line(text) == line
    assert read_line(write_line(line)) == line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("= won", "begins with"),
        ("update: stage = won", "which record"),
        ("update Halden", "what is changed"),
        ("update Halden: won", "no field with a value"),
        ("update Halden: stage =", "value is missing"),
        ("update Halden: stage = [1", "no JSON"),
        ('update Halden: stage = "won" then', "comma"),
        ('book_trip {"seats": 2', "no JSON"),
        ('book_trip {"seats": NaN}', "no JSON"),
        ("create: name = x", "kind of record"),
    ],
)
def test_what_is_no_line_says_why(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_line(text)


names = some.text("abc_1", min_size=1, max_size=6)
values: Any = some.recursive(
    some.none() | some.booleans() | some.integers(-999, 999) | some.text(max_size=20),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
fields = some.dictionaries(some.text(min_size=1, max_size=8), values, max_size=4)
subjects = some.text(min_size=1, max_size=12)


@given(verb=names, subject=some.none() | subjects, fields=fields)
def test_every_line_reads_as_it_was_written(verb: str, subject: str | None, fields: dict[str, Any]) -> None:
    line = Line(f"t{verb}", subject, fields)
    assert read_line(write_line(line)) == line
    assert len(write_line(line).splitlines()) == 1


@pytest.mark.parametrize(
    "effect",
    [
        {"kind": "updated", "type": "entity", "target": "e-1", "fields": {"stage": "won"}},
        {"kind": "created", "type": "deal", "target": None, "fields": {"name": "Norrland", "valuation": 12.5}},
        {"kind": "created", "type": "lesson", "target": None, "fields": {"content": "Say the period."}},
        {"kind": "updated", "type": "knowledge", "target": "k-1", "fields": {"active": False}},
        {"kind": "updated", "type": "feedback", "target": "f-1", "fields": {"status": "dismissed"}},
        {"kind": "response", "type": "c-1", "target": "e-1", "fields": {"score": 4}},
        {"kind": "updated", "type": "update_reservation_flights", "target": "1N99U6", "fields": {"cabin": "economy"}},
        {"kind": "created", "type": "book_reservation", "target": None, "fields": {"seats": 2, "user_id": "u1"}},
        {"kind": "updated", "type": "cancel_reservation", "target": "1N99U6", "fields": {}},
    ],
)
def test_every_kind_of_change_comes_back_as_it_was(effect: dict[str, Any]) -> None:
    line = read_line(write_line(line_of(effect, KINDS)))
    back = effect_of(line, Tool(line.verb))
    assert back | {"fields": Reader().value(back["fields"])} == effect


def test_a_response_is_written_by_its_names() -> None:
    effect = {"kind": "response", "type": "c-1", "target": "e-1", "fields": {"score": 4}}
    line = line_of(effect, KINDS, {"c-1": "Deal terms", "e-1": "Halden"})
    assert write_line(line) == "submit Deal terms for Halden: score = 4"
    assert effect_of(Line("submit", "c-1 for e-1", line.fields), Tool("submit")) == effect


def test_a_tool_names_its_target_as_in_a_recording() -> None:
    line = read_line('update_reservation_flights {"reservation_id": "1N99U6", "cabin": "economy"}')
    assert effect_of(line, Tool(line.verb)) == {
        "kind": "updated",
        "type": "update_reservation_flights",
        "target": "1N99U6",
        "fields": {"cabin": "economy"},
    }
