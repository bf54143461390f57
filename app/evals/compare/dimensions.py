"""One thing that is compared: its score, whether it passes, why, and where the two sides differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.text.values import TRUNCATED, Leaves, Path, differences, format_path, shorten

CREATED, UPDATED = "entities_created", "entities_updated"
CALLS, ARGUMENTS, MESSAGE = "tool_calls", "tool_args", "final_message"
WEIGHTS = {CREATED: 0.30, UPDATED: 0.30, CALLS: 0.10, ARGUMENTS: 0.10, MESSAGE: 0.20}
PASS_AT = {CREATED: 1.0, UPDATED: 1.0, CALLS: 0.60, ARGUMENTS: 0.80, MESSAGE: 0.60}
# More than this many differences of one dimension are never listed.
MAX_LISTED = 200


@dataclass(frozen=True)
class Divergence:
    """One difference. `golden` or `replay` is None where that side has nothing."""

    dimension: str
    path: str
    golden: Any
    replay: Any
    text: str
    golden_seq: int | None = None
    replay_seq: int | None = None

    @property
    def sequence(self) -> int:
        """Where it happened, as far as it is known."""
        return min((seq for seq in (self.golden_seq, self.replay_seq) if seq is not None), default=0)

    def as_json(self, weight: float) -> dict[str, Any]:
        return {
            "dimension": self.dimension,
            "path": self.path,
            "golden": shorten(self.golden),
            "replay": shorten(self.replay),
            "weight": round(weight, 6),
            "golden_seq": self.golden_seq,
            "replay_seq": self.replay_seq,
            "text": self.text,
        }


@dataclass(frozen=True)
class Dimension:
    """`threshold` is the least score that passes; a set may ask for another."""

    name: str
    score: float
    weight: float
    threshold: float
    reason: str
    decides: bool = False
    divergences: tuple[Divergence, ...] = field(default=())

    @property
    def passed(self) -> bool:
        # A hair below the threshold is the arithmetic, not the session.
        return self.score >= self.threshold - 1e-9

    def with_weight(self, weight: float) -> Dimension:
        return replace(self, weight=weight)


def standard_dimension(
    name: str, score: float, reason: str, found: Sequence[Divergence] = (), *, decides: bool = False
) -> Dimension:
    """One of the five dimensions of an agent, with its usual weight and threshold."""
    return Dimension(name, score, WEIGHTS[name], PASS_AT[name], reason, decides, tuple(found))


def leaf_divergences(
    dimension: str,
    golden: Leaves,
    replay: Leaves,
    *,
    about: str,
    seqs: tuple[int | None, int | None] = (None, None),
    skip: int = 0,
    put_right: bool = False,
) -> list[Divergence]:
    """One divergence for every leaf that differs. The first `skip` parts of a path are not shown; `put_right` says that
    the golden's side is what should have happened."""
    return [
        Divergence(
            dimension,
            format_path(path[skip:]) or format_path(path),
            golden.get(path),
            replay.get(path),
            leaf_text(about, path[skip:] or path, golden, replay, path, put_right=put_right),
            *seqs,
        )
        for path in differences(golden, replay)[:MAX_LISTED]
    ]


def leaf_text(about: str, named: Path, golden: Leaves, replay: Leaves, path: Path, *, put_right: bool = False) -> str:
    """A difference in words: `updateEntity d-1: stage is "won" instead of "open"`."""
    name = format_path(named)
    if path not in replay:
        was = "expected is" if put_right else "it was"
        return f"{about}: {name} is missing; {was} {quote_value(golden[path])}"
    if path not in golden:
        was = "it is not expected" if put_right else "it was not there before"
        return f"{about}: {name} is {quote_value(replay[path])}; {was}"
    if replay[path] is TRUNCATED or golden[path] is TRUNCATED:
        return f"{about}: {name} is too large to compare"
    return f"{about}: {name} is {quote_value(replay[path])} instead of {quote_value(golden[path])}"


def quote_value(value: Any) -> str:
    """A value as a sentence quotes it."""
    short = shorten(value, 80)
    if isinstance(value, str):
        return f"“{short}”"
    return "empty" if value is None else short if isinstance(short, str) else json.dumps(short, ensure_ascii=False)


def plural(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
