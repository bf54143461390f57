"""How a verdict changed: the rule, and the counts in words."""

from __future__ import annotations

import pytest

from app.evals.change import CHANGES, change_of, describe_changes


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        ("pass", "pass", "same"),
        ("pass", "flaky", "worse"),
        ("pass", "fail", "worse"),
        ("flaky", "pass", "better"),
        ("flaky", "flaky", "same"),
        ("flaky", "fail", "worse"),
        ("fail", "pass", "better"),
        ("fail", "flaky", "better"),
        ("fail", "fail", "same"),
        ("pass", "errored", "errored"),
        ("fail", "unknown", "errored"),
        (None, "errored", "errored"),
        (None, "pass", "new"),
        (None, "fail", "new"),
        ("errored", "fail", "new"),
        ("unknown", "pass", "new"),
        ("pass", None, None),
        (None, None, None),
    ],
)
def test_what_changed(before: str | None, now: str | None, change: str | None) -> None:
    assert change_of(before, now) == change


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"worse": 6, "better": 1, "same": 1, "new": 1, "errored": 1}, "6 worse, 1 better"),
        ({"same": 1, "new": 1}, "no change"),
        ({"new": 1, "errored": 1}, ""),
    ],
)
def test_changes_are_described(counts: dict[str, int], words: str) -> None:
    assert describe_changes(dict.fromkeys(CHANGES, 0) | counts) == words
