"""Write a feedback row with what it replaces and its audit line, in one statement."""

import json
from functools import cache
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db, run
from app.models import Feedback
from app.services import audit_entry
from app.services.feedback.links import lock_thumbs

COLUMNS = (
    "id", "tenant_id", "source_type", "rating", "kind", "origin", "confidence", "signal", "comment", "session_id",
    "entity_id", "agent_id", "message_id", "chat_id", "turn_id", "trace_id", "project", "context", "details",
    "error_categories", "created_by", "created_at", "occurred_at", "status", "outcome", "reviewed_at",
    "reviewed_by_user_id", "reviewed_by_agent_id",
)  # fmt: skip
_json = json.JSONEncoder(default=str).encode
UNSET_COLUMNS = ("review_notes", "assignee_id", "replay_session_id")
# The admin's assessment survives a change by the author.
CHANGED_COLUMNS = """comment = excluded.comment, occurred_at = excluded.occurred_at,
    trace_id = coalesce(excluded.trace_id, f.trace_id), chat_id = coalesce(excluded.chat_id, f.chat_id),
    details = excluded.details || CASE WHEN f.details ? 'assessment'
        THEN jsonb_build_object('assessment', f.details -> 'assessment') ELSE '{}' END
        || CASE WHEN f.details ? 'sent' AND excluded.details ? 'sent'
        THEN jsonb_build_object('sent', (f.details -> 'sent') || (excluded.details -> 'sent')) ELSE '{}' END,
    error_categories = excluded.error_categories || ARRAY(
        SELECT c FROM jsonb_array_elements_text(coalesce(f.details #> '{assessment,error_categories}', '[]')) AS c
         WHERE c <> ALL (excluded.error_categories))"""
# A signal that is sent again may name more: the chat, and with it the session, the agent and the turn.
ON_CONFLICT = {
    "signal": f"""(tenant_id, message_id, created_by, signal) WHERE kind = 'signal' DO UPDATE SET {CHANGED_COLUMNS},
    session_id = coalesce(f.session_id, excluded.session_id), agent_id = coalesce(f.agent_id, excluded.agent_id),
    turn_id = coalesce(f.turn_id, excluded.turn_id),
    source_type = CASE WHEN f.chat_id IS NULL THEN excluded.source_type ELSE f.source_type END,
    context = CASE WHEN f.chat_id IS NULL THEN excluded.context ELSE f.context END""",
    "reaction": f"""(tenant_id, chat_id, turn_id, created_by) WHERE kind = 'reaction' AND origin = 'user'
    DO UPDATE SET {CHANGED_COLUMNS}, rating = excluded.rating, context = excluded.context""",
    None: "DO NOTHING",
}
OPPOSITE = """SELECT o.id FROM feedback AS o WHERE o.kind = 'signal' AND o.tenant_id = %(tenant_id)s
    AND o.message_id = %(message_id)s AND o.created_by = %(created_by)s AND o.signal = %(opposite)s
    AND NOT o.details ? 'retracted_at'"""
STATEMENT = """WITH written AS (INSERT INTO feedback AS f ({columns}) {row} ON CONFLICT {replacing}
    RETURNING f.id, f.tenant_id),
noted AS (INSERT INTO audit_log (tenant_id, actor_user_id, actor_agent_id, action, subject_type, subject_id, details,
        request_id)
    SELECT w.tenant_id, %(user)s::uuid, %(agent)s::uuid, %(action)s, 'feedback', w.id, %(noted)s::jsonb, %(request)s
      FROM written AS w)
SELECT w.id, {opposite} FROM written AS w"""


def write_row(
    values: dict[str, Any], *, actor: Actor, opposite: str | None = None, commit: bool = False
) -> tuple[Any, UUID | None]:
    """Write the row and return it with the columns of `feedback`, or None where it belongs to another person.

    Beside it comes the id of the `opposite` signal that is to be retracted now; the author of a thumb holds the lock on
    their thumbs. With `commit` nothing else happens in this transaction, and it is committed along with the row. Most
    rows are new, so only where one of the same kind exists, a second statement changes it.
    """
    whole = dict.fromkeys((*COLUMNS, *UNSET_COLUMNS)) | values
    row = _columns(whole) | {"opposite": opposite}
    thumb = opposite is not None
    if written := run(
        _statement(None, thumb, commit),
        row | _noted("feedback.created", actor, source_type=values["source_type"], kind=values["kind"]),
        last=commit,
    ):
        return SimpleNamespace(**whole), written[0][1]
    if commit:
        # Nothing was written. Continue as the same person in another transaction.
        db.session.commit()
        if thumb:
            lock_thumbs(values["created_by"], values["message_id"])
            return write_row(values, actor=actor, opposite=opposite)
    if values["kind"] == "signal" or (values["kind"] == "reaction" and values["origin"] == "user"):
        noted = _noted("feedback.changed", actor, rating=values["rating"])
        changed = run(_statement(values["kind"], thumb), row | noted)
        if not changed:
            return None, None
        return db.session.get(Feedback, changed[0][0], populate_existing=True), changed[0][1]
    return _already_there(values), None


def _columns(whole: dict[str, Any]) -> dict[str, Any]:
    """Encode the values for the driver."""
    texts = {name: _json(whole[name]) if whole[name] else "{}" for name in ("context", "details", "outcome")}
    return whole | texts | {"error_categories": f"{{{','.join(whole['error_categories'])}}}"}


def _noted(action: str, actor: Actor, **details: Any) -> dict[str, Any]:
    """Return the parameters of the audit line."""
    return {
        "action": action,
        "user": actor.id,
        "agent": actor.agent_id,
        "request": actor.request_id,
        "noted": _json(audit_entry.details_of(actor, **details)),
    }


@cache
def _statement(replaced: str | None, thumb: bool, commit: bool = False) -> str:
    """Build the statement. A thumb that commits is not written while its opposite exists, since that could not be
    retracted afterwards."""
    values = ", ".join(f"%({name})s" for name in COLUMNS)
    return STATEMENT.format(
        columns=", ".join(COLUMNS),
        row=f"SELECT {values} WHERE NOT EXISTS ({OPPOSITE})" if thumb and commit else f"VALUES ({values})",
        replacing=ON_CONFLICT[replaced],
        opposite=f"({OPPOSITE})" if thumb and not commit else "NULL::uuid",
    )


def _already_there(values: dict[str, Any]) -> Feedback | None:
    failure = values["kind"] == "session_failure"
    column = Feedback.session_id if failure else Feedback.replay_session_id
    wanted = values["session_id"] if failure else values["context"]["replay_session_ids"][0]
    return db.session.execute(
        select(Feedback).where(
            Feedback.tenant_id == values["tenant_id"], Feedback.kind == values["kind"], column == wanted
        )
    ).scalar_one_or_none()
