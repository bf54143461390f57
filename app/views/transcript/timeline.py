"""A session's time as bars: thinking, tools, writes. Pure; the template only draws."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.services.sessions.event_windows import Event
from app.views.transcript.turns import WRITES, results_by_call

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


def build_timeline(events: Sequence[Event]) -> Timeline | None:
    """The picture, or None when there is no time to show."""
    rounds = [found for found in (_stretches(one) for one in _rounds(events)) if found]
    lengths = [max(end for _, _, end in found) for found in rounds]
    timeline = Timeline(total=sum(lengths))
    if timeline.total < SHORTEST:
        return None
    # Many rounds leave less room between them, never none for the work itself.
    gap = min(GAP, GAPS / max(1, len(rounds) - 1))
    scale = (100 - gap * (len(rounds) - 1)) / timeline.total
    left = 0.0
    for found, length in zip(rounds, lengths, strict=True):
        for lane, start, end in found:
            width = max(LEAST, (end - start) * scale)
            x = min(left + start * scale, 100 - width)
            timeline.bars.append(Bar(lane, round(x, 2), round(width, 2)))
            timeline.seconds[lane] += end - start
        left += length * scale + gap
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


def _stretches(events: Sequence[Event]) -> list[tuple[str, float, float]]:
    """What was busy when, in seconds since the round began."""
    results = results_by_call(events)
    found: list[tuple[str, float, float]] = []
    free = 0.0
    for event in events:
        at = end = _seconds(events[0], event)
        if event.event_type in WRITES:
            found.append(("writes", at, at))
            continue
        if event.event_type in {"tool.call", "agent.message"} and at > free:
            found.append(("model", free, at))
        if event.event_type == "tool.call":
            result = results.get(str(event.payload.get("id")))
            end = max(at, _seconds(events[0], result)) if result else at
            found.append(("tools", at, end))
        free = max(free, end)
    return found


def _seconds(first: Event, event: Event) -> float:
    return max(0.0, (event.occurred_at - first.occurred_at).total_seconds())
