"""When things happen in the demo. Days are working days before now; how long an answer takes depends on its length."""

import re
from collections.abc import Sequence
from datetime import datetime, time, timedelta
from typing import Any

DATE = re.compile(r"\{iso (-?\d+)\}")
MINUTES = {"m": 1, "h": 60}
SATURDAY = 5
LONGEST_ANSWER_MS = 6000
# An effect follows its result at once, and so does the end the last answer.
AT_ONCE_MS = 6

Events = Sequence[tuple[str, dict[str, Any]]]


def sort_key(when: str) -> tuple[int, float]:
    """The place of a moment in the order of all, whatever today is."""
    span, _, clock = when.partition(" ")
    if not clock:
        return 0, -int(span[:-1]) * MINUTES[span[-1]]
    hour, minute = clock.split(":")
    return -int(span[:-1]), int(hour) * 60 + int(minute)


def resolve_time(when: str, now: datetime) -> datetime:
    """Resolve `3h`, `25m`, or `2d 09:40`: two working days ago at that time of day."""
    span, _, clock = when.partition(" ")
    if not clock:
        return now - timedelta(minutes=int(span[:-1]) * MINUTES[span[-1]])
    day = now
    for _ in range(int(span[:-1])):
        day -= timedelta(days=1)
        while day.weekday() >= SATURDAY:
            day -= timedelta(days=1)
    hour, minute = clock.split(":")
    return datetime.combine(day.date(), time(int(hour), int(minute), 7), now.tzinfo)


def fill_dates(text: str, now: datetime) -> str:
    """Replace each `{iso n}` by the date n days ago."""
    return DATE.sub(lambda found: (now - timedelta(days=int(found[1]))).date().isoformat(), text)


def assign_times(events: Events, began: datetime) -> tuple[list[datetime], int]:
    """Return the time of each event, and the agent's working time in milliseconds. Equal events get equal times."""
    at, work, prompts = began, 0, 0
    times: list[datetime] = []
    for kind, payload in events:
        spent = _duration_ms(kind, payload) if times else 0
        if kind == "user.message":
            prompts += 1
            at += timedelta(seconds=40 + len(payload["text"]) % 90 if prompts > 1 else 0)
        at += timedelta(milliseconds=spent)
        work += spent
        times.append(at)
    return times, work


def _duration_ms(kind: str, payload: dict[str, Any]) -> int:
    size = len(str(payload))
    if kind == "tool.call":
        return 380 + 7 * size % 420
    if kind == "tool.result":
        return 60 + 11 * size % 340
    if kind == "agent.message":
        return 520 + min(9 * len(payload["text"]), LONGEST_ANSWER_MS)
    return 0 if kind == "user.message" else AT_ONCE_MS
