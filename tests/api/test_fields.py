"""The types of bodies and queries, and the words for what does not fit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from pydantic import Field, ValidationError

from app.api.kit.fields import Answer, Body, Id, Moment, Page, invalid
from app.ingest.fields import PastMoment, Slug


class Thing(Body):
    name: str = Field(max_length=3)
    kind: Literal["a", "b"] = "a"
    when: PastMoment | None = None
    other: Id | None = None
    count: int = Field(1, ge=1, le=5)
    more: list[int] = []


class Told(Answer):
    at: Moment
    anything: Any = None


def errors(model: Any, value: Any) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(value)
    return invalid(caught.value, "Field").fields


def test_each_field_gets_its_own_sentence() -> None:
    sent = {
        "name": "sekret",
        "kind": "sekret",
        "when": "sekret",
        "other": "sekret",
        "count": "1",
        "more": ["sekret"],
        "tenant": 1,
    }
    found = errors(Thing, sent)
    assert found == {
        "name": "Send at most 3 characters.",
        "kind": "Send one of 'a' or 'b'.",
        "when": "Give a time with its offset, such as 2026-03-01T09:30:00Z.",
        "other": "Send an ID (a UUID).",
        "count": "Send a whole number.",
        "more.0": "Send a whole number.",
        "tenant": "Unknown field. Leave it out.",
    }


def test_a_name_says_what_it_is_made_of() -> None:
    class Named(Body):
        agent: Slug

    for name in ("My Agent", "", "x" * 121, "-a", "a\n", "Ä"):
        assert errors(Named, {"agent": name}) == {
            "agent": "Send 1 to 120 small letters, digits, dots, hyphens and underscores, such as deal-analyst."
        }
    for name in ("a", "deal-analyst", "2.b_c-", "x" * 120):
        assert Named(agent=name).agent == name


def test_types_are_not_guessed() -> None:
    for value in (1, None, True, [], {}):
        assert "name" in errors(Thing, {"name": value})
    for value in ("1", 1.0, True, 0, 6, 10**300):
        assert "count" in errors(Thing, {"name": "x", "count": value})
    for value in ([], "text", 5, None):
        assert errors(Thing, value) == {"": "Send a JSON object."}


def test_a_time_has_an_offset_and_is_a_time() -> None:
    now = datetime.now(UTC)
    for text in (
        "2026-01-02T03:04:05Z",
        "2026-01-02t03:04:05.123456789+05:30",
        "2026-01-02 03:04:05-00:00",
        "1970-01-01T00:00:00Z",
    ):
        moment = Thing(name="x", when=text).when  # type: ignore[arg-type]
        assert moment is not None
        assert moment.utcoffset() == timedelta(0)
    soon = (now + timedelta(minutes=4)).isoformat()
    assert Thing(name="x", when=soon).when is not None  # type: ignore[arg-type]
    refused = [
        "now",
        "tomorrow",
        "infinity",
        "-infinity",
        "epoch",
        "allballs",
        "",
        "2026-01-02",
        "2026-01-02T03:04:05",
        "2026-01-02T03:04Z",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:60Z",
        "2026-01-01T00:00:00+99:99",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "1969-12-31T23:59:59Z",
        "294277-01-01T00:00:00Z",
        "20260102T030405Z",
        "２０26-01-02T03:04:05Z",
        "2026-01-02T03:04:05Z\n",
        "9999-12-31T23:59:59-14:00",
        (now + timedelta(minutes=6)).isoformat(),
        1767322800,
        1.5,
        True,
    ]
    for text in refused:
        assert "when" in errors(Thing, {"name": "x", "when": text}), text


def test_a_limit_is_clamped_and_only_digits_are_digits() -> None:
    clamped = {"1": 1, "0": 1, "000": 1, "-1": 1, "-0": 1, "-" + "9" * 5000: 1, "101": 100, "9" * 5000: 100}
    for text, limit in {**clamped, "0000000000007": 7, "100": 100}.items():
        assert Page(limit=text).limit == limit  # type: ignore[arg-type]
    assert Page().limit == 50
    for text in ("", "-", "--1", "+1", "1e3", "1_000", " 5 ", "１２", "٣", "abc", "1.0", "0x10"):
        assert errors(Page, {"limit": text}) == {"limit": "Give a whole number from 1 to 100."}, text


def test_an_answer_is_always_json() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert Told(at=at).model_dump_json() == '{"at":"2026-01-02T03:04:05Z","anything":null}'
    for number in (float("nan"), float("inf"), float("-inf")):
        assert Told(at=at, anything=[number]).model_dump_json().endswith('"anything":[null]}')
    assert str(10**299) in Told(at=at, anything=10**299).model_dump_json()
