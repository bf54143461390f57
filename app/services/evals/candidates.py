"""Candidates: requests with negative feedback, to be promoted to goldens, dismissed or run again."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Text, func, literal_column, select
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import distinct_on

from app.actor import Actor
from app.db import db
from app.db.paging import Cursor, Slice, at_most, not_a_cursor
from app.db.queries import ASKING, IDS, Query
from app.errors import Forbidden, Invalid, NotFound, Refused, Stale, Unprocessable
from app.models import Agent, AgentSession, AgentVersion, Feedback, SessionEvent
from app.services import audit
from app.services.evals.golden import lock_session, require_admin
from app.services.evals.golden_lists import can_replay
from app.services.feedback import negative
from app.services.feedback import review as feedback_review
from app.services.sessions import start as session_start
from app.services.sessions.event_windows import events_of

ACTIONS = ("applied", "dismissed")
MAX_GROUPS = 100
MAX_IDS = 200
# The newest complaints that are looked at. A workspace with more open ones has other worries than their order.
SCAN_LIMIT = 5000
MAX_PROMPT_CHARS = 4000
SETTLED = "Someone else already decided on this candidate."


@dataclass(frozen=True)
class Candidate:
    """A request that went wrong. The representative session is that of the latest complaint, or of the latest whose
    session can be golden; `promotable` says whether it can. Where all sessions failed and the agent runs here, the
    request can run again; `rerun` is the session that does so now."""

    prompt: str
    agent_id: UUID
    agent_slug: str
    occurrence_count: int
    feedback_ids: list[UUID]
    representative_session_id: UUID
    last_feedback_at: datetime
    session_ids: frozenset[UUID]
    people: int
    agent_version: int | None
    promotable: bool
    can_run_again: bool
    rerun: UUID | None = None

    @property
    def key(self) -> tuple[int, float, str]:
        """Its place in the list: more complaints first, then the latest."""
        return -self.occurrence_count, -self.last_feedback_at.timestamp(), str(self.feedback_ids[0])


def list_candidates(*, actor: Actor, limit: int = 20, cursor: str | None = None) -> Slice[Candidate]:
    """The candidates with most complaints. Three queries at most."""
    if not actor.is_admin:
        raise Forbidden("Only admins can see what could become golden.")
    groups = _groups(actor)
    after = _read_cursor(cursor) if cursor else None
    left = [one for one in groups if after is None or one.key > after]
    shown = left[: min(max(limit, 1), MAX_GROUPS)]
    following = None
    if len(shown) < len(left):
        # The place right after the last one. New complaints may move others, never this place.
        last = shown[-1]
        following = f"{last.occurrence_count}.{Cursor(True, last.last_feedback_at, last.feedback_ids[0]).text()}"
    return Slice(_with_reruns(shown, actor), following, count=len(groups))


def _read_cursor(given: str) -> tuple[int, float, str]:
    count, _, place = given.partition(".")
    if not re.fullmatch(r"[0-9]{1,9}", count, re.ASCII):
        raise not_a_cursor()
    found = Cursor.parse(place)
    return -int(count), -found.at.timestamp(), str(found.id)


def _with_reruns(groups: Sequence[Candidate], actor: Actor) -> list[Candidate]:
    """Name the rerun that is under way; let one that completed be golden in place of the failed. One query at most."""
    failed = {session_id for one in groups if one.can_run_again for session_id in one.session_ids}
    if not failed:
        return list(groups)
    # Written out as in the index, which PostgreSQL would not recognize with a parameter in it.
    ran_again = literal_column("sessions.metadata ->> 'rerun_of'", Text)
    rows = db.session.execute(
        select(ran_again.label("of"), AgentSession.id, AgentSession.status, AgentVersion.version)
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .where(
            AgentSession.tenant_id == actor.tenant_id,
            sql("sessions.metadata ? 'rerun_of'"),
            ran_again.in_([str(session_id) for session_id in failed]),
            AgentSession.status.in_(("pending", "running", "completed")),
            AgentSession.golden_set.is_(None),
        )
        .order_by(AgentSession.created_at)
    ).all()
    newest = {UUID(row.of): row for row in rows}
    return [_with_rerun(one, newest) for one in groups]


def _with_rerun(one: Candidate, newest: Mapping[UUID, Any]) -> Candidate:
    row = next((newest[session_id] for session_id in one.session_ids if session_id in newest), None)
    if row is None or not one.can_run_again:
        return one
    if row.status != "completed":
        return replace(one, can_run_again=False, rerun=row.id)
    return replace(
        one,
        representative_session_id=row.id,
        session_ids=one.session_ids | {row.id},
        agent_version=row.version,
        promotable=True,
        can_run_again=False,
    )


def _groups(actor: Actor) -> list[Candidate]:
    """One candidate for each request and agent: those with most complaints first, then the latest."""
    complaints = find_complaints.rows(actor)
    prompts = _prompts(sorted({row.session_id for row in complaints}), actor)
    groups: dict[tuple[UUID, str], list[Any]] = defaultdict(list)
    for row in complaints:
        if row.session_id in prompts:
            # Differences in case and white space do not make another request.
            groups[row.agent_id, " ".join(prompts[row.session_id].split()).lower()].append(row)
    found = [_candidate(group, prompts[group[0].session_id]) for group in groups.values()]
    return sorted(found, key=lambda one: one.key)


def _candidate(group: list[Any], prompt: str) -> Candidate:
    """A candidate of complaints, the latest first."""
    latest = group[0]
    shown = next((row for row in group if row.promotable), latest)
    return Candidate(
        prompt=prompt.strip(),
        agent_id=latest.agent_id,
        agent_slug=latest.slug,
        occurrence_count=len(group),
        feedback_ids=[row.id for row in group],
        representative_session_id=shown.session_id,
        last_feedback_at=latest.created_at,
        session_ids=frozenset(row.session_id for row in group),
        people=len({row.created_by for row in group}),
        agent_version=shown.version,
        promotable=shown.promotable,
        can_run_again=latest.agent_runs and all(row.failed for row in group),
    )


@Query
def find_complaints() -> Any:
    promotable = (AgentSession.status == "completed") & AgentSession.golden_set.is_(None)
    return (
        select(
            Feedback.id, Feedback.session_id, Feedback.agent_id, Agent.slug, Feedback.created_at, Feedback.created_by,
            AgentVersion.version, promotable.label("promotable"),
            AgentSession.status.in_(("failed", "cancelled")).label("failed"),
            (can_replay() & ~Agent.is_system).label("agent_runs"),
        )
        .join(Agent, (Agent.tenant_id == Feedback.tenant_id) & (Agent.id == Feedback.agent_id))
        .join(AgentSession, (AgentSession.tenant_id == Feedback.tenant_id) & (AgentSession.id == Feedback.session_id))
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .where(
            Feedback.tenant_id == ASKING.tenant_id,
            Feedback.status == "pending",
            Feedback.rating == "negative",
            Feedback.source_type.in_(("response", "session")),
            Feedback.replay_session_id.is_(None),
            ~Feedback.details.has_key("retracted_at"),
            AgentSession.eval_source.is_(None),
        )
        .order_by(Feedback.created_at.desc(), Feedback.id.desc())
        .limit(at_most(SCAN_LIMIT))
    )  # fmt: skip


def _prompts(session_ids: list[UUID], actor: Actor) -> dict[UUID, str]:
    """The first user message of each session that has one."""
    rows = find_prompts(actor, ids=session_ids) if session_ids else []
    return {session_id: text for session_id, text in rows if isinstance(text, str) and text.strip()}


@Query
def find_prompts() -> Any:
    return (
        select(SessionEvent.session_id, func.left(SessionEvent.payload["text"].astext, MAX_PROMPT_CHARS))
        .ext(distinct_on(SessionEvent.session_id))
        .where(
            SessionEvent.tenant_id == ASKING.tenant_id,
            SessionEvent.session_id == IDS,
            SessionEvent.event_type == "user.message",
        )
        .order_by(SessionEvent.session_id, SessionEvent.sequence)
    )


def find_candidate(session_id: UUID, *, actor: Actor) -> Candidate:
    """The candidate that a session represents, as it is now; Stale when nothing of it is pending any more."""
    found = _group_of(session_id, actor)
    if found is None:
        there = select(AgentSession.id).where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id)
        raise Stale(SETTLED) if db.session.scalar(there) else NotFound("There is no such session in this workspace.")
    return found


def _group_of(session_id: UUID, actor: Actor) -> Candidate | None:
    """The candidate of a session with a complaint, or of one that ran such a session again."""
    mine = AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id
    failed = db.session.scalar(select(AgentSession.meta["rerun_of"].astext).where(*mine))
    wanted = {session_id, UUID(failed)} if failed else {session_id}
    found = next((one for one in _groups(actor) if one.session_ids & wanted), None)
    return _with_reruns([found], actor)[0] if found else None


def signals_of(session_id: UUID, *, actor: Actor) -> list[UUID]:
    """Pending complaints about a session, and about the candidate that it represents, if it does."""
    return pending_signals(_group_of(session_id, actor), session_id, actor=actor)


def pending_signals(group: Candidate | None, session_id: UUID, *, actor: Actor) -> list[UUID]:
    """The complaints of a candidate, and those about its session that hang on a message, a turn or a trace."""
    found = negative.pending_negative(session_id, actor=actor)
    return list(dict.fromkeys([*(group.feedback_ids if group else ()), *found]))


def dismiss_candidate(session_id: UUID, *, actor: Actor) -> list[UUID]:
    """Dismiss everything pending about a request; returns the rows that moved. Stale if others settled it first."""
    moved = resolve_group(find_candidate(session_id, actor=actor).feedback_ids, "dismissed", actor=actor, most=None)
    if not moved:
        raise Stale(SETTLED)
    return moved


def resolve_group(
    feedback_ids: Sequence[UUID], action: str, *, actor: Actor, notes: str | None = None, most: int | None = MAX_IDS
) -> list[UUID]:
    """Apply or dismiss what is still pending of a group; which rows moved. Of two who decide, one wins."""
    if not actor.is_admin:
        raise Forbidden("Only admins can decide about candidates.")
    if action not in ACTIONS:
        raise Invalid.of({"action": "Use applied or dismissed."})
    if most is not None and len(feedback_ids) > most:
        raise Invalid.of({"feedbackIds": f"At most {most} at once."})
    if not feedback_ids:
        return []
    outcome = _golden_behind(feedback_ids, actor) if action == "applied" else None
    return feedback_review.settle_pending(feedback_ids, action, actor=actor, outcome=outcome, notes=notes)


def undo_group(feedback_ids: Sequence[UUID], *, actor: Actor) -> int:
    """Put a dismissed group back; how many rows that were."""
    ids, moved = list(feedback_ids), 0
    for start in range(0, len(ids), MAX_IDS):
        moved += len(feedback_review.review(ids[start : start + MAX_IDS], "reopen", actor=actor))
    return moved


def _golden_behind(feedback_ids: Sequence[UUID], actor: Actor) -> dict[str, Any] | None:
    """The golden that one of these sessions has become, as the outcome of the complaints."""
    row = db.session.execute(
        select(AgentSession.id, AgentSession.golden_set)
        .join(Feedback, (Feedback.tenant_id == AgentSession.tenant_id) & (Feedback.session_id == AgentSession.id))
        .where(
            Feedback.tenant_id == actor.tenant_id, Feedback.id.in_(feedback_ids), AgentSession.golden_set.is_not(None)
        )
        .order_by(AgentSession.created_at.desc())
        .limit(1)
    ).one_or_none()
    return {"kind": "golden", "id": str(row[0]), "text": f"promoted to {row[1]}"} if row else None


def run_again(session_id: UUID, *, actor: Actor) -> AgentSession:
    """Start an ordinary session with the prompt of a candidate. Of two who ask for it at once, one wins."""
    require_admin(actor, "runs a candidate again")
    failed = lock_session(find_candidate(session_id, actor=actor).representative_session_id, actor=actor)
    group = find_candidate(session_id, actor=actor)
    _check_can_run(group, actor)
    session = session_start.start_run(
        group.agent_slug,
        _prompts_of(failed, actor),
        actor=actor,
        session_type=failed.session_type,
        output_type=failed.output_type,
        entity_id=failed.entity_id,
        title=failed.title,
        metadata={name: failed.meta[name] for name in failed.meta.keys() & {"criteria_set_id"}},
    )
    # Set here and not with the rest, because a reported session must not be able to set this mark.
    session.meta = {**session.meta, "rerun_of": str(failed.id)}
    audit.record(actor, "candidate.run_again", "session", session.id, rerun_of=str(failed.id))
    return session


def _check_can_run(group: Candidate, actor: Actor) -> None:
    if group.rerun is not None:
        raise Refused("This candidate is already running again.", current=str(group.rerun))
    if group.can_run_again:
        return
    agent = session_start.runnable_agent(group.agent_slug, actor=actor)
    if agent.kind == "endpoint":
        raise Refused(f"{agent.name} is an endpoint, so another run would repeat its real actions.")
    raise Refused("One of its sessions completed or is still running, so it can’t run again.")


def _prompts_of(failed: AgentSession, actor: Actor) -> list[str]:
    """The user messages of a session: those that were planned, else those that it had before it failed."""
    planned = [text for text in failed.meta.get("turns") or () if isinstance(text, str)]
    events = () if planned else events_of(failed.id, actor=actor)
    found = planned or [str(event.payload["text"]) for event in events if event.event_type == "user.message"]
    if not found:
        raise Unprocessable("This session has no user message, so it can’t run again.")
    return found
