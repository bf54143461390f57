"""The margin of a transcript: feedback, the knowledge it had, and the names of changed records."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from flask import g, url_for

from app.formats.ids import parse_id
from app.services.feedback.lists import FeedbackRow
from app.services.sessions import transcript as session_transcript
from app.views.feedback.summary import summarise
from app.views.format import percent, value_line
from app.views.transcript import turns as transcript_turns
from app.views.transcript.turns import Turn

MAX_ROWS = 200
MAX_NOTE_LENGTH = 400


@dataclass(frozen=True)
class Note:
    """Feedback in the margin of a transcript. `ids` name its turn, the most exact first."""

    rating: str
    text: str
    who: str
    at: Any
    href: str | None
    status: str
    quoted: bool = True
    ids: tuple[str, ...] = ()


def build_note(row: FeedbackRow, *, linked: bool = True) -> Note:
    """Return a feedback row as a note."""
    words = summarise(row)
    who = f"Detected, {percent(row.confidence)} confidence" if row.origin == "machine" else row.author or "someone"
    href = url_for("feedback.detail", feedback_id=row.id) if linked else None
    text = value_line(words.quote or words.lead, MAX_NOTE_LENGTH)
    state = f"{row.status}, retracted" if row.retracted else row.status
    return Note(row.rating, text, who, row.created_at, href, state, bool(words.quote), ids_of(row))


def ids_of(row: FeedbackRow) -> tuple[str, ...]:
    """Return the ids of what a row is about: its event, its message, the answer of its turn, its turn."""
    found = (row.event_id, row.message_id, f"{row.turn_id}:agent" if row.turn_id else None, row.turn_id)
    return tuple(name for name in found if name)


def attach_notes(turns: Sequence[Turn], notes: Iterable[Note], *, whole: bool) -> list[Note]:
    """Put each note beside its turn, or in a whole transcript beside the last answer; return the others."""
    last = next((turn for turn in reversed(turns) if turn.agent), turns[-1] if turns else None)
    left: list[Note] = []
    for note in notes:
        turn = transcript_turns.find_turn(turns, note.ids) or (last if whole else None)
        (turn.notes if turn else left).append(note)
    return left


def load_known_rows(payload: dict[str, Any] | None) -> Sequence[Any]:
    """Return the knowledge that a `context.loaded` event names, as far as it still exists."""
    names = (payload or {}).get("row_ids")
    ids = [parse_id(str(value)) for value in names[:MAX_ROWS]] if isinstance(names, list) else []
    return session_transcript.load_knowledge([value for value in ids if value], actor=g.actor)


def name_changed_records(turns: Sequence[Turn]) -> None:
    """Call the changed records of a transcript by their names. Only those that still exist can be opened."""
    parts = [part for turn in turns for part in turn.parts if part.record]
    ids = {found for part in parts if (found := parse_id(part.record))}
    names = session_transcript.record_names(ids, actor=g.actor)
    for part in parts:
        part.known = part.record in names
        part.name = names.get(part.record, part.name)
