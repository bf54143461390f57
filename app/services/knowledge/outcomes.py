"""What deciding about a proposed rule means for the feedback behind it: approved is applied, rejected is dismissed."""

from datetime import datetime
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


def settle_signals(row: SharedContext, *, actor: Actor, reason: str | None = None, at: datetime | None = None) -> int:
    """Close the open feedback behind a rule that was just decided about; how many rows moved.

    Feedback behind another live rule stays open when this one is rejected.
    """
    if row.active:
        outcome = {"kind": "knowledge", "id": str(row.id), "text": row.content}
        return _review_in_batches(_signals_of(row, actor), "applied", actor=actor, outcome=outcome, at=at)
    said = (reason or "").strip()
    notes = f"{REJECTED_NOTE}: {said}" if said else f"{REJECTED_NOTE}."
    notes = notes[: feedback_review.MAX_NOTE_LENGTH]
    return _review_in_batches(
        _signals_of(row, actor, without_other_rules=True), "dismissed", actor=actor, notes=notes, at=at
    )


def reopen_signals(row: SharedContext, decided: SharedContextHistory, *, actor: Actor) -> int:
    """Reopen the feedback that a decision about a rule closed, unless it was decided again since. Return how many."""
    closed = (
        Feedback.outcome["id"].astext == str(row.id)
        if decided.action == "active"
        else (Feedback.status == "dismissed") & Feedback.review_notes.startswith(REJECTED_NOTE, autoescape=True)
    )
    ids = db.session.scalars(
        select(Feedback.id)
        .join(SharedContextFeedback, SharedContextFeedback.feedback_id == Feedback.id)
        .where(
            Feedback.tenant_id == actor.tenant_id,
            SharedContextFeedback.shared_context_id == row.id,
            Feedback.reviewed_at >= decided.created_at,
            closed,
        )
    ).all()
    return _review_in_batches(list(ids), "reopen", actor=actor)


def _signals_of(row: SharedContext, actor: Actor, *, without_other_rules: bool = False) -> list[UUID]:
    """Locked, so that none of them is decided about meanwhile."""
    statement = (
        select(Feedback.id)
        .join(SharedContextFeedback, SharedContextFeedback.feedback_id == Feedback.id)
        .where(
            Feedback.tenant_id == actor.tenant_id,
            SharedContextFeedback.shared_context_id == row.id,
            Feedback.status.in_(OPEN_STATUSES),
        )
        .order_by(Feedback.id)
        .with_for_update(of=Feedback)
    )
    if without_other_rules:
        link = aliased(SharedContextFeedback)
        other = exists().where(
            link.tenant_id == actor.tenant_id,
            link.feedback_id == Feedback.id,
            link.shared_context_id == SharedContext.id,
            SharedContext.id != row.id,
            SharedContext.state.in_(LIVE_STATES),
        )
        statement = statement.where(~other)
    return list(db.session.scalars(statement))


def _review_in_batches(
    ids: list[UUID],
    action: str,
    *,
    actor: Actor,
    notes: str | None = None,
    outcome: dict[str, str] | None = None,
    at: datetime | None = None,
) -> int:
    moved = 0
    for start in range(0, len(ids), feedback_review.MAX_AT_ONCE):
        some = ids[start : start + feedback_review.MAX_AT_ONCE]
        moved += len(feedback_review.review(some, action, actor=actor, notes=notes, outcome=outcome, at=at))
    return moved
