"""Knowledge that tools write: it waits for a person, is never written twice, and comes in small numbers."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, text

from app.actor import Actor
from app.db import db
from app.db.lookup import get_own
from app.errors import Forbidden, Invalid, Refused, Throttled
from app.models import SharedContext, SharedContextFeedback, SharedContextHistory
from app.services import audit
from app.services.knowledge.rows import NewRow, add_row, embed_content
from app.services.knowledge.validation import check_signals, normalize_newlines

MAX_PER_HOUR = 20
HOUR = timedelta(hours=1)
EDITABLE_BY_TOOLS = ("content", "context")
# Two that propose at once take turns, so that neither the same row comes twice nor more than may.
LOCK_PROPOSALS = text("select pg_advisory_xact_lock(hashtextextended('proposals:' || :tenant, 0))")
CONTENT_HASH = "md5(lower(regexp_replace(btrim(:content), '\\s+', ' ', 'g')))"


def propose_row(new: NewRow, *, actor: Actor, session_id: UUID | None = None) -> SharedContext:
    """Propose a rule. The same proposal again adds its signals to the first; a rejected one is refused."""
    vector = embed_content(normalize_newlines(new.content))
    db.session.execute(LOCK_PROPOSALS, {"tenant": str(actor.tenant_id)})
    known = _find_same(new, actor)
    if known is not None and known.state == "proposed":
        _add_signal(known, new, actor)
        return known
    if known is not None and known.state == "active":
        raise Refused("An active row of this type says the same in the same scope.", current="active")
    if known is not None and known.state == "superseded":
        raise Refused("This was proposed before, and a person merged it into another row.", current="superseded")
    if known is not None and _was_rejected(known, actor):
        raise Refused("This was proposed before, and a person rejected it.", current=known.state)
    _check_rate(actor)
    return _write(new, vector, actor, session_id)


def propose_edit(
    row_id: UUID, changes: Mapping[str, Any], *, actor: Actor, session_id: UUID | None = None
) -> SharedContext:
    """Propose other words for an active row. The row stays in the prompts as it is until a person approves."""
    actor.check_admin("Only an admin's tools propose changes to knowledge.")
    unknown = set(changes) - set(EDITABLE_BY_TOOLS)
    if unknown:
        raise Forbidden(f"Only a person changes {min(unknown)}; a tool proposes other words.")
    row = get_model(row_id, actor=actor)
    if row.state != "active":
        raise Refused(f"This row is {row.state}; only an active row is changed, and a new one proposed.")
    new = NewRow(
        type=row.type,
        content=changes.get("content", row.content),
        context=changes.get("context", row.context),
        agent_id=row.agent_id,
        entity_type_id=row.entity_type_id,
        source_feedback_id=row.source_feedback_id,
        feedback_ids=_signals_of(row),
        pinned=row.pinned,
    )
    if (normalize_newlines(new.content), normalize_newlines(new.context or "")) == (row.content, row.context or ""):
        raise Invalid("These are the words that the row has already.")
    vector = embed_content(normalize_newlines(new.content))
    db.session.execute(LOCK_PROPOSALS, {"tenant": str(actor.tenant_id)})
    _check_rate(actor)
    return _write(new, vector, actor, session_id, replaces=row)


def get_model(row_id: UUID, *, actor: Actor) -> SharedContext:
    """A row of the workspace."""
    return get_own(SharedContext, row_id, "knowledge row", actor=actor)


def _write(
    new: NewRow,
    vector: list[float],
    actor: Actor,
    session_id: UUID | None,
    replaces: SharedContext | None = None,
) -> SharedContext:
    meta: dict[str, Any] = {"proposed": {"session_id": str(session_id) if session_id else None}}
    if replaces is not None:
        meta["replaces"] = {"id": str(replaces.id), "version": replaces.version}
    return add_row(replace(new, created_at=None), actor=actor, proposed=True, meta=meta, vector=vector)


def _find_same(new: NewRow, actor: Actor) -> SharedContext | None:
    """The row that says the same in the same scope, the one in force first. A new wording of a row is none."""
    order = func.array_position(["active", "proposed", "inactive", "superseded", "deleted"], SharedContext.state)
    return db.session.scalar(
        select(SharedContext)
        .where(
            SharedContext.tenant_id == actor.tenant_id,
            SharedContext.type == new.type,
            SharedContext.agent_id.is_not_distinct_from(new.agent_id),
            SharedContext.entity_type_id.is_not_distinct_from(new.entity_type_id),
            text(f"shared_context.content_hash = {CONTENT_HASH}").bindparams(content=new.content),
            ~SharedContext.meta.has_key("replaces"),
        )
        .order_by(order, SharedContext.created_at.desc())
        .limit(1)
    )


def _was_rejected(row: SharedContext, actor: Actor) -> bool:
    """A tool's proposal that never came into force."""
    if "proposed" not in row.meta:
        return False
    approved = select(SharedContextHistory.id).where(
        SharedContextHistory.tenant_id == actor.tenant_id,
        SharedContextHistory.shared_context_id == row.id,
        SharedContextHistory.action == "active",
    )
    return db.session.scalar(approved.limit(1)) is None


def _add_signal(row: SharedContext, new: NewRow, actor: Actor) -> None:
    given = [new.source_feedback_id] if new.source_feedback_id else []
    wanted = [one for one in dict.fromkeys([*given, *new.feedback_ids]) if one not in _signals_of(row)]
    check_signals(wanted, actor)
    for feedback_id in wanted:
        db.session.add(
            SharedContextFeedback(tenant_id=actor.tenant_id, shared_context_id=row.id, feedback_id=feedback_id)
        )
        audit.record(actor, "knowledge.signal_added", "shared_context", row.id, feedback_id=feedback_id)


def _signals_of(row: SharedContext) -> list[UUID]:
    return list(
        db.session.scalars(
            select(SharedContextFeedback.feedback_id)
            .where(SharedContextFeedback.tenant_id == row.tenant_id, SharedContextFeedback.shared_context_id == row.id)
            .order_by(SharedContextFeedback.created_at, SharedContextFeedback.id)
        )
    )


def _check_rate(actor: Actor) -> None:
    """A loop that runs wild must not bury the proposals that people are to read."""
    since = datetime.now(UTC) - HOUR
    number = db.session.scalar(
        select(func.count()).where(
            SharedContext.tenant_id == actor.tenant_id,
            SharedContext.updated_at > since,
            SharedContext.created_at > since,
            SharedContext.meta.has_key("proposed"),
        )
    )
    if (number or 0) >= MAX_PER_HOUR:
        raise Throttled(f"At most {MAX_PER_HOUR} proposals an hour in a workspace; propose this later.", 600)
