"""How many bytes of events one session may hold: the operator's setting, and the refusal of what goes beyond it."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import update

from app.actor import Actor
from app.db import db
from app.errors import Invalid, Problem
from app.formats.session_limits import SESSION_BYTES, STORED_PAYLOAD_BYTES
from app.models import AgentSession
from app.services import audit

# A run that reached the budget still says how it ended.
FOR_THE_END = 1_048_576
_budget = [SESSION_BYTES]


class SessionFull(Problem):
    """The session has no room for these events. None of them was stored."""

    status = 413
    title = "The session is full"

    def __init__(self) -> None:
        most = format_bytes(session_budget())
        sentence = (
            f"This would exceed the session's budget of {most} of events. Nothing was stored. Start a new session."
        )
        super().__init__(sentence, budget_bytes=session_budget())


def full_reason() -> str:
    """Why a run of ours could not go on."""
    return f"The session reached its budget of {format_bytes(session_budget())} of events, so the run could not go on."


def use_budget(most: int) -> None:
    """Apply the operator's setting to this process."""
    _budget[0] = most


def session_budget() -> int:
    return _budget[0]


def check_sizes(sizes: Iterable[tuple[Any, ...]], *, spare: int = 0) -> None:
    """Refuse what was just written where it does not fit: rows with a session's bytes and its largest new payload."""
    for total, largest, *_ in sizes:
        if largest > STORED_PAYLOAD_BYTES:
            raise Invalid(
                f"A payload takes more than {STORED_PAYLOAD_BYTES:,} bytes when it is stored, where numbers such as"
                " 1e300 are written out. Send such numbers as text."
            )
        if total > session_budget() + spare:
            raise SessionFull


def full_size(session: AgentSession) -> str | None:
    """How much of its budget a session uses, where events were refused or would be."""
    if session.full_at is None and session.event_bytes < session_budget():
        return None
    return f"{format_bytes(session.event_bytes)} of {format_bytes(session_budget())}"


def mark_full(session_id: UUID, *, actor: Actor) -> None:
    """Note on a session that events were refused, once."""
    ours = [AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id]
    marked = db.session.scalar(
        update(AgentSession)
        .where(*ours, AgentSession.full_at.is_(None), AgentSession.golden_set.is_(None))
        .values(full_at=datetime.now(UTC))
        .returning(AgentSession.id)
        .execution_options(synchronize_session=False)
    )
    if marked is not None:
        audit.record(actor, "session.filled", "session", session_id, budget=session_budget())


def format_bytes(size: int) -> str:
    """A size as people write it: `64 MB`, `1.5 MB`, `12 KB`."""
    for unit, name in ((1_000_000, "MB"), (1000, "KB")):
        if size >= unit:
            return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{size} bytes"
