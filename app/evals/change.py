"""How the verdict on a golden changed from one run to another."""

from collections.abc import Mapping

from app.evals.verdict import FAIL, FLAKY, PASS

WORSE, BETTER, SAME, NEW, ERRORED = "worse", "better", "same", "new", "errored"
CHANGES = (WORSE, BETTER, SAME, NEW, ERRORED)
_RANK = {FAIL: 0, FLAKY: 1, PASS: 2}


def change_of(before: str | None, now: str | None) -> str | None:
    """Compare two verdicts of one golden; None while it is not judged yet.

    A verdict that says nothing about the work (errored, unknown) is not compared: now it makes the golden `errored`,
    and before it counts as no earlier verdict.
    """
    if now is None:
        return None
    if now not in _RANK:
        return ERRORED
    if before not in _RANK:
        return NEW
    return SAME if before == now else WORSE if _RANK[now] < _RANK[before] else BETTER


def describe_changes(counts: Mapping[str, int]) -> str:
    """`6 worse`, `2 better`, `6 worse, 2 better` or `no change`; empty when nothing could be compared."""
    moved = [f"{counts[change]:,} {change}" for change in (WORSE, BETTER) if counts[change]]
    return ", ".join(moved) or ("no change" if counts[SAME] else "")
