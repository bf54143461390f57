"""How somebody takes back what they said."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import ColumnElement, delete, exists, select, update

from app.actor import Actor
from app.db import db
from app.models import Feedback, SharedContextFeedback
from app.services import audit
from app.services.feedback import volume

RETRACTED = "retracted_at"
STANDS = ~Feedback.details.has_key(RETRACTED)
LINKED = exists().where(
    SharedContextFeedback.tenant_id == Feedback.tenant_id, SharedContextFeedback.feedback_id == Feedback.id
)


def take_back(*which: ColumnElement[bool], actor: Actor) -> None:
    """Delete one's own rows that nobody acted on. The others stay as the reason for what was decided, marked."""
    rows = db.session.execute(
        select(Feedback.id, Feedback.kind, Feedback.rating, Feedback.details, untouched().label("untouched"))
        .where(Feedback.tenant_id == actor.tenant_id, Feedback.created_by == actor.id, STANDS, *which)
        .with_for_update(of=Feedback)
    ).all()
    for row in rows:
        if row.untouched:
            db.session.execute(delete(Feedback).where(Feedback.id == row.id))
        else:
            marked = row.details | {RETRACTED: datetime.now(UTC).isoformat()}
            db.session.execute(update(Feedback).where(Feedback.id == row.id).values(details=marked))
        audit.record(actor, "feedback.retracted", "feedback", row.id, kind=row.kind, rating=row.rating)
        volume.note(actor.tenant_id)


def untouched() -> ColumnElement[bool]:
    """Nobody acted on the row."""
    return (Feedback.status == "pending") & ~LINKED
