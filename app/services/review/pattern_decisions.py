"""Decide about all feedback of a pattern at once."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.models import Feedback, FeedbackPatternRow, SharedContext
from app.services.feedback import review as feedback_review
from app.services.knowledge import rows as knowledge_rows
from app.services.review.patterns import get_pattern

MAX_DECIDED = 1000


def decide_pattern(
    pattern_id: UUID, action: str, *, actor: Actor, notes: str | None = None, only: Collection[UUID] | None = None
) -> list[UUID]:
    """Move the newest open feedback of a pattern, at most `MAX_DECIDED` rows or `only` some of them, and return which
    moved. All in one transaction. Applied while the pattern's rule is active, it is linked with that rule."""
    pattern = get_pattern(pattern_id, actor=actor)
    link = FeedbackPatternRow
    movable = Feedback.status.in_(feedback_review.FROM.get(action, ()))
    statement = (
        select(link.feedback_id)
        .join(Feedback, (Feedback.tenant_id == link.tenant_id) & (Feedback.id == link.feedback_id))
        .where(link.tenant_id == actor.tenant_id, link.pattern_id == pattern_id, movable)
        .order_by(link.occurred_at.desc(), link.feedback_id.desc())
        .limit(MAX_DECIDED)
    )
    if only is not None:
        statement = statement.where(link.feedback_id.in_(only))
    ids = sorted(db.session.scalars(statement))
    rule = _active_rule(pattern.shared_context_id, actor) if action == "applied" else None
    outcome = {"kind": "knowledge", "id": str(rule.id), "text": rule.content} if rule else None
    moved = _review_all(ids, action, actor=actor, notes=notes, outcome=outcome)
    if rule is not None:
        known = set(knowledge_rows.signals_of(rule))
        knowledge_rows.link_signals(rule, [one for one in moved if one not in known])
        db.session.flush()
    return moved


def _active_rule(rule_id: UUID | None, actor: Actor) -> SharedContext | None:
    mine = SharedContext.tenant_id == actor.tenant_id, SharedContext.id == rule_id, SharedContext.active
    return db.session.scalar(select(SharedContext).where(*mine))


def _review_all(ids: Sequence[UUID], action: str, **decision: Any) -> list[UUID]:
    """An action that is none is refused also where there is nothing to move."""
    if not ids:
        feedback_review.review([], action, **decision)
    parts = [
        ids[start : start + feedback_review.MAX_AT_ONCE] for start in range(0, len(ids), feedback_review.MAX_AT_ONCE)
    ]
    return [row_id for part in parts for row_id in feedback_review.review(part, action, **decision)]
