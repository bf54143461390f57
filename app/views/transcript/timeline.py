"""A session's time as bars: thinking, tools, writes. Pure; the template only draws."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from app.views.transcript.turns import WRITES, Event, _results

GAP = 1.2
GAPS = 30.0
LEAST = 0.4
NEAR = 0.1
SHORTEST = 0.001
LANES = ("model", "tools", "writes")


@dataclass(frozen=True)
class Bar:
    """One stretch of work, in percent of the picture's width."""

    lane: str
    x: float
    width: float


@dataclass
class Timeline:
    """`seconds` is how long each lane worked; waiting for the person is left out."""

    bars: list[Bar] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LANES, 0.0))
    total: float = 0.0

    @property
    def lanes(self) -> list[tuple[str, int, float]]:
        """Name, row and seconds of each lane that did something."""
        used = [lane for lane in LANES if any(bar.lane == lane for bar in self.bars)]
        return [(lane, row, self.seconds[lane]) for row, lane in enumerate(used)]


Stretch = tuple[str, float, float]


def build_timeline(events: Sequence[Event]) -> Timeline | None:
    """The picture, or None when there is no time to show."""
    rounds = [found for found in (_stretches(round_) for round_ in _rounds(events)) if found]
    total = sum(max(end for _, _, end in found) for found in rounds)
    if total < SHORTEST:
        return None
    timeline = Timeline(total=total)
    # Many rounds leave less room between them, never none for the work itself.
    gap = min(GAP, GAPS / max(1, len(rounds) - 1))
    scale = (100 - gap * (len(rounds) - 1)) / total
    left = 0.0
    for found in rounds:
        for lane, start, end in found:
            width = max(LEAST, (end - start) * scale)
            x = min(left + start * scale, 100 - width)
            timeline.bars.append(Bar(lane, round(x, 2), round(width, 2)))
            timeline.seconds[lane] += end - start
        left += max(end for _, _, end in found) * scale + gap
    timeline.bars = _joined(timeline.bars)
    return timeline


def _joined(bars: Sequence[Bar]) -> list[Bar]:
    """Bars that touch are one to the eye, and a long session has thousands of them."""
    joined: dict[str, list[Bar]] = {}
    for bar in sorted(bars, key=lambda bar: bar.x):
        lane = joined.setdefault(bar.lane, [])
        if lane and bar.x <= lane[-1].x + lane[-1].width + NEAR:
            last = lane.pop()
            end = max(last.x + last.width, bar.x + bar.width)
            bar = Bar(bar.lane, last.x, round(end - last.x, 2))
        lane.append(bar)
    return [bar for lane in joined.values() for bar in lane]


def _rounds(events: Sequence[Event]) -> list[list[Event]]:
    """Split events at each user message; those before the first are a round of their own."""
    rounds: list[list[Event]] = [[]]
    for event in events:
        if event.event_type == "user.message" and rounds[-1]:
            rounds.append([])
        rounds[-1].append(event)
    return rounds


def _stretches(events: Sequence[Event]) -> list[Stretch]:
    """What was busy when, in seconds since the round began."""
    results = _results(events)
    begin = events[0].occurred_at if events else None
    found: list[Stretch] = []
    free = 0.0
    for event in events:
        if begin is None:
            break
        at = _since(begin, event.occurred_at)
        if event.event_type in {"tool.call", "agent.message"} and at > free:
            found.append(("model", free, at))
        if event.event_type == "tool.call":
            result = results.get(str(event.payload.get("id")))
            end = max(at, _since(begin, result.occurred_at)) if result else at
            found.append(("tools", at, end))
            free = max(free, end)
        elif event.event_type in WRITES:
            found.append(("writes", at, at))
        if event.event_type not in WRITES:
            free = max(free, at)
    return found


def _since(begin: datetime, at: datetime) -> float:
    return max(0.0, (at - begin).total_seconds())
