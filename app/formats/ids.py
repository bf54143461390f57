"""Ids, names and e-mail addresses as people and programs write them."""

import re
from uuid import UUID

from app.errors import Invalid

UUID_PATTERN = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
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
        raise Invalid.of({"name": f"Enter a name of up to {longest} visible characters."})
    return text


def clean_email(text: str) -> str:
    """An address in lower case. Whether it exists, only a letter could tell."""
    text = text.strip().lower()
    if not EMAIL.fullmatch(text) or not text.isprintable():
        raise Invalid.of({"email": "Enter an email address such as sam@example.com."})
    return text
