"""How times, numbers and ids read. The server speaks UTC; the browser puts the viewer's zone into the title."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from app.services.privacy import A_MEMBER

MINUTE, HOUR, DAY, MONTH, YEAR = 60, 3600, 86400, 30 * 86400, 365 * 86400
# Up to each limit in seconds, the unit that is said and how long it is.
STEPS = ((HOUR, "min", MINUTE), (DAY, "h", HOUR), (MONTH, "d", DAY), (YEAR, "mo", MONTH))


def now() -> datetime:
    return datetime.now(UTC)


def age(at: datetime, since: datetime | None = None) -> str:
    """`3 h`: how long ago, in one unit. What is less than a minute away, on either side, is `now`."""
    seconds = ((since or now()) - at).total_seconds()
    if abs(seconds) < MINUTE:
        return "now"
    unit, length = next(((unit, length) for limit, unit, length in STEPS if abs(seconds) < limit), ("y", YEAR))
    return f"{int(abs(seconds) // length)} {unit}"


def ago(at: datetime, since: datetime | None = None) -> str:
    """`3 h ago`, `in 2 d` for what is still to come, `just now` in between."""
    text = age(at, since)
    if text == "now":
        return "just now"
    return f"in {text}" if at > (since or now()) else f"{text} ago"


def due(at: datetime, since: datetime | None = None) -> str:
    """`in 2 d` for what is planned, `in less than a minute`, and `due now` from its moment on."""
    seconds = (at - (since or now())).total_seconds()
    if seconds <= 0:
        return "due now"
    return ago(at, since) if seconds >= MINUTE else "in less than a minute"


def exact(at: datetime) -> str:
    return f"{day(at)}, {at.astimezone(UTC):%H:%M:%S} UTC"


def day(at: datetime) -> str:
    at = at.astimezone(UTC)
    return f"{at.day} {at:%b %Y}"


def minute(at: datetime) -> str:
    """`Mon 23 Nov 2026, 07:00`: for what is planned, in UTC."""
    return f"{at.astimezone(UTC):%a} {day(at)}, {at.astimezone(UTC):%H:%M}"


def clock(at: datetime) -> str:
    return f"{at.astimezone(UTC):%H:%M:%S}"


def iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def number(value: float) -> str:
    """`1,204`; a fraction keeps what it has."""
    return f"{value:,}"


def percent(value: float, digits: int = 0) -> str:
    """A share of one as `91 %`."""
    return f"{value * 100:.{digits}f} %"


def duration(milliseconds: float) -> str:
    """`340 ms`, `7.9 s`, `1 m 37 s`, `2 h 5 m`."""
    if milliseconds < 1000:
        return f"{round(milliseconds)} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    if minutes < 60:
        return f"{minutes} m {seconds} s"
    return f"{minutes // 60} h {minutes % 60} m"


def short_id(value: UUID | str) -> str:
    """The last eight characters: ids grow with time, so that their beginnings look alike."""
    return str(value).replace("-", "")[-8:]


def initials(name: str) -> str:
    """`Sam Okafor` → `SO`, `sam@acme.example` → `S`, nobody or somebody hidden → `?`."""
    words = name.split("@")[0].split()
    if not words or name == A_MEMBER:
        return "?"
    return (words[0][0] + (words[-1][0] if len(words) > 1 else "")).upper()


TIME_FILTERS: dict[str, Callable[..., Any]] = {
    "minute": minute,
    "age": age,
    "ago": ago,
    "due": due,
    "exact": exact,
    "day": day,
    "clock": clock,
    "iso": iso,
    "number": number,
    "percent": percent,
    "duration": duration,
    "short_id": short_id,
    "initials": initials,
}
