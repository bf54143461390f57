"""Feedback under review: who may move it from where to where, and what each move leaves behind."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, select, update

from app.actor import Actor
from app.db import db
from app.errors import Forbidden, Invalid, NotFound, Refused
from app.models import Feedback
from app.models.feedback import STATUSES
from app.services import audit

ACTIONS = ("reviewed", "applied", "dismissed", "reopen")
MAX_AT_ONCE = 200
MAX_NOTE_LENGTH = 4096
# From which states each action may move a row. Reopening is a person's decision, from wherever the row is.
FROM = {
    "reviewed": ("pending",),
    "applied": ("pending", "reviewed"),
    "dismissed": ("pending", "reviewed"),
    "reopen": tuple(status for status in STATUSES if status != "pending"),
}
OUTCOMES = ("knowledge", "golden", "agent_version", "entity_type", "retry", "manual")
UNEXPLAINED = "Dismissed by {name} without a note."
# How a note begins that a model wrote.
BY_MODEL = "A model's reason: "
NO_NOTE = re.compile(re.escape(UNEXPLAINED).replace(r"\{name\}", ".*"))
NO_FEEDBACK = "There is no such feedback in this workspace."


def allowed_actions(status: str, *, actor: Actor) -> tuple[str, ...]:
    """What the actor may do with a row in this state."""
    if not actor.is_admin:
        return ()
    return tuple(action for action in ACTIONS if status in FROM[action] and (action != "reopen" or not actor.agent_id))


def review(
    ids: Sequence[UUID],
    action: str,
    *,
    actor: Actor,
    notes: str | None = None,
    outcome: dict[str, Any] | None = None,
    at: datetime | None = None,
    only_pending: bool = False,
) -> list[UUID]:
    """Move rows and return which moved. Of two who decide at once, one wins.

    A single row that cannot move is refused with the state it is in. Among several, and with `only_pending`, those that
    cannot are passed over.
    """
    wanted = list(dict.fromkeys(ids))
    _check(wanted, action, notes, outcome, actor)
    movable = Feedback.status.in_(("pending",) if only_pending else FROM[action])
    changes = _changes(action, notes, outcome, actor, at)
    moved = change_rows(wanted, changes, Feedback.status, movable, actor=actor)
    done, after = ("reopened", "pending") if action == "reopen" else (action, action)
    entries = [(row_id, {"before": before, "after": after, "notes": notes}) for row_id, before in moved.items()]
    audit.record_each(actor, f"feedback.{done}", "feedback", entries)
    if len(wanted) == 1 and not moved and not only_pending:
        raise _refusal(wanted[0], action, actor)
    return list(moved)


def settle_pending(ids: Sequence[UUID], action: str, *, actor: Actor, **decision: Any) -> list[UUID]:
    """Apply or dismiss those of the rows that are still pending, however many, and return which they were."""
    wanted = sorted(set(ids))
    parts = [wanted[start : start + MAX_AT_ONCE] for start in range(0, len(wanted), MAX_AT_ONCE)]
    return [row_id for part in parts for row_id in review(part, action, actor=actor, only_pending=True, **decision)]


def reason_for_author(row: Any) -> str:
    """Return what was noted about a decision, as far as the author of the feedback may read it. The note that is
    written where none was given names the admin. What an agent notes while nothing is decided repeats its proposal. A
    model has read what others said and may repeat that."""
    note = row.review_notes or ""
    if note.startswith(BY_MODEL):
        return "A review decided that nothing needs to change."
    undecided = row.status == "reviewed" and row.reviewed_by_agent_id is not None
    return "" if undecided or NO_NOTE.fullmatch(note) else note


def decision_for_author(row: Any) -> dict[str, Any]:
    """The columns that tell of a decision, without who made it."""
    outcome = {name: value for name, value in row.outcome.items() if name != "text" or row.outcome["kind"] != "manual"}
    nobody = {"reviewed_by_user_id": None, "reviewed_by_agent_id": None}
    return {"outcome": outcome, "review_notes": reason_for_author(row) or None, **nobody}


def _check(ids: list[UUID], action: str, notes: str | None, outcome: dict[str, Any] | None, actor: Actor) -> None:
    actor.check_admin("Only admins can review feedback.")
    if action not in ACTIONS:
        raise Invalid.of({"action": f"Use one of {', '.join(ACTIONS)}."})
    if action == "reopen" and actor.agent_id:
        raise Forbidden("Only a person reopens feedback.")
    if len(ids) > MAX_AT_ONCE:
        raise Invalid(f"At most {MAX_AT_ONCE} rows at once.", {"ids": f"At most {MAX_AT_ONCE}."})
    if len(notes or "") > MAX_NOTE_LENGTH:
        raise Invalid.of({"notes": f"At most {MAX_NOTE_LENGTH:,} characters."})
    if outcome is not None and (outcome.get("kind") not in OUTCOMES or action != "applied"):
        raise Invalid(f"outcome: Only for applied, with a kind of {', '.join(OUTCOMES)}.")


def _changes(
    action: str, notes: str | None, outcome: dict[str, Any] | None, actor: Actor, at: datetime | None
) -> dict[str, Any]:
    nobody = {"reviewed_by_user_id": None, "reviewed_by_agent_id": None}
    if action == "reopen":
        return {"status": "pending", "reviewed_at": None, "review_notes": None, "outcome": {}, **nobody}
    who = {"reviewed_by_agent_id": actor.agent_id} if actor.agent_id else {"reviewed_by_user_id": actor.id}
    changes: dict[str, Any] = {
        "status": action,
        "reviewed_at": at or datetime.now(UTC),
        "review_notes": notes or None,
        **nobody,
        **who,
    }
    name = actor.name or "an admin"
    if action == "dismissed" and not (notes or "").strip():
        changes["review_notes"] = UNEXPLAINED.format(name=name)
    if action == "applied":
        changes["outcome"] = outcome or {"kind": "manual", "text": f"manual decision by {name}"}
    return changes


def change_rows(
    ids: Sequence[UUID], changes: dict[str, Any], before: Any, *where: ColumnElement[bool], actor: Actor
) -> dict[UUID, Any]:
    """Change those rows that meet the conditions, and return what `before` was on each.

    One UPDATE. Rows are locked in the order of their ids, so that two of these never wait in a circle.
    """
    locked = (
        select(Feedback.id, before.label("before"))
        .where(Feedback.tenant_id == actor.tenant_id, Feedback.id.in_(ids), *where)
        .order_by(Feedback.id)
        .with_for_update()
        .cte("locked")
    )
    changed = db.session.execute(
        update(Feedback)
        .where(Feedback.id == locked.c.id)
        .values(changes)
        .returning(Feedback.id, locked.c.before)
        .execution_options(synchronize_session=False)
    ).all()
    db.session.expire_all()
    return {row[0]: row[1] for row in changed}


def _refusal(row_id: UUID, action: str, actor: Actor) -> NotFound | Refused:
    status = db.session.scalar(
        select(Feedback.status).where(Feedback.tenant_id == actor.tenant_id, Feedback.id == row_id)
    )
    if status is None:
        return NotFound(NO_FEEDBACK)
    if action == "reopen":
        return Refused("This feedback is already open.", current=status)
    return Refused(f"This feedback is {status}. Reopen it before marking it {action}.", current=status)
