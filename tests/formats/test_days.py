"""Days named relative to today, and the spans that people write."""

from datetime import date

import pytest

from app.formats.days import describe_day, find_span, read_day

THURSDAY = date(2026, 11, 19)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2026-11-01", "2026-11-01"),
        ("today", "2026-11-19"),
        ("yesterday", "2026-11-18"),
        ("thursday", "2026-11-19"),
        ("monday", "2026-11-16"),
        ("monday-1", "2026-11-15"),
        ("month", "2026-11-01"),
        ("7d", "2026-11-13"),
        ("1d", "2026-11-19"),
    ],
)
def test_a_day_keeps_the_name_it_was_given(text: str, day: str) -> None:
    found = read_day(text, THURSDAY)
    assert found.isoformat() == day
    assert str(found) == text


@pytest.mark.parametrize("text", ["", "someday", "0d", "2026-02-30", "1999-01-01", "٢٠26-11-01", "7 d", "monday-2"])
def test_what_is_no_day(text: str) -> None:
    with pytest.raises(ValueError, match="day"):
        read_day(text, THURSDAY)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("last 7 days", {"from": "7d", "to": ""}),
        ("past week", {"from": "7d", "to": ""}),
        ("Last 2 months", {"from": "60d", "to": ""}),
        ("today", {"from": "today", "to": ""}),
        ("yesterday", {"from": "yesterday", "to": "yesterday"}),
        ("since Monday", {"from": "monday"}),
        ("this week", {"from": "monday", "to": ""}),
        ("before monday", {"to": "monday-1"}),
        ("before 1 Nov", {"to": "2026-10-31"}),
        ("since Nov 30", {"from": "2025-11-30"}),
        ("since 30 November 2026", {"from": "2026-11-30"}),
        ("after 2026-11-01", {"from": "2026-11-02"}),
        ("on 3 Nov", {"from": "2026-11-03", "to": "2026-11-03"}),
    ],
)
def test_spans_as_people_write_them(text: str, span: dict[str, str]) -> None:
    assert find_span(f"x {text} y", 2, THURSDAY) == (2 + len(text), span)


@pytest.mark.parametrize(
    "text", ["before merging", "last resort", "since 31 Feb", "todays", "this time", "on 1 marble"]
)
def test_words_that_name_no_day_stay_words(text: str) -> None:
    assert find_span(text, 0, THURSDAY) is None


def test_spans_are_told_in_words() -> None:
    told = {("from", "7d"): "last 7 days", ("from", "monday"): "since Monday", ("to", "monday-1"): "before Monday"}
    told |= {("from", "today"): "today", ("from", "month"): "this month", ("to", "2026-10-31"): "until 2026-10-31"}
    assert {key: describe_day(*key) for key in told} == told
