"""Larger changes of knowledge: back to what a row said, or to before it was decided about, and one proposal joined to a
row that is there."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import literal, select
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db
from app.errors import Invalid, NotFound, Refused
from app.models import SharedContext, SharedContextFeedback, SharedContextHistory
from app.services import knowledge_outcomes
from app.services.knowledge import EDITABLE, check_version, keep_change, lock_row, snapshot
from app.services.knowledge_valid import check_scope, check_seen

# What a row was before it was decided about, or when another took its place, is not brought back with its words.
RESTORED_STATES = ("active", "inactive")


def roll_back(row_id: UUID, to: int, version: int, *, actor: Actor, reason: str | None = None) -> SharedContext:
    """Make a row what it was in an earlier version: its words, kind, scope and pin, and whether it was in use.

    What came since stays in the history; this is one more version.
    """
    row = lock_row(row_id, actor)
    check_version(row, version)
    if row.state in ("deleted", "superseded"):
        raise Refused(f"This row is {row.state}; nothing of it is in use.", current=row.state)
    kept = _kept(row_id, to, actor)
    before = snapshot(row)
    ids = {name: UUID(kept[name]) if kept.get(name) else None for name in ("agent_id", "entity_type_id")}
    check_scope(ids["agent_id"], ids["entity_type_id"], actor)
    for name in EDITABLE:
        setattr(row, name, ids[name] if name in ids else kept[name])
    if kept["state"] in RESTORED_STATES and row.state in RESTORED_STATES:
        row.state, row.active = kept["state"], kept["state"] == "active"
    if snapshot(row) == before:
        return row
    check_seen(row.content, row.context)
    said = (reason or "").strip() or f"Back to version {to}."
    return keep_change(row, "rolled_back", before, actor, said, to=to)


def reopen_row(row_id: UUID, *, actor: Actor) -> SharedContext:
    """Take back the decision about a proposal, as long as nothing else was done with the row since.

    It waits again, the row that it had replaced is in use again, and so is open what the decision had closed.
    """
    row = lock_row(row_id, actor)
    decided = _last_change(row, actor)
    if decided is None or decided.before.get("state") != "proposed" or row.state not in RESTORED_STATES:
        raise Refused("Only the last decision about a proposal can be taken back.", current=row.state)
    approved, before = row.active, snapshot(row)
    row.state, row.active = "proposed", False
    keep_change(row, "reopened", before, actor)
    if approved and "replaces" in row.meta:
        _bring_back_replaced(row, actor)
    knowledge_outcomes.reopen_signals(row, decided, actor=actor)
    return row


def _last_change(row: SharedContext, actor: Actor) -> SharedContextHistory | None:
    return db.session.scalar(
        select(SharedContextHistory).where(
            SharedContextHistory.tenant_id == actor.tenant_id,
            SharedContextHistory.shared_context_id == row.id,
            SharedContextHistory.version == row.version,
        )
    )


def _bring_back_replaced(row: SharedContext, actor: Actor) -> None:
    """The proposal is about that row as it is now, so that it can be approved once more."""
    old = lock_row(UUID(row.meta["replaces"]["id"]), actor)
    if old.superseded_by != row.id:
        raise Refused("The row that this replaced was changed since; edit that one instead.", current=old.state)
    before = snapshot(old)
    old.state, old.active, old.superseded_by = "active", True, None
    keep_change(old, "active", before, actor, "The new wording was taken back.")
    row.meta = {**row.meta, "replaces": {"id": str(old.id), "version": old.version}}
    db.session.flush()


def merge_row(row_id: UUID, into: UUID, *, actor: Actor, version: int | None = None) -> SharedContext:
    """Let a row that is in use stand for a proposal too: the signals join it, the proposal is superseded by it."""
    if into == row_id:
        raise Invalid("into: Choose another row.", {"into": "Choose another row."})
    # Locked in the order of their ids, so that two who merge crosswise wait instead of blocking each other.
    locked = {one: lock_row(one, actor) for one in sorted((row_id, into))}
    row, target = locked[row_id], locked[into]
    check_version(row, version)
    if row.state != "proposed":
        raise Refused(f"This row is {row.state}; only a proposed one is merged.", current=row.state)
    if target.state != "active":
        raise Refused(f"The other row is {target.state}; merge into one that is active.", current=target.state)
    _join_signals(row, target)
    before = snapshot(row)
    row.state, row.active, row.superseded_by = "superseded", False, into
    merged = keep_change(row, "merged", before, actor, into=str(into))
    knowledge_outcomes.settle_signals(target, actor=actor)
    return merged


def _kept(row_id: UUID, version: int, actor: Actor) -> dict[str, Any]:
    """What a version of a row held."""
    found = db.session.scalar(
        select(SharedContextHistory.after).where(
            SharedContextHistory.tenant_id == actor.tenant_id,
            SharedContextHistory.shared_context_id == row_id,
            SharedContextHistory.version == version,
        )
    )
    if found is None or any(name not in found for name in EDITABLE):
        raise NotFound(f"There is no version {version} of this row.")
    return dict(found)


def _join_signals(row: SharedContext, target: SharedContext) -> None:
    link = SharedContextFeedback
    theirs = select(literal(row.tenant_id), literal(target.id), link.feedback_id).where(
        link.tenant_id == row.tenant_id, link.shared_context_id == row.id
    )
    columns = ["tenant_id", "shared_context_id", "feedback_id"]
    db.session.execute(insert(link).from_select(columns, theirs).on_conflict_do_nothing())
    if target.source_feedback_id is None:
        target.source_feedback_id = row.source_feedback_id
