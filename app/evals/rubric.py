"""What a judge said of a replay: read strictly, scored by the criteria, and applied to the verdict of the comparison.

A judge may lower a verdict and never raises one. What cannot be read as an answer to every question is no score.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from app.errors import Invalid
from app.evals.compare.response import KEYWORD_PASS, RANK_PASS, TEXT_PASS
from app.evals.verdict import ERRORED, FAIL, MAX_FAILED_ACCURACY, PASS
from app.formats import strict_json
from app.formats.criteria import AnyDimension, Rating, Text

JUDGED, NOT_JUDGED, RUBRIC_ERRORED = "judged", "not_judged", "errored"
# The least share of the weight of critical and normal dimensions that has to pass.
PASSES_AT = 0.60
MAX_REASON = 2_000
CRITICAL, MINOR = "critical", "minor"
FENCE = re.compile(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*", re.DOTALL)

# What some models write as a score, and JSON does not have.
NOT_A_NUMBER = re.compile(r'_score"\s*:\s*-?(?:NaN|Infinity)\b')


class Unreadable(Exception):
    """The judge's answer is no answer. The message is one sentence that repeats nothing of it."""


@dataclass(frozen=True)
class Question:
    """A dimension as the judge is asked: the names of its two answers, and the scores that it may give."""

    name: str
    key: str
    rule: AnyDimension

    @property
    def schema(self) -> dict[str, Any]:
        if isinstance(self.rule, Rating):
            return {"type": "integer", "minimum": 1, "maximum": 5}
        return {"type": "number", "minimum": 0, "maximum": 1}

    @property
    def threshold(self) -> float:
        """The least score that passes, on a scale from 0 to 1."""
        rule = self.rule
        if isinstance(rule, Rating):
            return (rule.passes_from - 1) / 4
        if isinstance(rule, Text) and rule.match != "exact":
            usual = KEYWORD_PASS if rule.match == "keyword" else TEXT_PASS
            return usual if rule.threshold is None else rule.threshold
        return RANK_PASS if rule.kind == "relation-rank" else 1.0

    def accepts(self, score: Any) -> bool:
        """Whether a score is a number in range; of a rating, a whole one."""
        if isinstance(score, bool) or not isinstance(score, int | float) or not isfinite(score):
            return False
        if isinstance(self.rule, Rating):
            return 1 <= score <= 5 and score == int(score)
        return 0 <= score <= 1

    def passes(self, score: float) -> bool:
        share = (score - 1) / 4 if isinstance(self.rule, Rating) else score
        return share >= self.threshold - 1e-9


def ask_about(dimensions: Mapping[str, AnyDimension]) -> list[Question]:
    """A question for each dimension. Names become short keys in snake case, each one once."""
    taken: dict[str, int] = {}
    found = []
    for name, rule in dimensions.items():
        key = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:40] or "dimension"
        taken[key] = taken.get(key, 0) + 1
        found.append(Question(name, key if taken[key] == 1 else f"{key}__{taken[key]}", rule))
    return found


def answer_schema(questions: list[Question]) -> dict[str, Any]:
    """The JSON schema of an answer: a reason and a score for each question, and nothing else."""
    properties: dict[str, Any] = {}
    for one in questions:
        properties[f"{one.key}_reason"] = {"type": "string"}
        properties[f"{one.key}_score"] = one.schema
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def read_answer(text: str, questions: list[Question]) -> dict[str, dict[str, Any]]:
    """The score and the reason of each dimension. Raise Unreadable unless all are there, in range, and nothing else."""
    fenced = FENCE.fullmatch(text)
    try:
        answer = strict_json.parse((fenced[1] if fenced else text).encode(errors="replace"), "answer")
    except Invalid:
        if NOT_A_NUMBER.search(text):
            raise Unreadable("The judge gave a score that is not a number.") from None
        raise Unreadable("The judge did not answer in JSON.") from None
    wanted = answer_schema(questions)["required"]
    if not isinstance(answer, dict) or set(answer) != set(wanted):
        raise Unreadable("The judge's answer does not have a score and a reason for each dimension.")
    return {one.name: _read_mark(one, answer) for one in questions}


def _read_mark(question: Question, answer: Mapping[str, Any]) -> dict[str, Any]:
    score, reason = answer[f"{question.key}_score"], answer[f"{question.key}_reason"]
    if not question.accepts(score):
        scale = "a whole number from 1 to 5" if isinstance(question.rule, Rating) else "a number from 0 to 1"
        raise Unreadable(f"The judge's score for {question.name} is not {scale}.")
    if not isinstance(reason, str) or not reason.strip():
        raise Unreadable(f"The judge gave no reason for {question.name}.")
    return {"score": score, "passed": question.passes(score), "reason": reason.strip()[:MAX_REASON]}


def score_rubric(
    dimensions: Mapping[str, AnyDimension],
    marks: Mapping[str, Mapping[str, Any]],
    overruled: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The rubric as it is stored: each dimension, the share of the weight that passes, and whether the whole does.
    `overruled` has what an admin said instead: `passed`, `reason` and `by`."""
    found: dict[str, dict[str, Any]] = {}
    for place, (name, rule) in enumerate((name, rule) for name, rule in dimensions.items() if name in marks):
        mark, label = marks[name], rule.label or name
        about = {"kind": rule.kind, "label": label, "weight": rule.weight, "importance": rule.importance}
        instead = (overruled or {}).get(name)
        found[name] = {**mark, **about, "position": place}
        # An overrule that says what the judge said takes an earlier one back.
        if instead is not None and instead["passed"] != mark["passed"]:
            found[name] |= {"passed": instead["passed"], "judge_passed": mark["passed"], "overruled": dict(instead)}
    counted = [one for one in found.values() if one["importance"] != MINOR and one["weight"]]
    whole = sum(one["weight"] for one in counted)
    share = sum(one["weight"] for one in counted if one["passed"]) / whole if whole else 1.0
    broken = any(one["importance"] == CRITICAL and not one["passed"] for one in found.values())
    passed = not broken and share >= PASSES_AT - 1e-9
    return {"status": JUDGED, "score": round(share, 6), "passed": passed, "dimensions": found}


def can_lower(dimensions: Mapping[str, AnyDimension]) -> bool:
    """Whether any of these dimensions counts for the verdict."""
    return any(
        rule.importance == CRITICAL or (rule.importance != MINOR and rule.weight) for rule in dimensions.values()
    )


def apply_rubric(result: Mapping[str, Any], rubric: Mapping[str, Any], *, decides: bool = True) -> dict[str, Any]:
    """The result of a replay with its rubric. A pass becomes a failure where the rubric fails, and errored where the
    judge gave no usable answer; every other verdict stays what the comparison said."""
    compared = result["compared"]
    after = {**result, **compared, "rubric": dict(rubric)}
    if compared["verdict"] != PASS or not decides:
        return after
    if rubric["status"] == RUBRIC_ERRORED:
        reason = f"the judge gave no usable answer: {rubric['reason']}".rstrip(".")
        return after | {"verdict": ERRORED, "passed": None, "overall_accuracy": None, "reason": reason}
    if rubric["status"] == JUDGED and not rubric["passed"]:
        accuracy = min(compared["overall_accuracy"], MAX_FAILED_ACCURACY)
        return after | {"verdict": FAIL, "passed": False, "overall_accuracy": accuracy, "reason": _why(rubric)}
    return after


def keep_compared(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result that waits for a judge, with what the comparison found kept apart."""
    kept = {name: result[name] for name in ("verdict", "passed", "overall_accuracy", "reason")}
    return {**result, "compared": kept, "rubric": {"status": NOT_JUDGED, "dimensions": {}}}


def _why(rubric: Mapping[str, Any]) -> str:
    """The heaviest failed dimension in one sentence, critical ones first."""
    failed = [one for one in rubric["dimensions"].values() if not one["passed"] and one["importance"] != MINOR]
    worst = max(failed, key=lambda one: (one["importance"] == CRITICAL, one["weight"]))
    said = worst.get("overruled") or worst
    most = 5 if worst["kind"] == "rating" else 1
    what = f"scores {worst['score']:g} of {most}" if said is worst else "was overruled"
    return f"{worst['label']} {what} ({said['reason'].rstrip('.')})"
