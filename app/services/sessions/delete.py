"""Sessions that are no longer wanted, such as those of a test: removed together, or none of them."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import CursorResult, delete, insert, select

from app.actor import Actor
from app.db import db
from app.db.paging import scan_ids
from app.errors import Invalid, NotFound, Refused
from app.models import AgentSession, AuditEntry
from app.services import audit_entry
from app.services.sessions.lists import SCAN_LIMIT, SessionFilters, conditions_of

MAX_SESSIONS = 1000
BATCH = 100
KEPT = {
    "golden_set": ("is golden", "are golden", "Take it out, or revoke the golden first."),
    "eval_run_id": ("is a replay", "are replays", "Replays go with their whole eval run."),
}


def find_ids(filters: SessionFilters, *, actor: Actor) -> list[UUID]:
    """All sessions that a list shows, over its pages. Refused when they are more than go at once."""
    where = conditions_of(filters, actor)
    if where is None:
        return []
    if window := filters.window:
        ids, goes_on = scan_ids(AgentSession.created_at, AgentSession.id, where, window)
        if goes_on and len(ids) <= MAX_SESSIONS:
            raise Refused(
                f"Only the newest {SCAN_LIMIT:,} sessions were looked at; narrow the list by days or by agent."
            )
    else:
        ids = list(db.session.scalars(select(AgentSession.id).where(*where).limit(MAX_SESSIONS + 1)))
    if len(ids) > MAX_SESSIONS:
        raise Refused(f"More than {MAX_SESSIONS:,} sessions match; narrow the list first.")
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
    for column, (one, several, remedy) in KEPT.items():
        number = sum(getattr(row, column) is not None for row in rows)
        if number:
            which = "this session" if of == 1 else f"{number:,} of these {of:,} sessions"
            raise Refused(f"Nothing was deleted: {which} {one if number == 1 else several}. {remedy}")


def delete_sessions(session_ids: list[UUID], *, actor: Actor) -> int:
    """Remove sessions with their events, each noted in the audit log; how many. Feedback stays, without the link."""
    actor.check_admin("Only an admin deletes sessions.")
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
            raise Refused("Somebody else changes these sessions now; try again.")


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
