"""How a row of feedback is written: the row, what it replaces, and its line in the audit trail, in one statement."""

from __future__ import annotations

from functools import cache
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import bindparam, case, func, literal, literal_column, select, text
from sqlalchemy.dialects.postgresql import Insert, insert

from app.actor import Actor
from app.db import db
from app.models import AuditEntry, Feedback
from app.services import audit

TABLE: Any = Feedback.__table__
TRAIL: Any = AuditEntry.__table__
# What is given with a row; the rest is the database's or comes later.
GIVEN = (
    "id", "tenant_id", "source_type", "rating", "kind", "origin", "confidence", "signal", "comment", "session_id",
    "entity_id", "agent_id", "message_id", "chat_id", "turn_id", "trace_id", "project", "context", "details",
    "error_categories", "created_by", "created_at", "occurred_at", "status", "outcome", "reviewed_at",
    "reviewed_by_user_id", "reviewed_by_agent_id",
)  # fmt: skip
# What an admin thinks of the answer outlives what the author says anew.
ASSESSED: dict[str, Any] = {
    "details": literal_column(
        "excluded.details || CASE WHEN feedback.details ? 'assessment'"
        " THEN jsonb_build_object('assessment', feedback.details -> 'assessment') ELSE '{}' END"
    ),
    "error_categories": literal_column(
        "excluded.error_categories || ARRAY(SELECT c FROM jsonb_array_elements_text("
        "coalesce(feedback.details #> '{assessment,error_categories}', '[]')) AS c"
        " WHERE c <> ALL (excluded.error_categories))"
    ),
}


def store(values: dict[str, Any], *, actor: Actor) -> tuple[Feedback | None, bool]:
    """Write the row and read it back; say whether it is new. None when it is there and somebody else's."""
    replaces = values["kind"] == "signal" or (values["kind"] == "reaction" and values["origin"] == "user")
    statement = _statement(values["kind"] if replaces else None)
    given = {f"new_{name}": values.get(name) for name in GIVEN} | _trail(values, actor)
    row = db.session.scalars(statement, given, execution_options={"populate_existing": True}).one_or_none()
    if row is None:
        row = db.session.get(Feedback, _already_there(values), populate_existing=True)
    return row, row is not None and row.id == values["id"]


def _trail(values: dict[str, Any], actor: Actor) -> dict[str, Any]:
    """The line for a new row, and the line for one that was changed; the statement takes the one that fits."""
    created = audit.line(
        actor, "feedback.created", "feedback", None, source_type=values["source_type"], kind=values["kind"]
    )
    changed = audit.line(actor, "feedback.changed", "feedback", None, rating=values["rating"])
    return {
        "trail_id": uuid4(),
        "trail_user": created["actor_user_id"],
        "trail_agent": created["actor_agent_id"],
        "trail_request": created["request_id"],
        "trail_created": created["details"],
        "trail_changed": changed["details"],
    }


@cache
def _statement(replaced: str | None) -> Any:
    """The statement for what replaces an earlier row, or for what does not. Made once: it takes longer to build than
    to run."""
    statement = insert(TABLE).values({name: bindparam(f"new_{name}", type_=TABLE.c[name].type) for name in GIVEN})
    shown = [column for column in TABLE.c if column.name != "search"]
    written = _replacing(statement, replaced).returning(*shown).cte("written")
    is_new = written.c.id == bindparam("new_id", type_=TABLE.c.id.type)
    noted = {
        "id": bindparam("trail_id", type_=TRAIL.c.id.type),
        "tenant_id": written.c.tenant_id,
        "actor_user_id": bindparam("trail_user", type_=TRAIL.c.actor_user_id.type),
        "actor_agent_id": bindparam("trail_agent", type_=TRAIL.c.actor_agent_id.type),
        "action": case((is_new, "feedback.created"), else_="feedback.changed"),
        "subject_type": literal("feedback"),
        "subject_id": written.c.id,
        "details": case(
            (is_new, bindparam("trail_created", type_=TRAIL.c.details.type)),
            else_=bindparam("trail_changed", type_=TRAIL.c.details.type),
        ),
        "request_id": bindparam("trail_request", type_=TRAIL.c.request_id.type),
    }
    line = insert(TRAIL).from_select(list(noted), select(*noted.values()), include_defaults=False).cte("noted")
    return select(Feedback).from_statement(select(*written.c).add_cte(line))


def _replacing(statement: Insert, replaced: str | None) -> Insert:
    new, old = statement.excluded, TABLE.c
    said = {"comment": new.comment, "occurred_at": new.occurred_at, **ASSESSED}
    kept = {"trace_id": func.coalesce(new.trace_id, old.trace_id), "chat_id": func.coalesce(new.chat_id, old.chat_id)}
    if replaced == "signal":
        # Whoever sends it again may know more by now: the chat, and with it the session, the agent and the turn.
        learned = {name: func.coalesce(old[name], new[name]) for name in ("session_id", "agent_id", "turn_id")}
        no_chat = old.chat_id.is_(None)
        of_chat = {name: case((no_chat, new[name]), else_=old[name]) for name in ("source_type", "context")}
        return statement.on_conflict_do_update(
            index_elements=["tenant_id", "message_id", "created_by", "signal"],
            index_where=text("kind = 'signal'"),
            set_={**said, **kept, **learned, **of_chat},
        )
    if replaced == "reaction":
        return statement.on_conflict_do_update(
            index_elements=["tenant_id", "turn_id", "created_by"],
            index_where=text("kind = 'reaction' AND origin = 'user'"),
            set_={"rating": new.rating, "context": new.context, **said, **kept},
        )
    return statement.on_conflict_do_nothing()


def _already_there(values: dict[str, Any]) -> UUID:
    column = Feedback.session_id if values["kind"] == "session_failure" else Feedback.replay_session_id
    wanted = values["session_id"] if values["kind"] == "session_failure" else values["context"]["replay_session_ids"][0]
    found: UUID = db.session.execute(
        select(Feedback.id).where(
            Feedback.tenant_id == values["tenant_id"], Feedback.kind == values["kind"], column == wanted
        )
    ).scalar_one()
    return found
