from __future__ import annotations

from typing import Any

import pytest

from app.evals import stats


def test_wilson_interval() -> None:
    low, high = stats.wilson(8, 10)

    assert (round(low, 3), round(high, 3)) == (0.49, 0.943)
    assert stats.wilson(0, 0) == (0.0, 1.0)
    assert stats.wilson(5, 5)[1] == pytest.approx(1.0)


def test_lift_and_its_interval() -> None:
    low, high = stats.lift_interval(6, 1, 20)

    assert stats.lift(6, 1, 20) == 0.25
    assert (round(low, 3), round(high, 3)) == (-0.006, 0.461)
    assert stats.lift(0, 0, 0) is None


def test_smallest_regression_that_a_set_can_show() -> None:
    assert stats.smallest_regression(20) == 0.25
    assert stats.smallest_regression(4) is None
    assert stats.smallest_regression(4, deterministic=True) == 0.25
    assert stats.smallest_regression(0, deterministic=True) is None


@pytest.mark.parametrize(
    ("verdicts", "combined"),
    [
        (["pass", "pass"], "pass"),
        (["fail", "fail"], "fail"),
        (["pass", "fail"], "flaky"),
        (["pass", "errored"], "pass"),
        (["errored", "errored"], "errored"),
        (["pass", "unknown"], "unknown"),
        (["pass", "unknown", "fail"], "flaky"),
        ([], "unknown"),
    ],
)
def test_trials_are_combined(verdicts: list[str], combined: str) -> None:
    assert stats.combine_verdicts(verdicts) == combined


def test_pass_power_k() -> None:
    rows = [["pass", "pass"], ["pass", "fail"], ["errored", "pass"], ["pass", "pass"]]

    assert stats.pass_power_k(rows, 2) == pytest.approx(2 / 3)
    assert stats.pass_power_k(rows, 1) == 1.0
    assert stats.pass_power_k([], 2) is None


def test_accuracy_leaves_out_what_was_not_judged() -> None:
    assert stats.accuracy(["pass", "fail", "flaky", "errored", "unknown"]) == pytest.approx(1 / 3)
    assert stats.accuracy(["errored"]) is None
    assert stats.is_pass("flaky") is False
    assert stats.is_pass("unknown") is None


def test_dimensions_are_scored_by_golden() -> None:
    def trial(**scores: float) -> dict[str, Any]:
        return {name: {"score": score, "passed": score >= 0.6} for name, score in scores.items()}

    goldens = [[trial(calls=1.0, message=0.9)], [trial(calls=1.0), trial(calls=0.5)], [trial(message=0.3)], []]
    assert stats.score_dimensions(goldens) == {
        "calls": {"mean": 0.875, "passed": 1, "judged": 2},
        "message": {"mean": 0.6, "passed": 1, "judged": 2},
    }


def test_dimensions_of_criteria_are_kept_up_to_a_number() -> None:
    many = {f"criterion_{number}": {"score": 1.0, "passed": True} for number in range(60)}
    shared = {"calls": {"score": 1.0, "passed": True}}
    found = stats.score_dimensions([[many | shared], [shared]])
    assert len(found) == stats.MAX_DIMENSIONS
    assert next(iter(found)) == "calls"
