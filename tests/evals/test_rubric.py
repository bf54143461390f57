"""What a judge may answer, how dimensions add up, and how far it agrees with people."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.evals.agreement import kappa, measure_agreement
from app.evals.judge_prompt import MAX_CHARS, TooLong, build_prompt
from app.evals.rubric import Unreadable, apply_rubric, ask_about, can_lower, keep_compared, read_answer, score_rubric
from app.evals.trace import Event, Run
from app.formats.criteria import read_dimensions

RATING = {"kind": "rating", "anchors": {"1": "Bad.", "5": "Good."}, "passes_from": 4}
RULES = read_dimensions({"Tone of voice": RATING, "EBITDA": {"kind": "numeric", "relative_tolerance": 0.01}})
QUESTIONS = ask_about(RULES)
GOOD = {"tone_of_voice_reason": "Kind.", "tone_of_voice_score": 4, "ebitda_reason": "14.2.", "ebitda_score": 1}


def test_an_answer_is_read_with_and_without_a_fence() -> None:
    for text in (json.dumps(GOOD), f"```json\n{json.dumps(GOOD)}\n```"):
        marks = read_answer(text, QUESTIONS)
        assert marks["Tone of voice"] == {"score": 4, "passed": True, "reason": "Kind."}
        assert marks["EBITDA"]["passed"] is True


@pytest.mark.parametrize(
    "changed",
    [
        {"tone_of_voice_score": 4.5},
        {"tone_of_voice_score": 0},
        {"tone_of_voice_score": 6},
        {"tone_of_voice_score": True},
        {"tone_of_voice_score": None},
        {"ebitda_score": 1.01},
        {"ebitda_score": -0.1},
        {"ebitda_reason": "  "},
        {"ebitda_reason": 4},
        {"verdict": "pass"},
    ],
)
def test_an_answer_that_does_not_fit_is_refused_whole(changed: dict[str, Any]) -> None:
    with pytest.raises(Unreadable):
        read_answer(json.dumps(GOOD | changed), QUESTIONS)


@pytest.mark.parametrize("text", [json.dumps(GOOD)[:-1], f"Here: {json.dumps(GOOD)}", "[]", "5", '{"a": 1, "a": 2}'])
def test_an_answer_is_nothing_but_the_object(text: str) -> None:
    with pytest.raises(Unreadable):
        read_answer(text, QUESTIONS)


def test_a_score_that_json_cannot_hold_is_named() -> None:
    with pytest.raises(Unreadable, match="a score that is not a number"):
        read_answer(json.dumps(GOOD | {"ebitda_score": float("nan")}), QUESTIONS)


def test_names_that_look_alike_get_keys_of_their_own() -> None:
    keys = [one.key for one in ask_about(read_dimensions({"A b": RATING, "a-b": RATING, "質": RATING, "量": RATING}))]
    assert len(set(keys)) == 4
    assert keys[0] == "a_b"


def rubric(**passed: bool) -> dict[str, Any]:
    kinds = {"critical": 1.0, "heavy": 3.0, "light": 2.0, "minor": 9.0}
    rules = read_dimensions(
        {
            name: RATING | {"weight": kinds[name], "importance": name if name in ("critical", "minor") else "normal"}
            for name in passed
        }
    )
    marks = {name: {"score": 5 if ok else 1, "passed": ok, "reason": "So."} for name, ok in passed.items()}
    return score_rubric(rules, marks)


@pytest.mark.parametrize(
    ("passed", "whole"),
    [
        ({"critical": False, "heavy": True, "light": True}, False),
        ({"critical": True, "heavy": False, "light": True}, False),
        ({"heavy": True, "light": False}, True),
        ({"heavy": False, "light": True}, False),
        ({"heavy": True, "minor": False}, True),
        ({"minor": False}, True),
    ],
)
def test_dimensions_count_by_importance_and_weight(passed: dict[str, bool], whole: bool) -> None:
    assert rubric(**passed)["passed"] is whole


@pytest.mark.parametrize("verdict", ["pass", "fail", "unknown"])
def test_no_rubric_raises_a_verdict(verdict: str) -> None:
    accuracy = {"pass": 1.0, "fail": 0.4}.get(verdict)
    result = keep_compared(
        {"verdict": verdict, "passed": verdict == "pass", "overall_accuracy": accuracy, "reason": "same"}
    )
    for given in (rubric(heavy=True), {"status": "errored", "reason": "late", "dimensions": {}}, rubric(heavy=False)):
        after = apply_rubric(result, given)
        assert after["verdict"] == verdict or verdict == "pass"
        assert (after["overall_accuracy"] or 0) <= (accuracy or 0)
        # Judging again, or taking a judgement back, starts from what the comparison found.
        assert apply_rubric(after, rubric(heavy=True))["verdict"] == verdict


def talk(*texts: str) -> Run:
    return Run(events=tuple(Event("agent.message", {"text": text}, place) for place, text in enumerate(texts)))


def test_the_marks_follow_from_the_content_and_a_secret() -> None:
    first, same, other, foreign = (
        build_prompt(talk("a"), None, talk(said), QUESTIONS, model="m", secret=secret)
        for said, secret in (("b", "s"), ("b", "s"), ("c", "s"), ("b", "t"))
    )
    assert first == same
    assert first.content_hash != other.content_hash
    assert first.content_hash == foreign.content_hash
    assert first.data != foreign.data


def test_a_critical_dimension_fails_whatever_its_weight() -> None:
    rules = read_dimensions({"a": RATING | {"weight": 0, "importance": "critical"}, "b": RATING})
    marks = {name: {"score": 5, "passed": name == "b", "reason": "So."} for name in rules}
    assert score_rubric(rules, marks)["passed"] is False
    assert can_lower({"a": rules["a"]})


def test_what_nobody_saw_is_not_judged() -> None:
    call = {"call_id": "call_1", "output": "14.2", "is_error": False}
    plain, noted = (
        Run(events=(Event("agent.message", {"text": "b"} | rules, 1), Event("tool.result", call | replay, 2)))
        for rules, replay in (({}, {}), ({"applied_rules": ["5f0c"], "unread_rules": []}, {"replay": {"mode": "x"}}))
    )
    first, second = (build_prompt(talk("a"), None, run, QUESTIONS, model="m", secret="s") for run in (plain, noted))
    assert first == second


def test_long_results_are_cut_and_sessions_without_end_are_refused() -> None:
    long = Run(events=(Event("tool.result", {"output": "x" * 20_000}, 1),))
    data = build_prompt(talk("a"), None, long, QUESTIONS, model="m", secret="s").data
    assert "characters left out]" in data
    assert len(data) < 10_000
    with pytest.raises(TooLong):
        build_prompt(talk("a"), None, talk(*["y" * 15_000] * 14), QUESTIONS, model="m", secret="s")
    assert MAX_CHARS < 14 * 15_000


def test_kappa_is_what_the_textbook_says() -> None:
    # Cohen 1960 as usually taught: 20 + 15 agree of 50, p_e = .5, κ = .4.
    pairs = [(True, True)] * 20 + [(False, False)] * 15 + [(True, False)] * 5 + [(False, True)] * 10
    assert kappa(pairs) == pytest.approx(0.4)
    found = measure_agreement(pairs)
    assert found == measure_agreement(pairs)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.4 < found.high
    assert found.summary == f"κ 0.40 (95% CI {found.low:.2f} to {found.high:.2f})"


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([], "0 of 20 labels"),
        ([(True, True)] * 7, "7 of 20 labels"),
        ([(True, True)] * 20, "one class only"),
        ([(True, True)] * 20 + [(False, True)], "κ 0.00"),
    ],
)
def test_too_few_labels_and_labels_of_one_class_are_no_figure(pairs: list[tuple[bool, bool]], said: str) -> None:
    assert measure_agreement(pairs).summary.startswith(said)


@pytest.mark.parametrize(("labels", "agreed", "reliable"), [(19, 19, False), (20, 20, True), (20, 14, False)])
def test_a_judge_is_called_reliable_from_twenty_labels_on(labels: int, agreed: int, reliable: bool) -> None:
    pairs = [(place % 2 == 0, (place % 2 == 0) == (place < agreed)) for place in range(labels)]
    found = measure_agreement(pairs)
    assert (found.agreed, found.reliable) == (agreed, reliable)
