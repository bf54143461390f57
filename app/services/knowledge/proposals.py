"""Knowledge that tools write: it waits for a person, is never written twice, and comes in small numbers."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, text

from app.actor import Actor
from app.db import db, get_own
from app.errors import Forbidden, Invalid, Refused, Throttled
from app.models import SharedContext, SharedContextHistory
from app.services import audit
from app.services.knowledge.rows import NewRow, add_row, embed_content, link_signals, signals_of
from app.services.knowledge.validation import check_signals, clean_text

MAX_PER_HOUR = 20
EDITABLE_BY_TOOLS = ("content", "context")
REFUSALS = {
    "active": "An active row of this type says the same in the same scope.",
    "superseded": "This was proposed before, and a person merged it into another row.",
}
# Two that propose at once take turns, so that neither the same row comes twice nor more than may.
LOCK_PROPOSALS = text("select pg_advisory_xact_lock(hashtextextended('proposals:' || :tenant, 0))")
CONTENT_HASH = "md5(lower(regexp_replace(btrim(:content), '\\s+', ' ', 'g')))"


def propose_row(new: NewRow, *, actor: Actor, session_id: UUID | None = None) -> SharedContext:
    """Propose a rule. The same proposal again adds its signals to the first; a rejected one is refused."""
    vector = embed_content(clean_text(new.content))
    db.session.execute(LOCK_PROPOSALS, {"tenant": str(actor.tenant_id)})
    known = _find_same(new, actor)
    if known is not None and known.state == "proposed":
        _add_signals(known, new, actor)
        return known
    if known is not None and (refusal := REFUSALS.get(known.state)):
        raise Refused(refusal, current=known.state)
    if known is not None and _was_rejected(known, actor):
        raise Refused("This was proposed before, and a person rejected it.", current=known.state)
    return _write(new, {}, vector, actor, session_id)


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
    content, context = (changes.get(name, getattr(row, name)) for name in EDITABLE_BY_TOOLS)
    if (clean_text(content), clean_text(context or "")) == (row.content, row.context or ""):
        raise Invalid("These are the words that the row has already.")
    same = {name: getattr(row, name) for name in ("type", "agent_id", "entity_type_id", "source_feedback_id", "pinned")}
    new = NewRow(**same, content=content, context=context, feedback_ids=signals_of(row))
    vector = embed_content(clean_text(content))
    db.session.execute(LOCK_PROPOSALS, {"tenant": str(actor.tenant_id)})
    return _write(new, {"replaces": {"id": str(row.id), "version": row.version}}, vector, actor, session_id)


def get_model(row_id: UUID, *, actor: Actor) -> SharedContext:
    """A row of the workspace."""
    return get_own(SharedContext, row_id, "knowledge row", actor=actor)


def _write(
    new: NewRow, meta: dict[str, Any], vector: list[float], actor: Actor, session_id: UUID | None
) -> SharedContext:
    _check_rate(actor)
    meta = {"proposed": {"session_id": str(session_id) if session_id else None}} | meta
    return add_row(new, actor=actor, proposed=True, meta=meta, vector=vector)


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
    history = SharedContextHistory
    approved = select(history.id).where(
        history.tenant_id == actor.tenant_id, history.shared_context_id == row.id, history.action == "active"
    )
    return db.session.scalar(approved.limit(1)) is None


def _add_signals(row: SharedContext, new: NewRow, actor: Actor) -> None:
    known = signals_of(row)
    wanted = [one for one in new.signals if one not in known]
    check_signals(wanted, actor)
    link_signals(row, wanted)
    for feedback_id in wanted:
        audit.record(actor, "knowledge.signal_added", "shared_context", row.id, feedback_id=feedback_id)


def _check_rate(actor: Actor) -> None:
    """A loop that runs wild must not bury the proposals that people are to read."""
    since = datetime.now(UTC) - timedelta(hours=1)
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
