"""The volume strip: the last 90 days of feedback as bars, drawn by the server."""

from collections.abc import Iterable
from datetime import date
from typing import Any

from app.services.feedback.volume import Day

STEP = 10
BAR = 8
HEIGHT = 40
TALLEST = 36
# From the bottom up.
STACK = (("negative", "u-bneg"), ("positive", "u-bpos"), ("neutral", "u-bneu"))


def draw_chart(days: list[Day], since: date | None, until: date | None) -> dict[str, Any]:
    """Return the chart: `paths` are the bars of each rating, `chosen` is where the days of the filter begin and how
    wide they are."""
    peak = max(days, key=lambda day: day.total)
    return {
        "label": _label(days, peak),
        "span": f"{_short(days[0].day)} – {_short(days[-1].day)}",
        "days": days,
        "paths": [(css, _bars(days, place, peak.total)) for place, (_, css) in enumerate(STACK)],
        "chosen": _chosen(days, since, until),
        "width": STEP * len(days),
        "height": HEIGHT,
    }


def _bars(days: Iterable[Day], place: int, peak: int) -> str:
    """One rating's bars in one path, each standing on what is below it."""
    parts = []
    for index, day in enumerate(days):
        counts = [getattr(day, rating) for rating, _ in STACK]
        if counts[place]:
            low = HEIGHT - TALLEST * sum(counts[:place]) / peak
            high = TALLEST * counts[place] / peak
            parts.append(f"M{index * STEP + 1} {low:.1f}v-{high:.1f}h{BAR}v{high:.1f}z")
    return "".join(parts)


def _chosen(days: list[Day], since: date | None, until: date | None) -> tuple[int, int] | None:
    """The part that the list is narrowed to; None when it is not, or to days outside."""
    if since is None and until is None:
        return None
    inside = [i for i, day in enumerate(days) if (not since or day.day >= since) and (not until or day.day <= until)]
    return (inside[0] * STEP, len(inside) * STEP) if inside else None


def _label(days: list[Day], peak: Day) -> str:
    start = f"Feedback per day over the last {len(days)} days"
    if not peak.total:
        return f"{start}: none"
    return f"{start}: a peak of {peak.total:,} on {peak.day.day} {peak.day:%B}, {days[-1].total:,} today"


def _short(day: date) -> str:
    return f"{day.day} {day:%b}"
