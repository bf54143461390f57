"""The session page: the first part with its details, and the parts that follow."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from flask import g, url_for

from app.formats.ids import parse_id
from app.models import AgentSession
from app.services.chats import store as chat_store
from app.services.feedback import lists as feedback_lists
from app.services.sessions import event_windows
from app.services.sessions import store as session_store
from app.services.sessions.event_windows import Event, SessionPart
from app.services.sessions.events import format_bytes, full_size
from app.views.format import short_id, with_version
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
    session = found.session
    if after is None:
        part, outline = event_windows.read_first(session_id, actor=g.actor)
    else:
        part, outline = event_windows.read_part(session_id, after, actor=g.actor), []
    turns = _turns(found, part)
    whole = part.first and part.following is None
    if whole and session.chat_id:
        messages = chat_store.messages_of(session.chat_id, actor=g.actor, session_id=session_id)
        transcript_turns.add_message_ids(turns, messages)
    rows = feedback_lists.feedback_about(actor=g.actor, session_id=session_id)
    notes = [build_note(row, linked=within_admin) for row in rows]
    left = attach_notes(turns, notes, whole=whole)
    links = addresses(session_id, within_admin)
    about, later = (left, []) if whole else _split_notes(left, outline, links["own_url"])
    return {
        "found": found,
        "session": session,
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
        "panel_turns": PANEL_TURNS,
        "promotable": within_admin and _promotable(session, outline or part.events),
        **_knowledge_loaded(part.events),
        **_facts(session, within_admin=within_admin),
        **links,
    }


def _knowledge_loaded(events: Sequence[Event]) -> dict[str, Any]:
    loaded = [event.payload for event in events if event.event_type == "context.loaded"]
    return {
        "loaded": loaded[0] if loaded else None,
        "loaded_rows": load_known_rows(_joined(loaded)) if loaded and g.actor.is_admin else [],
    }


def _facts(session: AgentSession, *, within_admin: bool) -> dict[str, Any]:
    """How large the session is, and what it came to as a replay."""
    return {
        "size": format_bytes(session.event_bytes) if session.event_bytes >= LARGE_SESSION else None,
        "full": full_size(session),
        "replay_of": parse_id(session.eval_source or ""),
        "replayed": _replayed(session) if within_admin and session.eval_source is not None else None,
    }


def _replayed(session: AgentSession) -> dict[str, Any]:
    """What a replay came to. Its verdict is None while it has none."""
    result = session.meta.get("eval_result") or {}
    shown = {"verdict": "verdict", "reason": "reason", "accuracy": "overall_accuracy"}
    return {name: result.get(key) for name, key in shown.items()} | {"run_id": session.eval_run_id}


def _promotable(session: AgentSession, events: Sequence[Event]) -> bool:
    """Whether the page offers to make the session golden. Nobody is asked for what would be refused."""
    fits = session.status == "completed" and session.golden_set is None and session.eval_source is None
    return fits and g.actor.is_admin and any(event.event_type == "user.message" for event in events)


def addresses(session_id: UUID, within_admin: bool) -> dict[str, Any]:
    """Return the addresses of the session and its events for the reader."""
    endpoint = "sessions.detail" if within_admin else "sessions.own_detail"
    own_url = url_for(endpoint, session_id=session_id)
    return {"own_url": own_url, "events_url": f"{own_url}/events/", "within_admin": within_admin}


def read_more(session_id: UUID, after: str, *, within_admin: bool = True) -> dict[str, Any]:
    """The part that follows, with the feedback that belongs into it."""
    found = session_store.get_session(session_id, actor=g.actor)
    part = event_windows.read_part(session_id, after, actor=g.actor)
    turns = _turns(found, part)
    rows = feedback_lists.feedback_about(actor=g.actor, session_id=session_id)
    attach_notes(turns, [build_note(row, linked=within_admin) for row in rows], whole=False)
    return {"turns": turns, "part": part, **addresses(session_id, within_admin)}


def _turns(found: Any, part: SessionPart) -> list[Turn]:
    version = f"v{found.agent_version}" if found.agent_version else ""
    steps = transcript_turns.session_steps(part.events, version=version, answers=part.answers)
    turns = transcript_turns.build_turns(steps, person=found.person or "someone", agent=found.agent)
    name_changed_records(turns)
    return turns


def _joined(loaded: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All rows that the prompts of a session held, each once."""
    ids = [row for payload in loaded if isinstance(payload.get("row_ids"), list) for row in payload["row_ids"]]
    return {"row_ids": list(dict.fromkeys(map(str, ids)))}


def _split_notes(
    notes: Sequence[Note], outline: Sequence[Event], own_url: str
) -> tuple[list[Note], list[tuple[str, Note]]]:
    """Split notes that are beside no turn here: those about the whole, and those further on with their address."""
    where = {name: event.id for event in outline for name in transcript_turns.event_ids(event)}
    about: list[Note] = []
    later: list[tuple[str, Note]] = []
    for note in notes:
        event_id = next((where[name] for name in note.ids if name in where), None)
        if event_id is None:
            about.append(note)
        else:
            later.append((f"{own_url}?at={event_id}#e-{short_id(event_id)}", note))
    return about, later


def read_event(session_id: UUID, event_id: UUID, *, within_admin: bool = True) -> dict[str, Any]:
    """One event with all that it holds: a message's text, a call's arguments, a result's output."""
    event = event_windows.get_event(session_id, event_id, actor=g.actor)
    payload = event.payload
    names = {"tool.call": "arguments", "tool.result": "output", "user.message": "text", "agent.message": "text"}
    value = transcript_turns.parse_output(payload.get(names.get(event.event_type, ""), payload))
    return {"event": event, "value": value, **addresses(session_id, within_admin)}
