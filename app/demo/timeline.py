"""When things in a conversation happened. The same events give the same times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

LONGEST_ANSWER = 6000
# An effect follows its result at once, and so does the end the last answer.
AT_ONCE = 6


def timed(events: Sequence[tuple[str, dict[str, Any]]], began: datetime) -> tuple[list[datetime], int]:
    """The time of each event, and the milliseconds of work in all, without the time that a person took to answer."""
    at, work, said = began, 0, 0
    moments: list[datetime] = []
    for kind, payload in events:
        spent = 0 if not moments else _spent(kind, payload)
        if kind == "user.message":
            said += 1
            at += timedelta(seconds=40 + len(payload["text"]) % 90 if said > 1 else 0)
        at += timedelta(milliseconds=spent)
        work += spent
        moments.append(at)
    return moments, work


def _spent(kind: str, payload: dict[str, Any]) -> int:
    """What one event took, in milliseconds: longer words take longer."""
    size = len(str(payload))
    if kind == "tool.call":
        return 380 + 7 * size % 420
    if kind == "tool.result":
        return 60 + 11 * size % 340
    if kind == "agent.message":
        return 520 + min(9 * len(payload["text"]), LONGEST_ANSWER)
    return 0 if kind == "user.message" else AT_ONCE
