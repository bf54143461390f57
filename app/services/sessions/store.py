"""Sessions: created, filled with events, ended once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Row, Uuid, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db import db
from app.db.queries import ASKING, value
from app.errors import Invalid, NotFound, Refused
from app.formats import session_limits as limits
from app.ingest.messages import size_of
from app.models import Agent, AgentSession, AgentVersion, Chat, Entity, User
from app.models.sessions import SESSION_STATUSES, SESSION_TYPES
from app.services import audit
from app.services.agents import versions
from app.services.feedback import review as feedback_review
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.privacy import name_of
from app.services.sessions import events as session_events
from app.services.sessions.events import LockedSession, NewEvent, lock_for_events, lock_session
from app.services.sessions.task_outcome import note_end
from app.services.workspaces.store import masking_for
from app.text.masking import Masking

OPEN_STATUSES = ("pending", "running")
FINAL = ("completed", "failed", "cancelled")
# Events that end an open session, and how.
ENDS = {"session.completed": "completed", "session.failed": "failed"}
SHOWN_ELSEWHERE = "Shown under Settings → Review."
UNKNOWN_REASON = "The session failed without a reason."
TOO_EARLY = "Send a time that is not before `started_at`."
# What only the product itself writes into metadata: promoting, replaying, schedules, retries and asking again. Names
# that begin like those of replays are taken too. `turns`, `turn_id`, `criteria_set_id`, `tools` and the like are
# what a run is given, and are open to everyone who starts or reports one.
RESERVED = ("golden", "copied_from", "task_id", "retry_of", "instead_of", "rerun_of")
RESERVED_PREFIX = "eval_"
SET_AS_GIVEN = (
    "external_id", "session_type", "output_type", "status", "chat_id", "entity_id", "owner_id", "model", "input_tokens",
    "output_tokens", "cost", "duration_ms", "environment", "import_id", "created_at", "started_at", "finished_at",
)  # fmt: skip


@dataclass(frozen=True)
class StoredEvents:
    """Events that were added, and what their session holds then."""

    ids: list[UUID]
    event_count: int
    event_bytes: int
    status: str


@dataclass(frozen=True, kw_only=True)
class NewSession:
    """A run to store. One that runs here starts `pending`; what is ingested may be in any state. `metadata` is the
    sender's; `marks` are the product's own and join it."""

    agent: str
    agent_version: int | None = None
    external_id: str | None = None
    title: str | None = None
    session_type: str = "agent"
    output_type: str | None = None
    status: str = "pending"
    error: str | None = None
    chat_id: UUID | None = None
    entity_id: UUID | None = None
    person_id: UUID | None = None
    owner_id: UUID | None = None
    trace_id: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None
    duration_ms: int | None = None
    environment: str | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    marks: dict[str, Any] = field(default_factory=dict)
    import_id: UUID | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    events: Sequence[NewEvent] = ()


def create_session(new: NewSession, *, actor: Actor) -> tuple[AgentSession, bool]:
    """Store a run and whether it was new. The same `external_id` again gives the stored one back, unchanged."""
    check_new(new)
    known = find_session(new.external_id, actor=actor) if new.external_id else None
    if known is not None:
        return known, False
    agent = versions.ensure_agent(new.agent, actor=actor)
    find_links({"chat_id": (Chat, new.chat_id), "entity_id": (Entity, new.entity_id)}, actor=actor)
    version = versions.version_id(agent, new.agent_version)
    made = _insert([values_of(new, agent, version, masking_for(actor), actor)])
    if not made:
        known = find_session(new.external_id or "", actor=actor)
        if known is None:
            raise Refused("This session is being stored by another request. Send it again.")
        return known, False
    session = db.session.get_one(AgentSession, made[new.external_id])
    session_events.write_events(session, new.events, actor=actor)
    if new.status == "failed":
        report_failure(session, actor)
    return session, True


def create_sessions(sessions: Sequence[NewSession], *, actor: Actor) -> int:
    """Store sessions with an `external_id` each in few statements; how many were new. Known ones stay as they are."""
    # Links are not looked up one by one: the database refuses those of another workspace.
    for new in sessions:
        check_new(new)
    named = {new.external_id: new for new in reversed(sessions)}
    ours = [AgentSession.tenant_id == actor.tenant_id, AgentSession.external_id.in_(named)]
    known = set(db.session.scalars(select(AgentSession.external_id).where(*ours)))
    fresh = [new for new in reversed(named.values()) if new.external_id not in known]
    masking = masking_for(actor)
    made = _insert(_prepare(fresh, masking, actor))
    stored = [new for new in fresh if new.external_id in made]
    rows = [
        row
        for new in stored
        for row in session_events.rows_of(made[new.external_id], session_events.reported(new.events, actor), masking)
    ]
    session_events.add_rows(rows, tenant_id=actor.tenant_id)
    for new in stored:
        if new.status == "failed":
            report_failure(db.session.get_one(AgentSession, made[new.external_id]), actor)
    return len(made)


def _prepare(fresh: Sequence[NewSession], masking: Masking, actor: Actor) -> list[dict[str, Any]]:
    """The rows of the sessions. Each agent and each version is looked up once."""
    agents = {slug: versions.ensure_agent(slug, actor=actor) for slug in dict.fromkeys(new.agent for new in fresh)}
    wanted = dict.fromkeys((new.agent, new.agent_version) for new in fresh)
    ids = {(slug, number): versions.version_id(agents[slug], number) for slug, number in wanted}
    return [values_of(new, agents[new.agent], ids[new.agent, new.agent_version], masking, actor) for new in fresh]


def _insert(rows: list[dict[str, Any]]) -> dict[str | None, UUID]:
    """The ids of those that were new, by external id.

    All rows of one statement have the same columns, so rows go in by which they have. Always in the same order: two
    imports of one file then wait for each other instead of stopping each other.
    """
    made: dict[str | None, UUID] = {}
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: str(row.get("external_id"))):
        alike.setdefault(tuple(row), []).append(row)
    for _, group in sorted(alike.items()):
        statement = (
            insert(AgentSession.__table__)  # type: ignore[arg-type]
            .values(group)
            .on_conflict_do_nothing(
                index_elements=["tenant_id", "external_id", "owner_id"],
                index_where=AgentSession.external_id.is_not(None),
            )
            .returning(AgentSession.external_id, AgentSession.id)
        )
        made |= {row.external_id: row.id for row in db.session.execute(statement)}
    return made


def check_new(new: NewSession) -> None:
    """Raise Invalid for what no session may say."""
    wrong = {}
    for name, allowed in (("session_type", SESSION_TYPES), ("status", SESSION_STATUSES)):
        if getattr(new, name) not in allowed:
            wrong[name] = f"Use one of {', '.join(allowed)}."
    for name in new.metadata:
        if name in RESERVED or name.startswith(RESERVED_PREFIX):
            wrong[f"metadata.{name}"] = "Upshot sets this itself. Choose another name."
    if new.started_at and new.finished_at and new.finished_at < new.started_at:
        wrong["finished_at"] = TOO_EARLY
    if size_of(new.metadata) > limits.METADATA_BYTES:
        wrong["metadata"] = f"Send at most {limits.METADATA_BYTES:,} bytes of JSON."
    if wrong:
        raise Invalid.of(wrong)


def find_links(wanted: Mapping[str, tuple[type[Any], UUID | None]], *, actor: Actor) -> dict[str, Any]:
    """The rows that these ids name, by field. Raise Invalid for one that is not in this workspace."""
    found = {}
    for name, (model, row_id) in wanted.items():
        if row_id is None:
            continue
        row = db.session.scalar(select(model).where(model.tenant_id == actor.tenant_id, model.id == row_id))
        if row is None:
            noun = name.removesuffix("_id").replace("_", " ")
            raise Invalid(f"There is no {noun} {row_id} in this workspace.", {name: "Not in this workspace."})
        found[name] = row
    return found


def values_of(new: NewSession, agent: Agent, version_id: UUID, masking: Masking, actor: Actor) -> dict[str, Any]:
    """The row of a session, without secrets."""
    error = new.error or (_reason(new.events) if new.status == "failed" else None)
    values = {name: getattr(new, name) for name in SET_AS_GIVEN if getattr(new, name) is not None}
    values |= {
        "tenant_id": actor.tenant_id,
        "agent_id": agent.id,
        "agent_version_id": version_id,
        "title": (masking.text(new.title) if new.title else _title(new, agent, masking))[: limits.TITLE],
        "error": masking.text(error) if error else None,
        "trace_id": new.trace_id or uuid4().hex,
        "created_by": new.person_id or actor.id,
        "tags": list(new.tags),
        "key_scopes": actor.stored_scopes,
        "metadata": masking.value(new.metadata | new.marks),
    }
    if new.status in FINAL and new.finished_at is None:
        values["finished_at"] = datetime.now(UTC)
    if new.duration_ms is None and new.started_at and new.finished_at:
        values["duration_ms"] = milliseconds_between(new.started_at, new.finished_at)
    return values


def milliseconds_between(start: datetime, end: datetime) -> int:
    """How long something took. Clocks that disagree make it no shorter than nothing."""
    return max(0, int((end - start) / timedelta(milliseconds=1)))


def _reason(events: Sequence[NewEvent]) -> str:
    """Why a session failed, as far as its events say."""
    failures = [event.payload for event in events if event.event_type == "session.failed"]
    found = [reason for payload in failures if (reason := payload.get("reason") or payload.get("error"))]
    return str(found[-1])[: limits.ERROR] if found else UNKNOWN_REASON


def _title(new: NewSession, agent: Agent, masking: Masking) -> str:
    """The first words of the user, else whose session it is. Masked before it is cut: half a secret is not known."""
    for event in new.events:
        text = event.payload.get("text")
        if event.event_type == "user.message" and isinstance(text, str) and text.strip():
            return title_of(masking.text(text))
    return f"Session of {agent.name}"


def title_of(text: str) -> str:
    """The first words, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= 120 else line[:119].rstrip() + "…"


def find_session(external_id: str, *, actor: Actor) -> AgentSession | None:
    """The session with this external id. Several people may use one; then it is the actor's own, or the first."""
    return db.session.scalar(
        select(AgentSession)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.external_id == external_id)
        .order_by((AgentSession.owner_id == actor.id).desc().nulls_last(), AgentSession.created_at, AgentSession.id)
        .limit(1)
    )


def is_personal(session_id: UUID, *, actor: Actor) -> bool:
    """Whether the session belongs to one person's conversation, so that other members do not see it."""
    ours = [AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id]
    return db.session.scalar(select(AgentSession.owner_id).where(*ours)) is not None


def append_events(session_id: UUID, events: Sequence[NewEvent], *, actor: Actor) -> list[UUID]:
    """Add events, late ones too; their ids. A `session.completed` or `session.failed` ends an open session."""
    return _append(lock_session(session_id, actor=actor), events, actor).ids


def report_events(session_id: UUID, events: Sequence[NewEvent], *, actor: Actor) -> StoredEvents:
    """Add events that a sender reports, unless our own runtime writes this session."""
    session = lock_session(session_id, actor=actor)
    if _is_run_here(session):
        raise Refused("This session runs in Upshot, so only its agent can add events.")
    return _append(session, events, actor)


def _append(locked: LockedSession, events: Sequence[NewEvent], actor: Actor) -> StoredEvents:
    ids, count, size = session_events.add_events(locked, events, actor=actor)
    if locked.status not in OPEN_STATUSES or not any(event.event_type in ENDS for event in events):
        return StoredEvents(ids, count, size, locked.status)
    session = lock_for_events(locked.id, actor=actor)
    for event, at in zip(events, session_events.times_of(events), strict=True):
        if event.event_type in ENDS and session.status in OPEN_STATUSES:
            status = ENDS[event.event_type]
            _finish(session, status, _reason([event]) if status == "failed" else None, at, actor)
    return StoredEvents(ids, count, size, session.status)


def runs_here(session_id: UUID, *, actor: Actor) -> bool:
    """Whether our own runtime writes what happens in a session: it ran here, or waits to."""
    row = db.session.execute(
        select(AgentSession.attempt, AgentSession.status, AgentSession.eval_source, Agent.kind)
        .join(Agent, Agent.id == AgentSession.agent_id)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id)
    ).one_or_none()
    if row is None:
        raise NotFound("There is no such session in this workspace.")
    return _is_run_here(row)


def _is_run_here(row: Any) -> bool:
    waits = row.kind != "external" and row.status in OPEN_STATUSES
    return row.attempt > 0 or row.eval_source is not None or waits


def begin_session(session_id: UUID, *, actor: Actor, started_at: datetime | None = None) -> AgentSession:
    """Mark a pending session as running. A session that runs or has ended stays as it is."""
    session = lock_for_events(session_id, actor=actor)
    if session.status in FINAL:
        raise Refused(f"This session is {session.status} and can’t change.", current=session.status)
    if session.status == "pending":
        session.status = "running"
        session.started_at = started_at or session.started_at or datetime.now(UTC)
        db.session.flush()
        audit.record(actor, "session.began", "session", session.id, before="pending", after="running")
    return session


def finish_session(
    session_id: UUID, status: str, *, actor: Actor, error: str | None = None, finished_at: datetime | None = None
) -> AgentSession:
    """End a session. It ends once: the same end again changes nothing, another one is refused."""
    if status not in FINAL:
        raise Invalid.of({"status": f"Use one of {', '.join(FINAL)}."})
    session = lock_for_events(session_id, actor=actor)
    if session.status == status:
        return session
    if session.status in FINAL:
        raise Refused(f"This session is {session.status} and can’t change.", current=session.status)
    if finished_at and session.started_at and finished_at < session.started_at:
        raise Invalid.of({"finished_at": TOO_EARLY})
    _finish(session, status, error, finished_at, actor)
    return session


def _finish(session: AgentSession, status: str, error: str | None, at: datetime | None, actor: Actor) -> None:
    before, session.status = session.status, status
    error = error or (UNKNOWN_REASON if status == "failed" else None)
    session.error = masking_for(actor).text(error) if error else None
    at = at or datetime.now(UTC)
    session.finished_at = max(at, session.started_at or at)
    if session.duration_ms is None:
        session.duration_ms = milliseconds_between(session.started_at or session.created_at, session.finished_at)
    db.session.flush()
    audit.record(actor, "session.finished", "session", session.id, before=before, after=status)
    after_end(session, actor)


def after_end(session: AgentSession, actor: Actor) -> None:
    """Report a session that has just ended: to its schedule, and when it failed, as feedback."""
    note_end(session)
    if session.status == "failed":
        report_failure(session, actor)


def report_failure(session: AgentSession, actor: Actor) -> None:
    """A failed session speaks for itself, once. A failed replay is judged with its eval run instead. Nothing is to be
    decided about a review that failed, so its row is closed."""
    if session.eval_source is not None:
        return
    reason = session.error or UNKNOWN_REASON
    failure = NewFeedback(
        source_type="session",
        kind="session_failure",
        origin="system",
        rating="negative",
        comment=reason[: limits.ERROR],
        session_id=session.id,
        context={"failure_reason": reason[:4096]},
        occurred_at=session.finished_at,
        created_at=session.finished_at,
    )
    reported = record_feedback(failure, actor=actor)
    if actor.is_admin and _is_of_system_agent(session):
        feedback_review.settle_pending([reported.row.id], "dismissed", actor=actor, notes=SHOWN_ELSEWHERE)


def _is_of_system_agent(session: AgentSession) -> bool:
    mine = Agent.tenant_id == session.tenant_id, Agent.id == session.agent_id
    return bool(db.session.scalar(select(Agent.is_system).where(*mine)))


def get_session(session_id: UUID, *, actor: Actor) -> Row[Any]:
    """One session with the names of what it belongs to, as far as the actor may see it. Whose it is may be hidden."""
    asked = {"session_id": session_id, "actor_id": actor.id, "tenant_id": actor.tenant_id}
    row = db.session.execute(_select_session(), asked).one_or_none()
    if row is None:
        raise NotFound("There is no such session in this workspace.")
    return row


@cache
def _select_session() -> Any:
    """The statement, which is built once."""
    session = aliased(AgentSession, name="session")
    return (
        select(
            session, Agent.slug.label("agent"), Agent.name.label("agent_name"),
            Agent.kind.label("agent_kind"), AgentVersion.version.label("agent_version"),
            name_of(session.created_by, ASKING).label("person"), Chat.title.label("chat_title"),
            Entity.name.label("entity_name"),
        )
        .join(Agent, Agent.id == session.agent_id)
        .outerjoin(AgentVersion, AgentVersion.id == session.agent_version_id)
        .outerjoin(User, (User.id == session.created_by) & User.is_system.is_(False))
        .outerjoin(Chat, Chat.id == session.chat_id)
        .outerjoin(Entity, Entity.id == session.entity_id)
        .where(session.tenant_id == ASKING.tenant_id, session.id == value("session_id", Uuid))
    )  # fmt: skip


# A golden keeps its snapshot under the one name, and each of its replays a copy under the other.
FROZEN = ("golden", "eval_golden")


def public_metadata(meta: dict[str, Any], *, actor: Actor) -> dict[str, Any]:
    """What the actor may read of a session's metadata.

    A snapshot holds an agent's prompt, which is for admins, and a person's memories, of which only the count is shown.
    """
    shown = dict(meta)
    for name in FROZEN:
        frozen = dict(meta.get(name) or {})
        snapshot = frozen.pop("snapshot", None)
        if snapshot is None:
            continue
        if not actor.is_admin:
            frozen.pop("revisions", None)
        if actor.is_admin:
            memories = snapshot.get("memories") or {}
            frozen["snapshot"] = {**snapshot, "memories": {"count": memories.get("count", 0)}}
        shown[name] = frozen
    return shown


def metadata_of(session_ids: list[UUID], *, actor: Actor) -> dict[UUID, dict[str, Any]]:
    """The public metadata of these sessions. One query."""
    ours = [AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(session_ids)]
    rows = db.session.execute(select(AgentSession.id, AgentSession.meta).where(*ours))
    return {session_id: public_metadata(meta, actor=actor) for session_id, meta in rows}
