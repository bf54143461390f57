"""The session page: the first part with its details, and the parts that follow."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from flask import g, url_for

from app.formats.ids import parse_id
from app.models import AgentSession
from app.services.chats import store as chat_store
from app.services.feedback import lists as feedback_lists
from app.services.sessions import paging as session_paging
from app.services.sessions import store as session_store
from app.services.sessions.budget import format_bytes, full_size
from app.services.sessions.event_windows import Event
from app.services.sessions.paging import SessionPart
from app.views.format import short_id
from app.views.layout.tabs import with_version
from app.views.transcript import timeline
from app.views.transcript import turns as transcript_turns
from app.views.transcript.notes import Note, attach_notes, build_note, load_known_rows, name_changed_records
from app.views.transcript.turns import Turn

PANEL_TURNS = 8
# From so many bytes on, a page says how large a session is.
LARGE_SESSION = 1_000_000


def read_session(session_id: UUID, *, within_admin: bool = True, after: str | None = None) -> dict[str, Any]:
    """What both the page and the panel show. With `after`, the transcript begins there. At most six queries."""
    found = session_store.get_session(session_id, actor=g.actor)
    part, outline = _read(session_id, after)
    turns = _turns(found, part)
    whole = part.first and part.following is None
    if whole and found.session.chat_id:
        said = chat_store.messages_of(found.session.chat_id, actor=g.actor, session_id=session_id)
        transcript_turns.add_message_ids(turns, said)
    rows = feedback_lists.feedback_about(actor=g.actor, session_id=session_id)
    notes = [build_note(row, linked=within_admin) for row in rows]
    left = attach_notes(turns, notes, whole=whole)
    about, later = (left, []) if whole else _split_notes(left, outline, session_id, within_admin)
    loaded = [event.payload for event in part.events if event.event_type == "context.loaded"]
    return {
        "found": found,
        "session": found.session,
        "agent": with_version(found.agent, found.agent_version),
        "turns": turns,
        "part": part,
        "about": about,
        "later": later,
        "feedback": rows,
        "notes": notes,
        "timeline": timeline.build_timeline(outline),
        "outlined": len(outline),
        "tool_calls": sum(event.event_type == "tool.call" for event in outline),
        "loaded": loaded[0] if loaded else None,
        "loaded_rows": load_known_rows(_joined(loaded)) if loaded and g.actor.is_admin else [],
        "size": format_bytes(found.session.event_bytes) if found.session.event_bytes >= LARGE_SESSION else None,
        "full": full_size(found.session),
        "replay_of": parse_id(found.session.eval_source or ""),
        "replayed": _replayed(found) if within_admin else None,
        "panel_turns": PANEL_TURNS,
        "promotable": within_admin and _promotable(found.session, outline or part.events),
        **addresses(session_id, within_admin),
    }


def _replayed(found: Any) -> dict[str, Any] | None:
    """What a replay came to: its verdict, or None while it has none. Nothing for other sessions."""
    session = found.session
    if session.eval_source is None:
        return None
    result = session.meta.get("eval_result") or {}
    return {
        "verdict": result.get("verdict"),
        "reason": result.get("reason"),
        "accuracy": result.get("overall_accuracy"),
        "run_id": session.eval_run_id,
    }


def _promotable(session: AgentSession, events: Sequence[Event]) -> bool:
    """Whether the page offers to make the session golden. Nobody is asked for what would be refused."""
    fits = session.status == "completed" and session.golden_set is None and session.eval_source is None
    return fits and g.actor.is_admin and any(event.event_type == "user.message" for event in events)


def addresses(session_id: UUID, within_admin: bool) -> dict[str, Any]:
    """Return the addresses of the session and its events for the reader."""
    endpoint = "sessions.detail" if within_admin else "sessions.own_detail"
    own_url = url_for(endpoint, session_id=session_id)
    return {"own_url": own_url, "events_url": f"{own_url}/events/", "within_admin": within_admin}


def _read(session_id: UUID, after: str | None) -> tuple[SessionPart, list[Event]]:
    if after is None:
        return session_paging.read_first(session_id, actor=g.actor)
    return session_paging.read_part(session_id, after, actor=g.actor), []


def read_more(session_id: UUID, after: str, *, within_admin: bool = True) -> dict[str, Any]:
    """The part that follows, with the feedback that belongs into it."""
    found = session_store.get_session(session_id, actor=g.actor)
    part = session_paging.read_part(session_id, after, actor=g.actor)
    turns = _turns(found, part)
    rows = feedback_lists.feedback_about(actor=g.actor, session_id=session_id)
    attach_notes(turns, [build_note(row, linked=within_admin) for row in rows], whole=False)
    return {"turns": turns, "part": part, **addresses(session_id, within_admin)}


def _turns(found: Any, part: SessionPart) -> list[Turn]:
    turns = transcript_turns.build_turns(
        part.events,
        person=found.person or "somebody",
        agent=found.agent,
        version=f"v{found.agent_version}" if found.agent_version else "",
        answers=part.answers,
    )
    name_changed_records(turns)
    return turns


def _joined(loaded: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All rows that the prompts of a session held, each once."""
    ids = [row for payload in loaded if isinstance(payload.get("row_ids"), list) for row in payload["row_ids"]]
    return {"row_ids": list(dict.fromkeys(map(str, ids)))}


def _split_notes(
    notes: Sequence[Note], outline: Sequence[Event], session_id: UUID, within_admin: bool
) -> tuple[list[Note], list[tuple[str, Note]]]:
    """Split notes that are beside no turn here: those about the whole, and those further on with their address."""
    own_url = addresses(session_id, within_admin)["own_url"]
    where = {name: event for event in outline for name in transcript_turns.event_ids(event)}
    about: list[Note] = []
    later: list[tuple[str, Note]] = []
    for note in notes:
        event = next((where[name] for name in note.ids if name in where), None)
        if event is not None:
            later.append((f"{own_url}?at={event.id}#e-{short_id(event.id)}", note))
        else:
            about.append(note)
    return about, later


def read_event(session_id: UUID, event_id: UUID, *, within_admin: bool = True) -> dict[str, Any]:
    """One event with all that it holds: a message's text, a call's arguments, a result's output."""
    event = session_paging.get_event(session_id, event_id, actor=g.actor)
    payload = event.payload
    names = {"tool.call": "arguments", "tool.result": "output", "user.message": "text", "agent.message": "text"}
    value = transcript_turns.parse_output(payload.get(names.get(event.event_type, ""), payload))
    return {"event": event, "value": value, **addresses(session_id, within_admin)}
