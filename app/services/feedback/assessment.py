"""What an admin thinks of the answer that feedback is about: scores, a verdict, issues, kinds of error.

It stands beside what the author said, under a key of its own in `details`, and stays when the author says something
else.
"""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select, update

from app.actor import Actor
from app.db import db
from app.errors import Forbidden, NotFound
from app.formats.feedback_details import ASSESSMENT, read_assessment
from app.models import Feedback
from app.services import audit


def assess_feedback(feedback_id: UUID, given: dict[str, Any], *, actor: Actor) -> dict[str, Any]:
    """Keep an assessment in place of the last one, or take it away when it is empty. Gives back the one before."""
    if not actor.is_admin:
        raise Forbidden("Only an admin assesses feedback.")
    wanted = read_assessment(given)
    details = _locked_details(feedback_id, actor)
    before = details.pop(ASSESSMENT, {})
    if _judgement(before) == wanted:
        return _judgement(before)
    said = details.get("error_categories", [])
    if wanted:
        details[ASSESSMENT] = wanted | {"by": str(actor.id), "at": datetime.now(UTC).isoformat()}
    categories = list(dict.fromkeys([*said, *wanted.get("error_categories", [])]))
    db.session.execute(
        update(Feedback)
        .where(Feedback.tenant_id == actor.tenant_id, Feedback.id == feedback_id)
        .values(details=details, error_categories=categories)
        .execution_options(synchronize_session=False)
    )
    db.session.expire_all()
    audit.record(actor, "feedback.assessed", "feedback", feedback_id, before=_judgement(before), after=wanted)
    return _judgement(before)


def _locked_details(feedback_id: UUID, actor: Actor) -> dict[str, Any]:
    """The row is locked first: its author may be changing it right now."""
    found = db.session.scalar(
        select(Feedback.details)
        .where(Feedback.tenant_id == actor.tenant_id, Feedback.id == feedback_id)
        .with_for_update()
    )
    if found is None:
        raise NotFound("There is no such feedback in this workspace.")
    return dict(found)


def _judgement(stored: dict[str, Any]) -> dict[str, Any]:
    """An assessment without who made it and when."""
    return {name: value for name, value in stored.items() if name not in ("by", "at")}
