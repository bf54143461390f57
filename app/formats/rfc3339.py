"""Times as they come in: RFC 3339 with an offset, and nothing else."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

AHEAD = timedelta(minutes=5)
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def read_moment(text: Any) -> datetime:
    """RFC 3339 with an offset. `now`, `infinity` and times without a zone, which PostgreSQL would take, are refused."""
    match = RFC3339.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError("Give a time with its offset, such as 2026-03-01T09:30:00Z.")
    day, clock, fraction, offset = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{(fraction or '')[:7]}{offset.upper()}").astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("There is no such time.") from None
    if moment < EARLIEST:
        raise ValueError("Give a time after 1970.")
    return moment


def read_past_moment(text: Any) -> datetime:
    """A time that may have been: clocks differ by minutes, not more."""
    moment = read_moment(text)
    if moment > datetime.now(UTC) + AHEAD:
        raise ValueError("This time is more than 5 minutes in the future.")
    return moment
