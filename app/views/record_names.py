"""Ids of records in sentences, read as the records' names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from flask import g

from app.services import transcripts
from app.views.agent_review import as_id

_ID = re.compile(r"(?:entity )?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
MOST = 500


class RecordNames:
    """What the records in some texts are called. One query for all of them."""

    def __init__(self, texts: Iterable[str | None]) -> None:
        ids = dict.fromkeys(found for text in texts if text for found in _ID.findall(text))
        known = [one for text in list(ids)[:MOST] if (one := as_id(text))]
        self.names = transcripts.names_of(known, actor=g.actor)

    def told(self, text: str | None) -> str:
        """The text with names where it had ids; an id without a name stays."""
        return _ID.sub(lambda match: self._named(match), text or "")

    def _named(self, match: re.Match[str]) -> str:
        name = self.names.get(match[1])
        return f"“{name}”" if name else match[0]
