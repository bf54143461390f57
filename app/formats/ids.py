"""Ids, names, e-mail addresses and times as people and programs write them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from app.errors import Invalid

UUID_PATTERN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
EMAIL = re.compile(r"[^@\s\x00-\x1f\x7f]{1,64}@[^@\s\x00-\x1f\x7f]{1,189}")
MAX_NAME = 120


def parse_id(text: object) -> UUID | None:
    """Return the UUID that a text spells out, or None.

    Only the form with hyphens counts. Products name their own messages and chats with 32 hex digits, and those are not
    ids of ours.
    """
    return UUID(text) if isinstance(text, str) and UUID_PATTERN.fullmatch(text) else None


def clean_name(text: str, longest: int = MAX_NAME) -> str:
    """One line that can be read, without spaces around it."""
    text = " ".join(text.split())
    if not text or len(text) > longest or not text.isprintable():
        raise Invalid.of({"name": f"Give a name of at most {longest} characters that can be seen."})
    return text


def clean_email(text: str) -> str:
    """An address in lower case. Whether it exists, only a letter could tell."""
    text = text.strip().lower()
    if not EMAIL.fullmatch(text) or not text.isprintable():
        raise Invalid.of({"email": "Give an e-mail address such as sam@example.com."})
    return text


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
