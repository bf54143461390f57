"""Sessions in a list: one row each, never the metadata or a payload; and the deletion of those it shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import UUID, uuid4

from sqlalchemy import CursorResult, any_, delete, insert, literal, select

from app.actor import Actor
from app.db import db
from app.db.paging import Page, ScanWindow, Slice, Source, read_kept_page, scan_ids
from app.db.queries import ASKING, IDS, Query
from app.errors import Invalid, NotFound, Refused
from app.models import Agent, AgentSession, AgentVersion, AuditEntry, Feedback
from app.models.sessions import SESSION_STATUSES, SESSION_TYPES
from app.services import audit_entry
from app.services.feedback.lists import RECEPTIONS, counted_ratings, has_feedback
from app.services.lists import filters as declare
from app.services.lists.filters import (
    MATCHED,
    YES_NO,
    Condition,
    Filters,
    Matches,
    counted_matches,
    find_matches,
    is_set,
)
from app.services.privacy import is_hidden

SCAN_LIMIT = 5000
# Whether a session has feedback is looked up for each of them.
FEEDBACK_SCAN_LIMIT = 1000
NONE = (0, 0, 0)
# What is deleted at once, and what stays.
MAX_SESSIONS = 1000
BATCH = 100
KEEP_REASONS = {
    "golden_set": ("is golden", "are golden", "Deselect it, or revoke the golden first."),
    "eval_run_id": ("is a replay", "are replays", "Delete their eval run instead."),
}


def _is_version(column: Any, version: int) -> Any:
    return column.in_(select(AgentVersion.id).where(AgentVersion.version == version))


def _has_tag(column: Any, tag: str) -> Condition:
    return literal(tag) == any_(column)


def _is_true(column: Any, wanted: str) -> Any:
    return column if wanted == "yes" else ~column


def _lasted_at_least(column: Any, seconds: float) -> Any:
    return column >= round(seconds * 1000)


def _lasted_at_most(column: Any, seconds: float) -> Any:
    return column <= round(seconds * 1000)


def _was_received(session_id: Any, wanted: str) -> Condition:
    return has_feedback(wanted, Feedback.session_id == session_id)


@dataclass(frozen=True, kw_only=True)
class SessionFilters(Filters):
    """One filter leads, by its index; the others filter a window of its rows, so any combination costs the same."""

    status: str | None = declare.choice(SESSION_STATUSES)
    type: str | None = declare.choice(SESSION_TYPES, column="session_type")
    agent: str | None = declare.agent_slug()
    agent_id: UUID | None = declare.agent_id()
    version: int | None = declare.number(
        column="agent_version_id", compare=_is_version, label="agent version", key="version"
    )
    person_id: UUID | None = declare.id_of_row(column="created_by", label="person", menu="people")
    chat_id: UUID | None = declare.id_of_row(label="conversation", offered=False)
    entity_id: UUID | None = declare.id_of_row(label="record", offered=False)
    golden: str | None = declare.choice(YES_NO, column="golden_set", compare=is_set)
    golden_set: str | None = declare.text(label="golden set")
    replay: str | None = declare.choice(YES_NO, column="eval_source", compare=is_set)
    rating: str | None = declare.choice(RECEPTIONS, column="id", compare=_was_received, label="feedback")
    environment: str | None = declare.text(menu="environments")
    model: str | None = declare.text(menu="models")
    tag: str | None = declare.text(column="tags", compare=_has_tag, menu="tags")
    error: str | None = declare.choice(YES_NO, column="has_error", compare=_is_true, label="has an error", key="error")
    longer: float | None = declare.seconds(
        column="duration_ms", compare=_lasted_at_least, label="took at least (s)", key="longer"
    )
    shorter: float | None = declare.seconds(
        column="duration_ms", compare=_lasted_at_most, label="took at most (s)", key="shorter"
    )
    import_id: UUID | None = declare.id_of_row(menu="imports")
    trace_id: str | None = declare.outside_id(label="trace")
    external_id: str | None = declare.outside_id(label="external id")

    # Filters with an index in the order of the list, the most exact first. The first that is chosen leads.
    leads: ClassVar[tuple[str, ...]] = (
        "external_id", "trace_id", "chat_id", "import_id", "golden_set", "agent_id", "agent", "environment", "model",
        "status",
    )  # fmt: skip

    @property
    def indexed(self) -> list[str]:
        included = [name for name in self.chosen if name not in self.excluded]
        leading = next((name for name in self.leads if name in included), None)
        return [name for name in included if name in (leading, "golden", "replay")]

    def conditions(self) -> list[Condition]:
        return [*self._within(AgentSession.created_at), *self.compare(AgentSession, self.indexed)]

    @property
    def window(self) -> ScanWindow | None:
        """What no index covers once the leading filter is used."""
        names = [name for name in self.chosen if name not in self.indexed]
        if not names:
            return None
        columns = {self.declared()[name].column or name for name in names}
        # Whether there was an error is enough; its text would be read by the scan.
        errors = {"has_error": AgentSession.error.is_not(None)}
        scanned = {name: errors[name] if name in errors else getattr(AgentSession, name) for name in sorted(columns)}
        return ScanWindow(scanned, lambda row: self.compare(row, names), self.scan_limit)

    @property
    def scan_limit(self) -> int:
        return FEEDBACK_SCAN_LIMIT if self.rating else SCAN_LIMIT


COLUMNS: tuple[Any, ...] = (
    AgentSession.id, AgentSession.external_id, AgentSession.trace_id, AgentSession.title, AgentSession.session_type,
    AgentSession.output_type, AgentSession.status, AgentSession.error, AgentSession.agent_id, Agent.slug.label("agent"),
    AgentVersion.version.label("agent_version"), AgentSession.chat_id, AgentSession.model, AgentSession.input_tokens,
    AgentSession.output_tokens, AgentSession.cost, AgentSession.duration_ms, AgentSession.environment,
    AgentSession.tags, AgentSession.event_count, AgentSession.truncated, AgentSession.golden_set,
    AgentSession.eval_source, AgentSession.created_at, AgentSession.finished_at,
)  # fmt: skip
# A row of the list: the columns, and how the session was received.
ROW = (*(column.key for column in COLUMNS), "positive", "negative", "neutral")


def list_sessions(filters: SessionFilters, page: Page, *, actor: Actor) -> Slice[Any]:
    """One page of the workspace's sessions. At most four queries."""
    matches = find_matches("sessions", filters, page) if filters.q else None
    if matches and not matches.ids:
        return Slice([])
    same, values = filters.as_parameters()
    key = same, matches is not None
    found = read_kept_page(_source, key, page, actor=actor, **counted_matches(matches), **values)
    received = ratings_of([row[0] for row in found.items], actor=actor)
    return found.map(lambda row: SimpleNamespace(**dict(zip(ROW, row + received.get(row[0], NONE), strict=True))))


def _source(filters: SessionFilters, matched: bool) -> Source:
    where = _indexed(filters, ASKING)
    if matched:
        where.append(AgentSession.id == MATCHED)
    statement = (
        select(*COLUMNS)
        .join(Agent, Agent.id == AgentSession.agent_id)
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
    )
    at, id_ = AgentSession.created_at, AgentSession.id
    return Source(statement, at, id_, where, filters.oldest_first, filters.window)


def _indexed(filters: SessionFilters, actor: Actor) -> list[Any]:
    where = [AgentSession.tenant_id == actor.tenant_id, *filters.conditions()]
    return [*where, ~is_hidden(AgentSession.created_by, actor)] if filters.person_id is not None else where


@Query
def find_ratings() -> Any:
    return select(Feedback.session_id, *counted_ratings()).where(Feedback.session_id == IDS).group_by("session_id")


def ratings_of(session_ids: list[UUID], *, actor: Actor) -> dict[UUID, tuple[int, int, int]]:
    """How each session was received: positive, negative, neutral; only what the reader may see."""
    rows = find_ratings(actor, ids=session_ids) if session_ids else []
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


def find_ids(filters: SessionFilters, *, actor: Actor) -> list[UUID]:
    """All sessions that a list shows, over its pages. Refused when they are more than go at once."""
    where = _indexed(filters, actor)
    if filters.q:
        matches = declare.find_ids("sessions", filters.q)
        if not matches:
            return []
        where.append(AgentSession.id == Matches(matches).any)
    if window := filters.window:
        ids, goes_on = scan_ids(AgentSession.created_at, AgentSession.id, where, window)
        if goes_on and len(ids) <= MAX_SESSIONS:
            raise Refused(f"Only the newest {window.limit:,} sessions were checked. Narrow the list by days or agent.")
    else:
        ids = list(db.session.scalars(select(AgentSession.id).where(*where).limit(MAX_SESSIONS + 1)))
    if len(ids) > MAX_SESSIONS:
        raise Refused(f"More than {MAX_SESSIONS:,} sessions match. Narrow the list first.")
    return ids


def check_deletable(session_ids: list[UUID], *, actor: Actor) -> None:
    """Refuses with the reason why some of these stay. Changes nothing."""
    kept = select(AgentSession.golden_set, AgentSession.eval_run_id).where(
        AgentSession.tenant_id == actor.tenant_id,
        AgentSession.id.in_(session_ids),
        AgentSession.golden_set.is_not(None) | AgentSession.eval_run_id.is_not(None),
    )
    _refuse_kept(db.session.execute(kept).all(), len(session_ids))


def _refuse_kept(rows: Sequence[Any], of: int) -> None:
    """A golden goes only after it was revoked. The figures of a run rest on its replays, which go with all of it."""
    for column, (one, several, remedy) in KEEP_REASONS.items():
        number = sum(getattr(row, column) is not None for row in rows)
        if number:
            which = "this session" if of == 1 else f"{number:,} of these {of:,} sessions"
            raise Refused(f"Nothing was deleted: {which} {one if number == 1 else several}. {remedy}")


def delete_sessions(session_ids: list[UUID], *, actor: Actor) -> int:
    """Remove sessions with their events, each noted in the audit log; how many. Feedback stays, without the link."""
    actor.check_admin("Only admins can delete sessions.")
    if not session_ids:
        raise Invalid("Select at least one session first.")
    if len(set(session_ids)) > MAX_SESSIONS:
        raise Invalid(f"At most {MAX_SESSIONS:,} sessions at once.")
    rows = db.session.execute(
        select(
            AgentSession.id, AgentSession.title, AgentSession.status, AgentSession.golden_set, AgentSession.eval_run_id
        )
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(session_ids))
        .order_by(AgentSession.id)
        .with_for_update()
    ).all()
    if not rows:
        raise NotFound("There is no such session in this workspace.")
    _refuse_kept(rows, len(rows))
    _record(rows, actor)
    remove_sessions([row.id for row in rows], actor=actor)
    return len(rows)


def remove_sessions(session_ids: Sequence[UUID], *, actor: Actor) -> None:
    """Remove sessions that are locked, with their events, so many at once that each statement ends in time."""
    for start in range(0, len(session_ids), BATCH):
        ids = session_ids[start : start + BATCH]
        gone: CursorResult[Any] = db.session.execute(  # type: ignore[assignment]
            delete(AgentSession).where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(ids)),
            execution_options={"synchronize_session": False},
        )
        if gone.rowcount != len(ids):
            raise Refused("Someone else changes these sessions now. Try again.")


def _record(rows: Sequence[Any], actor: Actor) -> None:
    """One line for each session, as if it had been deleted alone, in one statement."""
    lines = [
        {
            "id": uuid4(),
            "tenant_id": actor.tenant_id,
            "actor_user_id": actor.id,
            "actor_agent_id": actor.agent_id,
            "action": "session.deleted",
            "subject_type": "session",
            "subject_id": row.id,
            "details": audit_entry.details_of(actor, title=row.title, status=row.status),
            "request_id": actor.request_id,
        }
        for row in rows
    ]
    db.session.flush()
    db.session.execute(insert(AuditEntry.__table__).inline(), lines)  # type: ignore[arg-type]
