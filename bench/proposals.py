"""A review without a model: how well it does on labelled weeks, and what ten thousand open rows cost.

The rows of the two weeks are repeated with other people, sessions and figures, so that patterns have many rows, and
mixed with rows that say something else each time.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any
from uuid import UUID

from app.learning.review.types import Signal
from scripts.review_weeks import WEEKS, Week, read_week, score_week

ROWS = 10_000
MAX_SECONDS = 40.0
MAX_GROWTH = 1.3
WORDS = "late early price table crate form driver label screen order route colour badge ledger pallet seat".split()  # noqa: SIM905 - a list of words reads better as a text.


def measure() -> dict[str, Any]:
    told: dict[str, Any] = {}
    for name in WEEKS:
        week = read_week(name)
        score = score_week(week, week.plan())
        told[name] = {
            "recall": round(score.recall, 2),
            "precision": round(score.precision, 2),
            "scope": round(score.scope, 2),
            "duplicates": score.duplicates,
        }
    seconds, small = _run_apart(ROWS // 10)
    more_seconds, large = _run_apart(ROWS)
    told |= {"rows": ROWS, "seconds": more_seconds, "tenth_seconds": seconds, "memory_growth": round(large / small, 2)}
    told["within"] = bool(more_seconds < MAX_SECONDS)
    return told


def make_rows(week: Week, count: int) -> list[Signal]:
    """As many rows as wanted, always the same."""
    rng = random.Random(14)
    return [_vary(week.signals[number % len(week.signals)], number, rng) for number in range(count)]


def _vary(signal: Signal, number: int, rng: random.Random) -> Signal:
    said = f"{' '.join(rng.sample(WORDS, 4))} {rng.randrange(1000)}"
    comment = f"{said} {signal.comment or ''}" if number % 3 else said
    ids = [UUID(int=rng.getrandbits(128)) for _ in range(3)]
    return replace(signal, id=ids[0], session_id=ids[1], author_id=signal.author_id and ids[2], comment=comment)


def _run_apart(count: int) -> tuple[float, float]:
    """Seconds of a review and the peak memory of its process in MB."""
    code = f"from bench.proposals import run; run({count})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, memory = done.stdout.split()
    return float(seconds), float(memory)


def run(count: int) -> None:
    week = read_week("dev")
    rows = make_rows(week, count)
    start = time.perf_counter()
    week.plan(rows)
    spent = time.perf_counter() - start
    print(round(spent, 1), round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1))


if __name__ == "__main__":
    print(measure())
