"""Knowledge that tools write: it waits for a person, is never written twice, and comes in small numbers."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, exists, func, or_, select, text
from sqlalchemy.dialects.postgresql import array

from app.actor import Actor
from app.db import db, get_own
from app.errors import Forbidden, Invalid, Refused, Throttled
from app.learning.hygiene.checks import DUPLICATE_NEARNESS, says_alike
from app.models import SharedContext, SharedContextHistory
from app.services import audit
from app.services.knowledge.rows import (
    NewRow,
    add_row,
    embed_content,
    is_own_proposal,
    link_signals,
    revise_proposal,
    signals_of,
    withdraw_proposal,
)
from app.services.knowledge.validation import check_signals, clean_text
from app.services.knowledge.vectors import get_vectors
from app.text.embeddings import nearness

MAX_PER_HOUR = 20
# How many rejected proposals of a scope a new one is compared with, the newest first.
MAX_REJECTED = 500
EDITABLE_BY_TOOLS = ("content", "context")
REFUSALS = {
    "active": "An active row of this kind and scope has the same text.",
    "superseded": "This was proposed before and merged into another row.",
}
# Two that propose at once take turns, so that neither the same row comes twice nor more than may.
LOCK_PROPOSALS = text("select pg_advisory_xact_lock(hashtextextended('proposals:' || :tenant, 0))")
CONTENT_HASH = "md5(lower(regexp_replace(btrim(:content), '\\s+', ' ', 'g')))"


def propose_row(new: NewRow, *, actor: Actor, session_id: UUID | None = None) -> SharedContext:
    """Propose a rule. The same proposal again adds its signals to the first; what a person rejected is refused, also in
    other words."""
    vector = embed_content(clean_text(new.content))
    db.session.execute(LOCK_PROPOSALS, {"tenant": str(actor.tenant_id)})
    known = _find_same(new, actor)
    if known is not None and known.state == "proposed":
        _add_signals(known, new, actor)
        return known
    if known is not None and (refusal := REFUSALS.get(known.state)):
        raise Refused(refusal, current=known.state)
    _check_rejected(new, vector, actor)
    return _write(new, {}, vector, actor, session_id)


def propose_edit(
    row_id: UUID,
    changes: Mapping[str, Any],
    *,
    actor: Actor,
    session_id: UUID | None = None,
    at: datetime | None = None,
) -> SharedContext:
    """Propose other words for an active row, which stays in the prompts as it is until a person approves. Whoever
    proposed something changes that instead: their proposal about this row, or the proposal itself."""
    actor.check_admin("Only admins’ tools can propose changes to knowledge.")
    unknown = set(changes) - set(EDITABLE_BY_TOOLS)
    if unknown:
        raise Forbidden(f"Only a person changes {min(unknown)}; a tool proposes other words.")
    row = get_model(row_id, actor=actor)
    if row.state == "proposed" and "retires" not in row.meta:
        return revise_proposal(row_id, changes, actor=actor)
    if row.state != "active":
        raise Refused(f"This row is {row.state}. Only active rows can be changed by a proposal.")
    content, context = (changes.get(name, getattr(row, name)) for name in EDITABLE_BY_TOOLS)
    if (clean_text(content), clean_text(context or "")) == (row.content, row.context or ""):
        raise Invalid("The row already has this text.")
    same = {name: getattr(row, name) for name in ("type", "agent_id", "entity_type_id", "source_feedback_id", "pinned")}
    new = NewRow(**same, content=content, context=context, feedback_ids=signals_of(row), created_at=at)
    vector = embed_content(clean_text(content))
    db.session.execute(LOCK_PROPOSALS, {"tenant": str(actor.tenant_id)})
    _check_rejected(new, vector, actor, of_row=row)
    _withdraw_earlier(row, actor)
    return _write(new, {"replaces": {"id": str(row.id), "version": row.version}}, vector, actor, session_id)


def propose_retirement(
    row_id: UUID, reason: str, *, actor: Actor, session_id: UUID | None = None, at: datetime | None = None
) -> SharedContext:
    """Propose to take an active row out of use, unless that is proposed already. On a proposal of one's own, withdraw
    it."""
    actor.check_admin("Only admins’ tools can propose changes to knowledge.")
    row = get_model(row_id, actor=actor)
    if row.state == "proposed":
        return withdraw_proposal(row_id, reason, actor=actor)
    if row.state != "active":
        raise Refused(f"This row is {row.state}. Only active rows can be retired.", current=row.state)
    same = {name: getattr(row, name) for name in ("type", "content", "context", "agent_id", "entity_type_id")}
    vector = embed_content(row.content)
    db.session.execute(LOCK_PROPOSALS, {"tenant": str(actor.tenant_id)})
    kept = SharedContext.meta["retires"].contains({"id": str(row.id), "version": row.version})
    if db.session.scalar(select(SharedContext.id).where(was_rejected(actor), kept).limit(1)):
        raise Refused("An admin decided to keep this row.", current=row.state)
    _withdraw_earlier(row, actor)
    waits = SharedContext.tenant_id == actor.tenant_id, SharedContext.state == "proposed"
    if asked := db.session.scalar(select(SharedContext).where(*waits, kept).limit(1)):
        return asked
    about = {"id": str(row.id), "version": row.version, "reason": reason}
    return _write(NewRow(**same, created_at=at), {"retires": about}, vector, actor, session_id)


def kind_of(row: SharedContext) -> str:
    """What a proposal asks for: a new row, other words for a row, or to take one out of use."""
    return "retire" if "retires" in row.meta else "change" if "replaces" in row.meta else "new"


def was_rejected(actor: Actor) -> ColumnElement[bool]:
    """The condition that a row of the workspace is a proposal that a person turned down."""
    history = SharedContextHistory
    approved_or_withdrawn = exists().where(
        history.tenant_id == SharedContext.tenant_id,
        history.shared_context_id == SharedContext.id,
        history.action.in_(("active", "withdrawn")),
    )
    off = SharedContext.tenant_id == actor.tenant_id, SharedContext.state.in_(("inactive", "deleted"))
    return and_(*off, SharedContext.meta.has_key("proposed"), ~approved_or_withdrawn)


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
            ~SharedContext.meta.has_any(array(["replaces", "retires"])),
        )
        .order_by(order, SharedContext.created_at.desc())
        .limit(1)
    )


def _check_rejected(new: NewRow, vector: list[float], actor: Actor, of_row: SharedContext | None = None) -> None:
    """Refuse what says the same as a rejected proposal in the same scope. New words for a row are compared with those
    that were rejected for it."""
    replaced = SharedContext.meta["replaces"]["id"].astext
    rejected: Any = db.session.execute(
        select(SharedContext.id, SharedContext.content, SharedContext.content_hash.label("digest"))
        .where(
            was_rejected(actor),
            ~SharedContext.meta.has_key("retires"),
            SharedContext.agent_id.is_not_distinct_from(new.agent_id),
            SharedContext.entity_type_id.is_not_distinct_from(new.entity_type_id),
            replaced == str(of_row.id) if of_row else replaced.is_(None),
        )
        .order_by(SharedContext.updated_at.desc())
        .limit(MAX_REJECTED)
    ).all()
    vectors = get_vectors(rejected)
    near = nearness(vector, [vectors[one.id] for one in rejected])
    if any(_says_same(new.content, one.content, by) for one, by in zip(rejected, near, strict=True)):
        raise Refused("This was proposed before and rejected.", current="inactive")


def _says_same(one: str, other: str, near: float) -> bool:
    if one.lower().split() == other.lower().split():
        return True
    return near >= DUPLICATE_NEARNESS and says_alike(one, other)


def _withdraw_earlier(row: SharedContext, actor: Actor) -> None:
    """A proposal about a row takes the place of the one that the same agent made before."""
    waiting = select(SharedContext).where(
        SharedContext.tenant_id == actor.tenant_id,
        SharedContext.state == "proposed",
        or_(*(SharedContext.meta[link]["id"].astext == str(row.id) for link in ("replaces", "retires"))),
    )
    for earlier in db.session.scalars(waiting).all():
        if is_own_proposal(earlier, actor):
            withdraw_proposal(earlier.id, "Replaced by a newer proposal.", actor=actor)


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
        raise Throttled(f"At most {MAX_PER_HOUR} proposals an hour in a workspace. Propose this later.", 600)
