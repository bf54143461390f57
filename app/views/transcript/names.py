"""Ids of records in sentences, read as the records' names."""

from collections.abc import Iterable

from flask import g

from app.formats.ids import parse_id
from app.services.sessions import transcript as session_transcript

MAX_IDS = 500


class RecordNames:
    """What the records in some texts are called. One query for all of them."""

    def __init__(self, texts: Iterable[str | None]) -> None:
        ids = dict.fromkeys(found for text in texts if text for found in session_transcript.RECORD_ID.findall(text))
        known = [one for text in list(ids)[:MAX_IDS] if (one := parse_id(text))]
        self.names = session_transcript.record_names(known, actor=g.actor)

    def told(self, text: str | None) -> str:
        """The text with names where it had ids; an id without a name stays."""
        return session_transcript.replace_ids(text or "", self.names)
