"""Small figures of evals: a spark line, a share, an interval."""

from collections.abc import Sequence

WIDTH, HEIGHT, EDGE = 72, 18, 3


def spark_points(values: Sequence[float]) -> list[tuple[float, float]]:
    """Points of a line in a box of 72 × 18, the worst at the bottom and the best at the top. One value is no course."""
    if len(values) < 2:
        return []
    low, high = min(values), max(values)
    spread = (high - low) or 1.0
    step = (WIDTH - 2 * EDGE) / (len(values) - 1)
    rise = HEIGHT - 2 * EDGE
    return [
        (round(EDGE + place * step, 1), round(HEIGHT - EDGE - (value - low) / spread * rise, 1))
        for place, value in enumerate(values)
    ]
