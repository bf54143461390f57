"""What deciding about a proposed rule means for the feedback behind it: approved is applied, rejected is dismissed."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import exists, select
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db import db
from app.models import Feedback, SharedContext, SharedContextFeedback, SharedContextHistory
from app.services.feedback import review as feedback_review

OPEN_STATUSES = ("pending", "reviewed")
REJECTED_NOTE = "The rule made of it was rejected"
LIVE_STATES = ("proposed", "active")
# The actions in a row's history that put the feedback behind it to use.
APPROVALS = ("active", "approved", "merged")


def apply_signals(row: SharedContext, *, actor: Actor, led_to: UUID | None = None, at: datetime | None = None) -> None:
    """Close the open feedback behind a rule as applied. `led_to` is the row that it changed, when that is another."""
    outcome = {"kind": "knowledge", "id": str(led_to or row.id), "text": row.content}
    _review_all(_ids(_open_signals_of(row)), "applied", actor=actor, outcome=outcome, at=at)


def settle_signals(row: SharedContext, *, actor: Actor, reason: str | None = None, at: datetime | None = None) -> None:
    """Close the open feedback behind a rule that was just decided about. Feedback behind another live rule stays open
    when this one is rejected."""
    if row.active:
        apply_signals(row, actor=actor, at=at)
        return
    link = aliased(SharedContextFeedback)
    other = exists().where(
        link.tenant_id == actor.tenant_id,
        link.feedback_id == Feedback.id,
        link.shared_context_id == SharedContext.id,
        SharedContext.id != row.id,
        SharedContext.state.in_(LIVE_STATES),
    )
    said = (reason or "").strip()
    notes = f"{REJECTED_NOTE}: {said}"[: feedback_review.MAX_NOTE_LENGTH] if said else f"{REJECTED_NOTE}."
    _review_all(_ids(_open_signals_of(row).where(~other)), "dismissed", actor=actor, notes=notes, at=at)


def reopen_signals(row: SharedContext, decided: SharedContextHistory, *, actor: Actor) -> None:
    """Give the feedback that a decision about a rule closed the status it had, unless it was decided again since."""
    led_to = decided.after.get("superseded_by") or str(row.id)
    closed = (
        Feedback.outcome["id"].astext == led_to
        if decided.action in APPROVALS
        else (Feedback.status == "dismissed") & Feedback.review_notes.startswith(REJECTED_NOTE, autoescape=True)
    )
    since = Feedback.reviewed_at >= decided.created_at
    ids = _ids(_signals_of(row).where(since, closed))
    _review_all(ids, "reopen", actor=actor)
    pending = set(row.meta.get("were_pending", ()))
    notes = f"Proposed: {row.content}"[: feedback_review.MAX_NOTE_LENGTH]
    _review_all([one for one in ids if str(one) not in pending], "reviewed", actor=actor, notes=notes)


def note_pending(row: SharedContext) -> None:
    """Note which feedback behind a proposal nobody looked at before it is decided about, for when that is undone."""
    pending = _signals_of(row).where(Feedback.status == "pending").with_for_update(of=Feedback)
    row.meta = {**row.meta, "were_pending": [str(one) for one in _ids(pending)]}
    db.session.flush()


def _open_signals_of(row: SharedContext) -> Any:
    """Locked, so that none of it is decided about meanwhile."""
    return _signals_of(row).where(Feedback.status.in_(OPEN_STATUSES)).with_for_update(of=Feedback)


def _signals_of(row: SharedContext) -> Any:
    link = SharedContextFeedback
    return (
        select(Feedback.id)
        .join(link, link.feedback_id == Feedback.id)
        .where(Feedback.tenant_id == row.tenant_id, link.shared_context_id == row.id)
        .order_by(Feedback.id)
    )


def _ids(statement: Any) -> list[UUID]:
    return list(db.session.scalars(statement))


def _review_all(ids: Sequence[UUID], action: str, **decision: Any) -> None:
    for start in range(0, len(ids), feedback_review.MAX_AT_ONCE):
        feedback_review.review(ids[start : start + feedback_review.MAX_AT_ONCE], action, **decision)
