"""Intervals, and what a set of goldens can show."""

from math import sqrt

Z = 1.96


def wilson(successes: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a rate; everything is possible when nothing was counted."""
    if n == 0:
        return 0.0, 1.0
    rate, z2 = successes / n, Z * Z
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = Z * sqrt(rate * (1 - rate) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def lift(fixed: int, broken: int, n: int) -> float | None:
    """(fixed − broken) ÷ n of paired outcomes; None when no golden was exercised."""
    return (fixed - broken) / n if n else None


def lift_interval(fixed: int, broken: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a lift over paired outcomes, after Agresti and Min."""
    middle = (fixed - broken) / (n + 2)
    half = Z * sqrt((fixed + broken + 1) - (fixed - broken) ** 2 / (n + 2)) / (n + 2)
    return max(-1.0, middle - half), min(1.0, middle + half)


def smallest_regression(n: int, *, deterministic: bool = False) -> float | None:
    """The smallest share of broken goldens that a set of n can show; None when even all of them would not.

    Five broken and none fixed is the least that a one-sided sign test calls a regression (p = .031). An agent that
    always answers the same shows one.
    """
    least = 1 if deterministic else 5
    return least / n if n >= least else None
