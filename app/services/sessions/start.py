"""Work for agents that run here: started, stopped and followed.

A run is a pending session. The messages to the agent are in its metadata as `turns`; the runtime writes each as a
`user.message` when it begins with it. Pages show its events, and its draft while the agent writes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from app.actor import Actor
from app.db import db
from app.errors import Forbidden, Invalid, NotFound, Refused
from app.formats import session_limits as limits
from app.models import Agent, AgentSession, SessionDraft
from app.services import audit
from app.services.agents import versions
from app.services.sessions.events import lock_for_events
from app.services.sessions.store import OPEN_STATUSES, NewSession, create_session, finish_session, title_of

MAX_TURNS = 50


@dataclass(frozen=True)
class Progress:
    """How far a run is: its status, how many events it has, why it failed, and the answer so far."""

    session_id: UUID
    status: str
    event_count: int
    error: str | None
    stopping: bool
    created_at: datetime
    draft: str

    @property
    def open(self) -> bool:
        return self.status in OPEN_STATUSES


# The columns of a Progress, and the draft that belongs to the session.
PROGRESS: tuple[Any, ...] = (
    AgentSession.id, AgentSession.status, AgentSession.event_count, AgentSession.error,
    AgentSession.cancel_requested_at.is_not(None) & (AgentSession.status == "running"), AgentSession.created_at,
    func.coalesce(SessionDraft.text, ""),
)  # fmt: skip
OWN_DRAFT = (SessionDraft.tenant_id == AgentSession.tenant_id) & (SessionDraft.session_id == AgentSession.id)


def start_run(
    agent: str,
    turns: Sequence[str],
    *,
    actor: Actor,
    turn_id: str | None = None,
    title: str | None = None,
    metadata: dict[str, Any] | None = None,
    **fields: Any,
) -> AgentSession:
    """Ask an agent to answer these messages, one after the other. In a chat, `turn_id` names the turn that is
    answered: earlier turns are what the agent knows, and its answer joins the chat. `fields` are of the session."""
    said = [text.strip() for text in turns if text.strip()]
    if not said or len(said) > MAX_TURNS:
        raise Invalid.of({"message": "Say something."})
    if any(len(text) > limits.MESSAGE // 4 for text in said):
        raise Invalid.of({"message": f"At most {limits.MESSAGE // 4:,} characters."})
    marks = (metadata or {}) | {"turns": said} | ({"turn_id": turn_id} if turn_id else {})
    slug = runnable_agent(agent, actor=actor).slug
    new = NewSession(agent=slug, title=title or title_of(said[0]), marks=marks, **fields)
    return create_session(new, actor=actor)[0]


def runnable_agent(agent: str, *, actor: Actor) -> Agent:
    """The agent of that name, if it can be started from here."""
    found = versions.find_agent(agent, actor=actor)
    if found is None:
        raise NotFound(f"There is no agent {agent[:120]} in this workspace.")
    if found.archived_at is not None:
        raise Refused(f"{found.name} is archived; restore it first.")
    if found.kind == "external":
        raise Refused(f"{found.name} runs elsewhere and reports its sessions; it cannot be started from here.")
    return found


def stop_run(session_id: UUID, *, actor: Actor) -> AgentSession:
    """Stop a run: at once while it waits, at its next step while it runs. Its person or an admin may."""
    session = lock_for_events(session_id, actor=actor)
    if session.created_by != actor.id and not actor.is_admin:
        raise Forbidden("Only who asked for this, or an admin, stops it.")
    if session.status == "pending" or (session.status == "running" and session.lease_owner is None):
        return finish_session(session_id, "cancelled", actor=actor)
    if session.status != "running":
        raise Refused(f"This session is {session.status} already.", current=session.status)
    if session.cancel_requested_at is None:
        session.cancel_requested_at = datetime.now(UTC)
        db.session.flush()
        audit.record(actor, "session.stop_requested", "session", session.id)
    return session


def progress_of(session_id: UUID, *, actor: Actor) -> Progress:
    """How far a run is. One query."""
    row = db.session.execute(
        select(*PROGRESS)
        .outerjoin(SessionDraft, OWN_DRAFT)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id)
    ).one_or_none()
    if row is None:
        raise NotFound("There is no such session in this workspace.")
    return Progress(*row)
