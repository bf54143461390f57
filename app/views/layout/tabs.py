"""Agent Review: where its address leads, and what its tabs share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from flask import Flask, g, redirect, request, url_for
from werkzeug.wrappers import Response

from app.formats.ids import parse_id
from app.security.access import access
from app.services.agents import versions
from app.services.feedback.lists import FeedbackRow
from app.services.sessions import transcript as session_transcript
from app.services.sessions.transcript import KnownRow
from app.views import format
from app.views.feedback.summary import summarise
from app.views.format import value_line
from app.views.layout import bp
from app.views.lists import Field
from app.views.transcript import turns as transcript_turns
from app.views.transcript.turns import Turn

MAX_ROWS = 200
MAX_NOTE_LENGTH = 400


@dataclass(frozen=True)
class Note:
    """Feedback in the margin of a transcript."""

    rating: str
    text: str
    who: str
    at: Any
    href: str | None
    status: str
    quoted: bool = True


@bp.get("/admin/agent-review")
@bp.get("/admin/agent-review/")
@access("admin")
def agent_review() -> Response:
    """The queue is where an admin begins."""
    return redirect(url_for("feedback.index"), 303)


@bp.get("/admin/conversations")
@bp.get("/admin/conversations/")
@bp.get("/admin/conversations/<path:rest>")
@access("admin")
def moved_conversations(rest: str = "") -> Response:
    """Where conversations used to be."""
    target = url_for("conversations.index") + (f"/{rest}" if rest else "")
    query = request.query_string.decode("ascii", "replace")
    return redirect(f"{target}?{query}" if query else target, 301)


def agent_menu() -> Field:
    """The workspace's agents as a filter. One query."""
    agents = [(row.slug, row.slug) for row in versions.list_agents(actor=g.actor)]
    return {"name": "agent", "label": "agent", "options": agents}


def with_version(slug: str | None, version: int | None) -> str:
    return " ".join(word for word in (slug, f"v{version}" if version else "") if word)


def notes_of(rows: Iterable[FeedbackRow], *, linked: bool = True) -> list[tuple[list[str], Note]]:
    """Feedback rows as notes, each with the marks of the turn it means, the most exact first."""
    return [(marks_of(row), _note(row, linked)) for row in rows]


def _note(row: FeedbackRow, linked: bool) -> Note:
    words = summarise(row)
    who = row.author or "somebody"
    if row.origin == "machine":
        who = f"machine, {row.confidence:.2f}"
    href = url_for("feedback.detail", feedback_id=row.id) if linked else None
    text = value_line(words.quote or words.lead, MAX_NOTE_LENGTH)
    state = f"{row.status}, taken back" if row.retracted else row.status
    return Note(row.rating, text, who, row.created_at, href, state, quoted=bool(words.quote))


def marks_of(row: FeedbackRow) -> list[str]:
    """What a feedback row says about its place: its event, its message, its turn's answer."""
    found = [row.event_id, row.message_id, f"{row.turn_id}:agent" if row.turn_id else None, row.turn_id]
    return [mark for mark in found if mark]


def rows_loaded(payload: dict[str, Any] | None) -> list[KnownRow]:
    """The knowledge that a `context.loaded` event names, as far as it is still there."""
    named = (payload or {}).get("row_ids")
    ids = [parse_id(str(value)) for value in named[:MAX_ROWS]] if isinstance(named, list) else []
    return session_transcript.load_knowledge([value for value in ids if value], actor=g.actor)


def call_by_name(turns: Sequence[Turn]) -> None:
    """Give the changed records of a transcript their names."""
    ids = [parse_id(text) for text in transcript_turns.records_in(turns)]
    transcript_turns.name_records(
        turns, session_transcript.record_names([value for value in ids if value], actor=g.actor)
    )


def register(app: Flask) -> None:
    app.jinja_env.globals["scope_options"] = format.scope_options
