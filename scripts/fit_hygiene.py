"""Fit the two thresholds of the knowledge checks on the `dev` half of the labelled pairs, and say what every check
reaches on both halves: `python -m scripts.fit_hygiene`.
"""

from __future__ import annotations

from collections.abc import Callable

from app.learning.hygiene import checks
from app.learning.hygiene.checks import Row
from app.learning.hygiene.contradictions import find_contradiction
from scripts.hygiene_data import OF_PAIRS, OF_ROWS, nearness, pairs, score, score_of


def fitted(split: str = "dev") -> dict[str, float]:
    """For each threshold a point of the widest stretch that gives the best F1, three quarters up: among thousands of
    rows nearly all pairs are neither, and a wrong finding costs more attention than a missed one."""
    return {
        "DUPLICATE_NEARNESS": best_threshold("duplicate", repeats, split),
        "RELATED_NEARNESS": best_threshold("contradiction", clash, split),
    }


def repeats(a: Row, b: Row) -> bool:
    return not clash(a, b) and checks.says_alike(a.content, b.content)


def clash(a: Row, b: Row) -> bool:
    return find_contradiction(a.content, b.content) is not None


def best_threshold(check: str, may_be: Callable[[Row, Row], bool], split: str) -> float:
    rows = [(label == check, checks.overlap(a, b) and may_be(a, b), nearness(a, b)) for label, a, b in pairs(split)]
    places = [step / 100 for step in range(20, 100)]
    scores = [score((label, may and near >= place, "") for label, may, near in rows).f1 for place in places]
    best = [place for place, reached in zip(places, scores, strict=True) if reached >= max(scores) - 1e-9]
    runs: list[list[float]] = []
    for place in best:
        if runs and round(place - runs[-1][-1], 2) == 0.01:
            runs[-1].append(place)
        else:
            runs.append([place])
    widest = max(runs, key=len)
    return round(widest[0] + 0.75 * (widest[-1] - widest[0]), 2)


def main() -> None:
    for name, value in fitted().items():
        print(f"{name} = {value} (in use: {getattr(checks, name)})")
    print(f"{'check':22}{'dev F1':>8}{'held F1':>9}   held: right, missed, false")
    for check in (*OF_PAIRS, *OF_ROWS):
        dev, held = score_of(check, "dev"), score_of(check, "held")
        print(f"{check:22}{dev.f1:8.3f}{held.f1:9.3f}   {held.right}, {held.missed}, {held.false}")


if __name__ == "__main__":
    main()
