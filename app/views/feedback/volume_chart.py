"""The volume strip: the last 90 days of feedback as bars, drawn by the server."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from app.services.feedback.volume import Day, Volume

STEP = 10
BAR = 8
HEIGHT = 40
TALLEST = 36
# From the bottom up.
STACK = (("negative", "u-bneg"), ("positive", "u-bpos"), ("neutral", "u-bneu"))


@dataclass(frozen=True)
class Strip:
    """`paths` are the bars of each rating, `chosen` is where the days of the address begin and how wide they are."""

    label: str
    span: str
    days: list[Day]
    paths: list[tuple[str, str]]
    chosen: tuple[int, int] | None
    width: int
    height: int = HEIGHT


def draw_chart(volume: Volume, args: Mapping[str, str]) -> Strip:
    days = volume.days
    return Strip(
        label=_label(volume),
        span=f"{_short(days[0].day)} – {_short(days[-1].day)}",
        days=days,
        paths=[(css, _bars(days, place, volume.peak.total)) for place, (_, css) in enumerate(STACK)],
        chosen=_chosen(days, args),
        width=STEP * len(days),
    )


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


def _chosen(days: list[Day], args: Mapping[str, str]) -> tuple[int, int] | None:
    """The part that the address is narrowed to; None when that is all of it or lies outside."""
    since, until = _day(args.get("from")), _day(args.get("to"))
    if since is None and until is None:
        return None
    inside = [i for i, day in enumerate(days) if (not since or day.day >= since) and (not until or day.day <= until)]
    return (inside[0] * STEP, len(inside) * STEP) if inside else None


def _day(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        return None


def _label(volume: Volume) -> str:
    if not volume.total:
        return f"Feedback per day over the last {len(volume.days)} days: none"
    peak, today = volume.peak, volume.days[-1].total
    return (
        f"Feedback per day over the last {len(volume.days)} days: a peak of {peak.total:,} on"
        f" {peak.day.day} {peak.day:%B}, {today:,} today"
    )


def _short(day: date) -> str:
    return f"{day.day} {day:%b}"
