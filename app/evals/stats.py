"""Figures: the trials of a golden and the goldens of a set combined, intervals, and what a set can show."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from typing import Any

from app.evals.verdict import ERRORED, FAIL, FLAKY, PASS, UNKNOWN

Z = 1.96
# Of a set whose goldens have criteria of their own, so many names at most.
MAX_DIMENSIONS = 40


def wilson(successes: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a rate; everything is possible when nothing was counted."""
    if n == 0:
        return 0.0, 1.0
    rate, z2 = successes / n, Z * Z
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = Z * sqrt(rate * (1 - rate) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Score:
    """How many of the judged goldens passed in a run. Goldens with a rejected baseline are not counted."""

    passed: int
    judged: int

    @property
    def share(self) -> float | None:
        return self.passed / self.judged if self.judged else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share."""
        return wilson(self.passed, self.judged)


def newcombe(successes: int, n: int, other_successes: int, other_n: int) -> tuple[float, float]:
    """The 95 % interval of the difference of two independent rates, after Newcombe: the first minus the other."""
    (low, high), (other_low, other_high) = wilson(successes, n), wilson(other_successes, other_n)
    rate, other = successes / n if n else 0.5, other_successes / other_n if other_n else 0.5
    difference = rate - other
    below, above = hypot(rate - low, other_high - other), hypot(high - rate, other - other_low)
    return max(-1.0, difference - below), min(1.0, difference + above)


def lift(fixed: int, broken: int, n: int) -> float | None:
    """(fixed − broken) ÷ n of paired outcomes; None when no golden was exercised."""
    return (fixed - broken) / n if n else None


def lift_interval(fixed: int, broken: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a lift over paired outcomes, after Agresti and Min."""
    middle = (fixed - broken) / (n + 2)
    half = Z * sqrt((fixed + broken + 1) - (fixed - broken) ** 2 / (n + 2)) / (n + 2)
    return max(-1.0, middle - half), min(1.0, middle + half)


def smallest_regression(n: int, *, deterministic: bool = False) -> float | None:
    """The smallest share of broken goldens that a set of n can show, or None. Five broken and none fixed is the least
    that a one-sided sign test calls a regression (p = .031). An agent that always answers the same shows one."""
    least = 1 if deterministic else 5
    return least / n if n >= least else None


def combine_verdicts(verdicts: Sequence[str]) -> str:
    """One verdict for all trials: pass if all pass, fail if all fail, else flaky. Errored trials are left out. A trial
    that could not be judged leaves the whole unknown, unless the others already disagree."""
    judged = [verdict for verdict in verdicts if verdict != ERRORED]
    if not judged:
        return ERRORED if verdicts else UNKNOWN
    if FLAKY in judged or {PASS, FAIL} <= set(judged):
        return FLAKY
    if UNKNOWN in judged:
        return UNKNOWN
    return judged[0]


def is_pass(verdict: str) -> bool | None:
    """True, false, or None where a verdict says neither."""
    return {PASS: True, FAIL: False, FLAKY: False}.get(verdict)


def pass_power_k(trials: Iterable[Sequence[str]], k: int) -> float | None:
    """pass^k: the share of goldens whose k trials all passed, among those with k trials that were judged."""
    whole = [judged for each in trials if len(judged := [one for one in each if one in (PASS, FAIL)]) >= k]
    return sum(all(one == PASS for one in judged[:k]) for judged in whole) / len(whole) if whole and k > 0 else None


def count_verdicts(verdicts: Iterable[str]) -> dict[str, int]:
    """How many of each verdict there are."""
    counted = Counter(verdicts)
    return {verdict: counted[verdict] for verdict in (PASS, FAIL, FLAKY, ERRORED, UNKNOWN)}


def accuracy(verdicts: Iterable[str]) -> float | None:
    """Passed ÷ judged; a flaky golden did not pass. None when nothing was judged."""
    counted = count_verdicts(verdicts)
    judged = counted[PASS] + counted[FAIL] + counted[FLAKY]
    return counted[PASS] / judged if judged else None


def score_verdicts(verdicts: Sequence[str]) -> dict[str, Any]:
    """The accuracy of some goldens, and how many of them passed and were judged."""
    counted = count_verdicts(verdicts)
    judged = counted[PASS] + counted[FAIL] + counted[FLAKY]
    return {"accuracy": accuracy(verdicts), "passed": counted[PASS], "judged": judged}


def qualify_score(results: Mapping[str, Any]) -> dict[str, Any]:
    """What goes with the accuracy of a run: its 95 % interval, how many judged goldens are not in it because their
    baseline was rejected, and the smallest regression that the rest can show."""
    judged, verdicts = results["judged"], results["verdicts"]
    low, high = wilson(results["passed"], judged)
    return {
        "low": low,
        "high": high,
        "rejected": verdicts[PASS] + verdicts[FAIL] + verdicts[FLAKY] - judged,
        "smallest_regression": smallest_regression(judged, deterministic=results["models"] == ["offline"]),
    }


def score_dimensions(goldens: Iterable[Sequence[Mapping[str, Mapping[str, Any]]]]) -> dict[str, dict[str, Any]]:
    """Of each dimension its mean score, and how many goldens passed it and were judged by it. Each golden is given by
    the dimensions of its trials: it passes a dimension if all of them do."""
    found: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for trials in goldens:
        for name in dict.fromkeys(name for trial in trials for name in trial):
            told = [trial[name] for trial in trials if name in trial]
            mean = sum(one["score"] for one in told) / len(told)
            found[name].append((mean, all(one["passed"] for one in told)))
    most_judged = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))[:MAX_DIMENSIONS]
    return {
        name: {
            "mean": round(sum(score for score, _ in scores) / len(scores), 6),
            "passed": sum(passed for _, passed in scores),
            "judged": len(scores),
        }
        for name, scores in most_judged
    }
