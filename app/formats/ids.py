"""Ids in text."""

import re
from uuid import UUID

UUID_PATTERN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)


def parse_id(text: object) -> UUID | None:
    """Return the UUID that a text spells out, or None.

    Only the form with hyphens counts. Products name their own messages and chats with 32 hex digits, and those are not
    ids of ours.
    """
    return UUID(text) if isinstance(text, str) and UUID_PATTERN.fullmatch(text) else None
