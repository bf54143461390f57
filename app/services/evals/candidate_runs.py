"""A candidate whose sessions failed, run again: the same prompt on the agent's current version."""

from __future__ import annotations

from uuid import UUID

from app.actor import Actor
from app.errors import Forbidden, Refused, Unprocessable
from app.evals.grouping import Candidate
from app.models import AgentSession
from app.services import audit
from app.services.evals.candidates import find_candidate
from app.services.evals.golden import lock_session
from app.services.sessions import start as session_start
from app.services.sessions.events import events_of

ALREADY_RUNNING = "This request is running again already."
NOT_NEEDED = "One of its sessions completed or has not ended yet, so there is nothing to run again."


def run_again(session_id: UUID, *, actor: Actor) -> AgentSession:
    """Start an ordinary session with the prompt of a candidate. Once it completed, it can be promoted from there.

    Of two who ask for it at once, one wins.
    """
    if not actor.is_admin or actor.agent_id:
        raise Forbidden("Only an admin runs a candidate again.")
    failed = lock_session(find_candidate(session_id, actor=actor).representative_session_id, actor=actor)
    group = find_candidate(session_id, actor=actor)
    _check_can_run(group, actor)
    kept = {name: failed.meta[name] for name in ("criteria_set_id",) if name in failed.meta}
    session = session_start.start_run(
        group.agent_slug,
        _prompts_of(failed, actor),
        actor=actor,
        session_type=failed.session_type,
        output_type=failed.output_type,
        entity_id=failed.entity_id,
        title=failed.title,
        metadata=kept,
    )
    # Set here and not with the rest: nobody who reports a session may set this mark.
    session.meta = {**session.meta, "rerun_of": str(failed.id)}
    audit.record(actor, "candidate.run_again", "session", session.id, rerun_of=str(failed.id))
    return session


def _check_can_run(group: Candidate, actor: Actor) -> None:
    if group.rerun is not None:
        raise Refused(ALREADY_RUNNING, current=str(group.rerun))
    if group.can_run_again:
        return
    agent = session_start.runnable_agent(group.agent_slug, actor=actor)
    if agent.kind == "endpoint":
        raise Refused(f"{agent.name} is an endpoint, so running this again would repeat its real actions.")
    raise Refused(NOT_NEEDED)


def _prompts_of(failed: AgentSession, actor: Actor) -> list[str]:
    """All that was to be said in the session, as far as it was said before it failed or was planned."""
    planned = [text for text in failed.meta.get("turns") or () if isinstance(text, str)]
    said = [
        str(event.payload["text"]) for event in events_of(failed.id, actor=actor) if event.event_type == "user.message"
    ]
    found = planned or said
    if not found:
        raise Unprocessable("This session has no user message, so there is nothing to run again.")
    return found
