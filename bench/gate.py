"""How well the machine-feedback gate does on messages that were written apart, with 95 % Wilson intervals.

`UPSHOT_BENCH_GATE` names another file in the format of `tests/data/gate`. A verdict is right when the message carries
that verdict; a row is right when its turn is the right one too.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from app.evals.stats import wilson
from app.learning.gate.classify import classify
from app.learning.gate.reading import Turn
from app.learning.gate.targets import choose_target, rank_turns

MESSAGES = Path("tests/data/gate/test.jsonl")


def measure() -> dict[str, Any]:
    """Precision and recall of verdicts and of whole rows, and milliseconds a message."""
    rows = [json.loads(line) for line in Path(os.environ.get("UPSHOT_BENCH_GATE", MESSAGES)).read_text().splitlines()]
    decide(rows[0])
    begun = time.perf_counter()
    decided = [decide(row) for row in rows]
    spent = time.perf_counter() - begun
    judged = sum(row["label"] is not None for row in rows)
    said = [(row, *found) for row, found in zip(rows, decided, strict=True) if found[0] is not None]
    verdicts = sum(row["label"] == reaction for row, reaction, _ in said)
    whole = sum(row["label"] == reaction and row["target"] == target for row, reaction, target in said)
    return {
        "messages": len(rows),
        "judged": judged,
        "verdict": {"precision": rate(verdicts, len(said)), "recall": rate(verdicts, judged)},
        "row": {"precision": rate(whole, len(said)), "recall": rate(whole, judged)},
        "false": {
            "nothing_judged": sum(row["label"] is None for row, _, _ in said),
            "other_verdict": sum(row["label"] not in (None, reaction) for row, reaction, _ in said),
            "other_turn": verdicts - whole,
        },
        "ms_per_message": round(1000 * spent / len(rows), 2),
    }


def decide(row: dict[str, Any]) -> tuple[str | None, int | None]:
    """The verdict and the turn that would be written, or nothing."""
    turns = [Turn(turn["user"], turn["agent"]) for turn in row["turns"]]
    verdict = classify(row["message"], turns)
    ranked = rank_turns(row["message"], turns, [0.0] * len(turns))
    target = choose_target(row["message"], ranked, turns, range(len(turns)))
    return (verdict.reaction, target.position) if verdict.counts and target else (None, None)


def rate(right: int, of: int) -> dict[str, Any]:
    low, high = wilson(right, of)
    return {"value": round(right / of, 3) if of else None, "low": round(low, 3), "high": round(high, 3), "n": of}
