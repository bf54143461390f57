"""How a verdict changed: the rule, and the counts in words."""

from __future__ import annotations

import pytest

from app.evals.change import change_of, count_changes, describe_changes


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


def test_changes_are_counted_and_described() -> None:
    others = [("fail", "pass"), ("pass", "pass"), (None, "fail"), ("pass", "errored"), ("pass", None)]
    pairs = [("pass", "fail")] * 6 + others
    counts = count_changes(pairs)
    assert counts == {"worse": 6, "better": 1, "same": 1, "new": 1, "errored": 1}
    assert describe_changes(counts) == "6 worse, 1 better"
    assert describe_changes(count_changes([("pass", "pass"), (None, "fail")])) == "no change"
    assert describe_changes(count_changes([(None, "fail"), ("pass", "errored")])) == ""
