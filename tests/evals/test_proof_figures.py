"""What a proof makes of the replays with a row and without it: outcomes, figures, and what opens the gate."""

from __future__ import annotations

import pytest

from app.evals.proof import Pair, Replays, Score, majority, score_pairs
from app.learning.rules import applies_to_texts

PASS, FAIL, ERRORED, UNKNOWN = "pass", "fail", "errored", "unknown"


def side(*verdicts: str, calls: str = "a", said: str = "") -> Replays:
    return Replays(verdicts, frozenset(calls.split()), frozenset(said.split()))


@pytest.mark.parametrize(
    ("verdicts", "most"),
    [
        ([PASS], PASS),
        ([PASS, FAIL, PASS], PASS),
        ([PASS, FAIL, FAIL], FAIL),
        ([PASS, ERRORED, UNKNOWN], PASS),
        ([PASS, FAIL], UNKNOWN),
        ([UNKNOWN, ERRORED], UNKNOWN),
        ([ERRORED, ERRORED], ERRORED),
        ([], UNKNOWN),
    ],
)
def test_most_trials_decide(verdicts: list[str], most: str) -> None:
    assert majority(verdicts) == most


@pytest.mark.parametrize(
    ("applies", "before", "after", "exercised", "outcome"),
    [
        (True, side(PASS), side(PASS), True, "same"),
        (False, side(PASS), side(PASS), False, "same"),
        (False, side(FAIL), side(PASS), True, "fixed"),
        (False, side(PASS), side(FAIL), True, "broken"),
        (False, side(FAIL), side(FAIL, calls="b"), True, "same"),
        (False, side(PASS, said="x"), side(PASS, said="y"), True, "same"),
        (False, side(PASS, calls="a b"), side(PASS, calls="b c"), False, "same"),
        (False, side(PASS), side(ERRORED), True, "undecided"),
        (True, side(PASS, FAIL), side(PASS), True, "undecided"),
        (False, side(ERRORED), side(ERRORED), False, "undecided"),
    ],
)
def test_a_golden_exercises_a_row_if_it_applies_or_changes_something(
    applies: bool, before: Replays, after: Replays, exercised: bool, outcome: str
) -> None:
    pair = Pair("g", applies, before, after)
    assert (pair.exercised, pair.outcome) == (exercised, outcome)


def test_figures_count_exercised_goldens_only() -> None:
    pairs = [
        *(Pair("f", True, side(FAIL), side(PASS)) for _ in range(2)),
        *(Pair("s", True, side(PASS), side(PASS)) for _ in range(5)),
        Pair("idle", False, side(PASS), side(PASS)),
        Pair("u", True, side(PASS), side(UNKNOWN)),
    ]
    score = score_pairs(pairs)
    assert (score.n, score.fixed, score.broken, score.unchanged, score.undecided) == (7, 2, 0, 5, 1)
    assert score.lift == pytest.approx(2 / 7)
    assert score.interval == pytest.approx((-0.1259, 0.5704), abs=0.0001)
    assert (Score(0, 0, 0).lift, Score(0, 0, 0).interval) == (None, None)


@pytest.mark.parametrize(
    ("score", "refusal"),
    [
        (Score(1, 0, 5), ""),
        (Score(1, 0, 4), "4 goldens exercise it; the gate needs 5."),
        (Score(0, 0, 1), "1 golden exercises it; the gate needs 5."),
        (Score(0, 0, 0), "No goldens exercise it; the gate needs 5."),
        (Score(0, 0, 9), "It fixes nothing."),
        (Score(8, 1, 9), "It breaks 1 golden."),
        (Score(3, 0, 9, 2), "2 goldens could not be judged on both sides."),
    ],
)
def test_the_gate_says_why_it_stays_closed(score: Score, refusal: str) -> None:
    assert score.gate_refusal == refusal


@pytest.mark.parametrize(
    ("content", "context", "said", "applies"),
    [
        ("Use LTM EBITDA.", "comparing valuations", "Compare the valuation of both deals.", True),
        ("Use LTM EBITDA.", "comparing valuations", "Who is our contact?", False),
        ("Use LTM EBITDA.", None, "What is the EBITDA of Kestrel?", True),
        ("Use listEntities instead of searchEntities.", None, "Anything at all", True),
        ("Use limit=50 with listEntities for pipelines.", None, "Show all pipelines.", True),
        ("Use limit=50 with listEntities for pipelines.", None, "Set the limit to 50.", False),
    ],
)
def test_a_condition_applies_as_the_offline_model_reads_it(
    content: str, context: str | None, said: str, applies: bool
) -> None:
    assert applies_to_texts(content, context, ["listEntities", "searchEntities"], ["Hello", said]) is applies
