"""How far a judge agrees with people who labelled the same cells without seeing its verdicts."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

# Fewer labels say nothing about a judge.
MIN_LABELS = 20
# Usually read as substantial agreement.
RELIABLE_FROM = 0.60
RESAMPLES = 1_000
SEED = 20_240_229
Pair = tuple[bool, bool]
# What a person says and what the judge says.
CELLS: tuple[Pair, ...] = ((True, True), (True, False), (False, True), (False, False))


@dataclass(frozen=True)
class Agreement:
    """Cohen's κ of people's and the judge's labels with its 95 % bootstrap interval. None below the least number of
    labels, and where both always say the same one thing, which makes κ undefined."""

    labels: int
    agreed: int
    kappa: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def reliable(self) -> bool:
        """Whether there are enough blind labels, and the judge agrees with them well beyond chance."""
        return self.kappa is not None and self.kappa >= RELIABLE_FROM

    @property
    def summary(self) -> str:
        if self.labels < MIN_LABELS:
            return f"{self.labels} of {MIN_LABELS} labels"
        if self.kappa is None or self.low is None or self.high is None:
            return "one class only"
        return f"κ {self.kappa:.2f} (95% CI {self.low:.2f} to {self.high:.2f})"


def kappa(pairs: Sequence[Pair]) -> float | None:
    """(p_o − p_e) ÷ (1 − p_e), or None where chance alone agrees always."""
    return _kappa(Counter(pairs))


def _kappa(counts: Mapping[Pair, int]) -> float | None:
    n = sum(counts.values())
    if not n:
        return None
    both, none = counts.get((True, True), 0), counts.get((False, False), 0)
    person, judge = (both + counts.get((True, False), 0)) / n, (both + counts.get((False, True), 0)) / n
    by_chance = person * judge + (1 - person) * (1 - judge)
    return None if by_chance >= 1 - 1e-12 else ((both + none) / n - by_chance) / (1 - by_chance)


def measure_agreement(pairs: Sequence[Pair]) -> Agreement:
    """κ of blind labels, from the least number of them on."""
    counts = Counter(pairs)
    return _measure(tuple(counts[cell] for cell in CELLS))


@lru_cache(maxsize=256)
def _measure(counts: tuple[int, ...]) -> Agreement:
    """The same for how often each pair occurs. Resamples in which κ is undefined are left out."""
    n, agreed = sum(counts), counts[0] + counts[-1]
    value = _kappa(dict(zip(CELLS, counts, strict=True))) if n >= MIN_LABELS else None
    if value is None:
        return Agreement(n, agreed)
    rng = random.Random(SEED)  # noqa: S311 - the same labels give the same interval
    drawn = (_kappa(Counter(rng.choices(CELLS, counts, k=n))) for _ in range(RESAMPLES))
    found = sorted(one for one in drawn if one is not None)
    low, high = (found[min(int(len(found) * share), len(found) - 1)] for share in (0.025, 0.975))
    return Agreement(n, agreed, value, low, high)
