"""One value of a query string: read as what it should be, or refused with a sentence."""

from __future__ import annotations

import re
from datetime import date
from uuid import UUID

from app.errors import Invalid
from app.formats.ids import parse_id

SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,119}")


def refuse(name: str, sentence: str) -> Invalid:
    return Invalid.of({name: sentence})


def read_choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise refuse(name, f"Use one of {', '.join(allowed)}.")
    return value


def read_text(name: str, value: str) -> str:
    if len(value) > 256 or "\x00" in value or any("\ud800" <= sign <= "\udfff" for sign in value):
        raise refuse(name, "At most 256 characters of plain text.")
    return value


def read_number(name: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value, re.ASCII):
        raise refuse(name, "A whole number such as 3.")
    return int(value)


def read_seconds(name: str, value: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}([.][0-9]{1,3})?", value, re.ASCII):
        raise refuse(name, "Seconds such as 30 or 1.5.")
    return float(value)


def read_slug(name: str, value: str) -> str:
    if not SLUG.fullmatch(value):
        raise refuse(name, "A short name in small letters, such as deal-analyst.")
    return value


def read_id(name: str, value: str) -> UUID:
    found = parse_id(value)
    if found is None:
        raise refuse(name, "An id like 6f0a1c52-3f1e-4c8f-9a53-0c8f8a1d2b3c.")
    return found


def read_day(name: str, value: str) -> date:
    try:
        if not re.fullmatch(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}", value, re.ASCII):
            raise ValueError
        return date.fromisoformat(value)
    except ValueError:
        raise refuse(name, "A day like 2026-03-31.") from None
