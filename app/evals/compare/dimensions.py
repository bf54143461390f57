"""One thing that is compared: its score, whether it passes, why, and where the two sides differ."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.text.values import TRUNCATED, Leaves, differences, format_path, shorten

CREATED, UPDATED = "entities_created", "entities_updated"
CALLS, ARGUMENTS, MESSAGE = "tool_calls", "tool_args", "final_message"
OUTPUT, SOURCES, CONFIDENCE = "output", "sources", "confidence"
# The usual weight of each, and the least score that passes.
STANDARD = {
    CREATED: (0.30, 1.0),
    UPDATED: (0.30, 1.0),
    CALLS: (0.10, 0.60),
    ARGUMENTS: (0.10, 0.80),
    MESSAGE: (0.20, 0.60),
    OUTPUT: (0.40, 1.0),
    SOURCES: (0.10, 0.60),
    CONFIDENCE: (0.10, 1.0),
}
PASS_AT = {name: least for name, (_, least) in STANDARD.items()}
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
        short = {"golden": shorten(self.golden), "replay": shorten(self.replay)}
        return {**vars(self), **short, "weight": round(weight, 6)}


@dataclass(frozen=True)
class Dimension:
    """`threshold` is the least score that passes; a set may ask for another."""

    name: str
    score: float
    weight: float
    threshold: float
    reason: str
    decides: bool = False
    divergences: tuple[Divergence, ...] = ()

    @property
    def passed(self) -> bool:
        # A hair below the threshold is the arithmetic, not the session.
        return self.score >= self.threshold - 1e-9

    def as_json(self) -> dict[str, Any]:
        rounded = {"score": round(self.score, 6), "weight": round(self.weight, 6)}
        return {**rounded, "passed": self.passed, "reason": self.reason, "decides": self.decides}


def standard_dimension(
    name: str, score: float, fine: str, found: Sequence[Divergence] = (), *, decides: bool = False
) -> Dimension:
    """A dimension with its usual weight and threshold. Its reason is the first divergence, or `fine` without one."""
    reason = found[0].text if found else fine
    return Dimension(name, score, *STANDARD[name], reason, decides, tuple(found))


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
    """One for every leaf that differs, without the first `skip` parts of its path. `put_right`: golden is expected."""
    found = []
    for path in differences(golden, replay)[:MAX_LISTED]:
        name, before, after = format_path(path[skip:] or path), golden.get(path), replay.get(path)
        if path not in replay:
            says = f"missing; {'expected is' if put_right else 'it was'} {quote_value(before)}"
        elif path not in golden:
            says = f"{quote_value(after)}; {'it is not expected' if put_right else 'it was not there before'}"
        elif before is TRUNCATED or after is TRUNCATED:
            says = "too large to compare"
        else:
            says = f"{quote_value(after)} instead of {quote_value(before)}"
        found.append(Divergence(dimension, name, before, after, f"{about}: {name} is {says}", *seqs))
    return found


def quote_value(value: Any) -> str:
    """A value as a sentence quotes it."""
    short = shorten(value, 80)
    if isinstance(value, str):
        return f"“{short}”"
    return "empty" if value is None else short if isinstance(short, str) else json.dumps(short, ensure_ascii=False)
