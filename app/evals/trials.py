"""Combine the trials of one golden, and the goldens of one set."""

from collections import Counter
from collections.abc import Iterable, Sequence

from app.evals.verdict import ERRORED, FAIL, FLAKY, PASS, UNKNOWN


def combine_verdicts(verdicts: Sequence[str]) -> str:
    """One verdict for all trials: pass if all pass, fail if all fail, else flaky. Errored trials are left out.

    A trial that could not be judged leaves the whole unknown, unless the others already disagree.
    """
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
