"""Knowledge rows: added, edited, approved, retired. Every change of a row is made here, by `_change`, as a new version
with its history and its line in the audit log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import delete, select, update
from sqlalchemy.exc import IntegrityError

from app.actor import Actor
from app.db import db, get_own
from app.errors import Forbidden, Invalid, NotFound, Refused, Stale
from app.learning.ranking import rank
from app.models import SharedContext, SharedContextFeedback, SharedContextHistory, SharedContextUsage
from app.models.knowledge import KNOWLEDGE_STATES
from app.services import audit
from app.services.knowledge import outcomes
from app.services.knowledge.proofs import check_activation
from app.services.knowledge.validation import check_scope, check_signals, check_text, check_visible, clean_text
from app.services.knowledge.vectors import save_vector
from app.services.webhooks.queue import queue_event
from app.text.embeddings import embed

EDITABLE = ("content", "context", "type", "agent_id", "entity_type_id", "pinned")
VERSIONED = (*EDITABLE, "state", "superseded_by")
# The states from which each action is possible. A deleted row is a tombstone; only reopening makes a row proposed.
FROM: dict[str, tuple[str, ...]] = {
    "proposed": (),
    "edited": ("proposed", "active", "inactive", "superseded"),
    "active": ("proposed", "inactive", "superseded"),
    "inactive": ("proposed", "active"),
    "superseded": ("active",),
    "deleted": ("proposed", "active", "inactive", "superseded"),
    "rolled_back": ("proposed", "active", "inactive"),
    "reopened": ("active", "inactive", "superseded"),
    "merged": ("proposed",),
    "withdrawn": ("proposed",),
}
# After these, prompts may get words that a person has not seen before.
CHECKED_ACTIONS = ("edited", "active", "rolled_back")
REFUSALS = {
    "edited": "This row was deleted. Add a new one.",
    "rolled_back": "This row is {state}, so it isn’t in prompts.",
    "reopened": "Only the last decision on a proposal can be undone.",
    "merged": "This row is {state}. Only proposed rows can be merged.",
    "withdrawn": "This row is {state}. Only open proposals can be withdrawn.",
}
# A rollback restores whether a row was in use, but never that it was proposed or superseded.
RESTORED_STATES = ("active", "inactive")


@dataclass(frozen=True, kw_only=True)
class NewRow:
    """`feedback_ids` are the signals behind it; the clearest is `source_feedback_id`, else the first."""

    type: str
    content: str
    context: str | None = None
    agent_id: UUID | None = None
    entity_type_id: UUID | None = None
    source_feedback_id: UUID | None = None
    feedback_ids: Sequence[UUID] = ()
    pinned: bool = False
    created_at: datetime | None = None

    @property
    def signals(self) -> list[UUID]:
        """All signals behind it, the clearest first."""
        first = [self.source_feedback_id] if self.source_feedback_id else []
        return list(dict.fromkeys([*first, *self.feedback_ids]))


def add_row(
    new: NewRow,
    *,
    actor: Actor,
    proposed: bool = False,
    meta: Mapping[str, Any] | None = None,
    vector: Sequence[float] | None = None,
) -> SharedContext:
    """Write a rule and its vector. An admin's is active at once; one by an agent, a member or a tool is proposed. Pass
    `vector` when a lock is held: the first embedding of a process loads the model, which takes a second."""
    content, context = clean_text(new.content), _clean_context(new.context)
    check_text(new.type, content, context)
    check_visible(content, context)
    check_scope(new.agent_id, new.entity_type_id, actor)
    check_signals(new.signals, actor)
    vector = vector or embed_content(content)
    trusted = actor.is_admin and actor.agent_id is None and actor.role != "system" and not proposed
    moment = new.created_at or datetime.now(UTC)
    given = {name: getattr(new, name) for name in ("type", "agent_id", "entity_type_id", "pinned")}
    row = SharedContext(
        **given,
        tenant_id=actor.tenant_id,
        content=content,
        context=context,
        source_feedback_id=next(iter(new.signals), None),
        state="active" if trusted else "proposed",
        active=trusted,
        created_by_user_id=None if actor.agent_id else actor.id,
        created_by_agent_id=actor.agent_id,
        meta=dict(meta or {}),
        rank=rank(_age_in_days(moment), pinned=new.pinned),
        version=1,
        created_at=moment,
        updated_at=moment,
    )
    _save(row)
    save_vector(row.id, vector, actor=actor)
    link_signals(row, new.signals, moment)
    _write_history(row, "created", {}, actor, None)
    audit.record(actor, "knowledge.created", "shared_context", row.id, type=row.type, state=row.state)
    queue_event("knowledge.activated" if row.active else "proposal.created", row.id, actor=actor)
    return row


def link_signals(row: SharedContext, feedback_ids: Sequence[UUID], moment: datetime | None = None) -> None:
    """Put feedback behind a row."""
    of_row = {"tenant_id": row.tenant_id, "shared_context_id": row.id, "created_at": moment or datetime.now(UTC)}
    db.session.add_all(SharedContextFeedback(**of_row, feedback_id=feedback_id) for feedback_id in feedback_ids)


def signals_of(row: SharedContext) -> list[UUID]:
    link = SharedContextFeedback
    of_row = select(link.feedback_id).where(link.tenant_id == row.tenant_id, link.shared_context_id == row.id)
    return list(db.session.scalars(of_row.order_by(link.created_at, link.id)))


def edit_row(
    row_id: UUID,
    changes: Mapping[str, Any],
    version: int | None,
    *,
    actor: Actor,
    reason: str | None = None,
    at: datetime | None = None,
) -> SharedContext:
    """Change a rule that nobody has changed since `version`; without a version, as it is now."""
    unknown = set(changes) - set(EDITABLE)
    if unknown:
        raise Invalid(f"{min(unknown)} cannot be edited. Use {', '.join(EDITABLE)}.")
    values = dict(changes)
    if "context" in values:
        values["context"] = _clean_context(values["context"])
    if isinstance(values.get("content"), str):
        values["content"] = clean_text(values["content"])
    return _edit(row_id, "edited", values, version, actor, reason, at)


def roll_back(row_id: UUID, to: int, version: int, *, actor: Actor, reason: str | None = None) -> SharedContext:
    """Restore the text, kind, scope, pin and use of an earlier version, as one more version."""
    then = _history_at(row_id, to, actor)
    if then is None or any(name not in then.after for name in EDITABLE):
        raise NotFound(f"There is no version {to} of this row.")
    scope = {name: UUID(then.after[name]) if then.after[name] else None for name in ("agent_id", "entity_type_id")}
    values = {name: then.after[name] for name in EDITABLE} | scope
    if then.after["state"] in RESTORED_STATES:
        values["state"] = then.after["state"]
    why = (reason or "").strip() or f"Restored version {to}."
    return _edit(row_id, "rolled_back", values, version, actor, why, to=to)


def _edit(
    row_id: UUID,
    action: str,
    values: dict[str, Any],
    version: int | None,
    actor: Actor,
    reason: str | None,
    at: datetime | None = None,
    **details: Any,
) -> SharedContext:
    content = values.get("content")
    vector = embed_content(content) if isinstance(content, str) else None
    row = _lock_row(row_id, actor)
    _check_version(row, version)
    _check_move(row, action)
    if "retires" in row.meta:
        raise Refused("A proposal to retire a row has no text. Approve or reject it.", current=row.state)
    now = {"type": row.type, "content": row.content, "context": row.context} | values
    check_text(now["type"], now["content"], now["context"])
    check_scope(values.get("agent_id"), values.get("entity_type_id"), actor)
    if row.state not in RESTORED_STATES:
        values.pop("state", None)
    if values.get("state") == "active" != row.state:
        check_activation(row, None, actor=actor, **values)
    if _change(row, action, values, actor, reason, at, **details) and vector:
        save_vector(row_id, vector, actor=actor)
    return row


def embed_content(content: str) -> list[float]:
    """The vector of a row's text. Computed before a lock is taken."""
    return embed([content])[0]


def set_state(
    row_id: UUID,
    state: str,
    *,
    actor: Actor,
    reason: str | None = None,
    version: int | None = None,
    superseded_by: UUID | None = None,
    at: datetime | None = None,
    override_reason: str | None = None,
) -> SharedContext:
    """Approve, retire, replace or delete a rule. Taking one out of the prompts needs a reason, and so does bringing one
    into use whose proof broke a golden. Deciding about a proposed rule decides about the feedback behind it."""
    if state not in KNOWLEDGE_STATES:
        raise Invalid(f"state: Use one of {', '.join(KNOWLEDGE_STATES)}.")
    row = _lock_row(row_id, actor)
    _check_version(row, version)
    before = row.state
    if before == state:
        return row
    _check_move(row, state)
    if state == "active" and "retires" in row.meta:
        return _approve_retirement(row, actor, reason, at)
    if before == "active" and state == "inactive" and not (reason or "").strip():
        raise Invalid.of({"reason": "Enter a reason."})
    if state == "superseded":
        if superseded_by is None or superseded_by == row_id:
            raise Invalid.of({"superseded_by": "Choose a replacement row."})
        get_own(SharedContext, superseded_by, "knowledge row", actor=actor)
    if state == "active":
        check_activation(row, override_reason, actor=actor)
        reason = " ".join(filter(None, (reason, override_reason))) or None
    if before == "proposed" and state == "active" and "replaces" in row.meta:
        _retire_replaced(row, actor, at)
    heir = superseded_by if state == "superseded" else None
    _change(row, state, {"state": state, "superseded_by": heir}, actor, reason, at)
    if before == "proposed":
        outcomes.note_pending(row)
        outcomes.settle_signals(row, actor=actor, reason=reason, at=at)
    return row


def _approve_retirement(row: SharedContext, actor: Actor, reason: str | None, at: datetime | None) -> SharedContext:
    """Take the row out of use that a proposal is about, if it is still what it was then. The proposal has no use of its
    own afterwards."""
    if row.state != "proposed":
        done = "already approved" if row.state == "superseded" else "already rejected"
        raise Refused(f"This proposal was {done}.", current=row.state)
    target = row.meta["retires"]
    old = _lock_row(UUID(target["id"]), actor)
    if old.version != target["version"]:
        raise Stale("The row to retire has changed. Open that row instead.", _versioned_values(old))
    _change(old, "inactive", {"state": "inactive"}, actor, reason or target["reason"], at)
    _change(row, "approved", {"state": "superseded", "superseded_by": old.id}, actor, reason, at)
    outcomes.note_pending(row)
    outcomes.apply_signals(row, actor=actor, led_to=old.id, at=at)
    return row


def _retire_replaced(row: SharedContext, actor: Actor, at: datetime | None) -> None:
    """A proposed new wording takes the place of the row it was written for, if that is still what it was then."""
    old = _lock_row(UUID(row.meta["replaces"]["id"]), actor)
    if old.version != row.meta["replaces"]["version"]:
        current = _versioned_values(old)
        raise Stale("The row this replaces has changed. Edit that row instead.", current=current)
    values = {"state": "superseded", "superseded_by": row.id}
    _change(old, "superseded", values, actor, "A proposed new wording was approved.", at)


def deactivate_all(
    *, actor: Actor, reason: str, agent_id: UUID | None = None, entity_type_id: UUID | None = None
) -> None:
    """Retire what applied to one agent or one entity type only."""
    scope = SharedContext.agent_id == agent_id if agent_id else SharedContext.entity_type_id == entity_type_id
    ids = db.session.scalars(
        select(SharedContext.id)
        .where(SharedContext.tenant_id == actor.tenant_id, SharedContext.state == "active", scope)
        .order_by(SharedContext.id)
    ).all()
    for row_id in ids:
        set_state(row_id, "inactive", actor=actor, reason=reason)


def reopen_row(row_id: UUID, *, actor: Actor) -> SharedContext:
    """Take back the decision about a proposal, unless the row was changed since. The row it replaced or retired is
    active again, signals that it passed on come back, and the feedback that the decision closed is open again."""
    row = _lock_row(row_id, actor)
    decided = _history_at(row_id, row.version, actor)
    _check_move(row, "reopened")
    if decided is None or decided.before.get("state") != "proposed":
        raise Refused(REFUSALS["reopened"], current=row.state)
    approved = row.active
    _change(row, "reopened", {"state": "proposed", "superseded_by": None}, actor)
    if approved and "replaces" in row.meta:
        _bring_back(row, "replaces", actor, "The new wording was undone.")
    if decided.action == "approved":
        _bring_back(row, "retires", actor, "Its retirement was undone.")
    if decided.action == "merged":
        _take_signals_back(row, UUID(decided.after["superseded_by"]))
    outcomes.reopen_signals(row, decided, actor=actor)
    return row


def _bring_back(row: SharedContext, link: str, actor: Actor, reason: str) -> None:
    """The proposal is about that row as it is now, so that it can be approved once more."""
    old = _lock_row(UUID(row.meta[link]["id"]), actor)
    # The approval made exactly one version of it.
    if old.version != row.meta[link]["version"] + 1:
        raise Refused("The original row has changed. Edit that row instead.", current=old.state)
    _change(old, "active", {"state": "active", "superseded_by": None}, actor, reason)
    row.meta = {**row.meta, link: row.meta[link] | {"version": old.version}}
    db.session.flush()


def _take_signals_back(row: SharedContext, target_id: UUID) -> None:
    """Take from a row the signals that a merge put behind it."""
    link, moved = SharedContextFeedback, [UUID(one) for one in row.meta.get("passed_on", ())]
    of_target = (link.tenant_id == row.tenant_id) & (link.shared_context_id == target_id)
    db.session.execute(delete(link).where(of_target, link.feedback_id.in_(moved)))
    mine = (SharedContext.tenant_id == row.tenant_id) & (SharedContext.id == target_id)
    clearest = update(SharedContext).where(mine, SharedContext.source_feedback_id.in_(moved))
    db.session.execute(clearest.values(source_feedback_id=None))
    row.meta = {name: value for name, value in row.meta.items() if name != "passed_on"}
    db.session.flush()


def merge_row(row_id: UUID, into: UUID, *, actor: Actor, version: int | None = None) -> SharedContext:
    """Merge a proposal into an active row: its signals move there, and the row supersedes it."""
    if into == row_id:
        raise Invalid.of({"into": "Choose another row."})
    # Locked in the order of their ids, so that two who merge crosswise wait instead of blocking each other.
    locked = {one: _lock_row(one, actor) for one in sorted((row_id, into))}
    row, target = locked[row_id], locked[into]
    _check_version(row, version)
    _check_move(row, "merged")
    if "retires" in row.meta:
        raise Refused("A proposal to retire a row can’t be merged. Approve or reject it.", current=row.state)
    if target.state != "active":
        raise Refused(f"The other row is {target.state}. Choose an active row.", current=target.state)
    known = signals_of(target)
    moved = [signal for signal in signals_of(row) if signal not in known]
    link_signals(target, moved)
    target.source_feedback_id = target.source_feedback_id or row.source_feedback_id
    row.meta = {**row.meta, "passed_on": [str(one) for one in moved]}
    _change(row, "merged", {"state": "superseded", "superseded_by": into}, actor, into=str(into))
    outcomes.note_pending(row)
    outcomes.settle_signals(target, actor=actor)
    return row


def _clean_context(context: str | None) -> str | None:
    """An empty condition is none."""
    return clean_text(context) if context and context.strip() else None


def revise_proposal(row_id: UUID, values: Mapping[str, Any], *, actor: Actor) -> SharedContext:
    """Let the one who proposed a row change its words while it waits."""
    words: dict[str, Any] = {"context": _clean_context(values["context"])} if "context" in values else {}
    if "content" in values:
        words["content"] = clean_text(values["content"])
    vector = embed_content(words["content"]) if "content" in words else None
    row = _lock_own_proposal(row_id, actor)
    check_text(row.type, words.get("content", row.content), words.get("context", row.context))
    if _change(row, "edited", words, actor) and vector:
        save_vector(row_id, vector, actor=actor)
    return row


def withdraw_proposal(row_id: UUID, reason: str | None, *, actor: Actor) -> SharedContext:
    """Let the one who proposed a row take it back. That decides nothing about the feedback behind it."""
    row = _lock_own_proposal(row_id, actor)
    _change(row, "withdrawn", {"state": "deleted"}, actor, reason)
    return row


def is_own_proposal(row: SharedContext, actor: Actor) -> bool:
    """Whether a tool of this agent, or of this person where no agent acts, proposed the row."""
    by_agent = row.created_by_agent_id == actor.agent_id
    return "proposed" in row.meta and by_agent and (actor.agent_id is not None or row.created_by_user_id == actor.id)


def _lock_own_proposal(row_id: UUID, actor: Actor) -> SharedContext:
    row: SharedContext = get_own(SharedContext, row_id, "knowledge row", actor=actor, lock=True)
    _check_move(row, "withdrawn")
    if not is_own_proposal(row, actor):
        raise Forbidden("Someone else proposed this. Propose your own row.")
    return row


def _lock_row(row_id: UUID, actor: Actor) -> SharedContext:
    """The row, locked until the transaction ends."""
    if not actor.is_admin or actor.agent_id:
        raise Forbidden("Only admins can change knowledge. Agents can propose it.")
    return get_own(SharedContext, row_id, "knowledge row", actor=actor, lock=True)


def _check_version(row: SharedContext, version: int | None) -> None:
    """Refuse a change to another version than the one that was read."""
    if version is not None and row.version != version:
        current = {"id": str(row.id), "version": row.version, **_versioned_values(row)}
        raise Stale("Someone else changed this row after you opened it. Review it again.", current=current)


def _check_move(row: SharedContext, action: str) -> None:
    """Refuse an action that the row's state does not allow."""
    if row.state not in FROM[action]:
        sentence = REFUSALS.get(action, "This row is {state} and cannot become {action}.")
        raise Refused(sentence.format(state=row.state, action=action), current=row.state)


def _change(
    row: SharedContext,
    action: str,
    values: Mapping[str, Any],
    actor: Actor,
    reason: str | None = None,
    at: datetime | None = None,
    **details: Any,
) -> bool:
    """Write a locked row with these values as its next version; False when that changes nothing."""
    before = _versioned_values(row)
    for name, value in values.items():
        setattr(row, name, value)
    if _versioned_values(row) == before:
        return False
    if action in CHECKED_ACTIONS:
        check_visible(row.content, row.context)
    row.active = row.state == "active"
    row.version += 1
    row.updated_at = at or datetime.now(UTC)
    row.rank = _compute_rank(row)
    _save(row)
    _write_history(row, action, before, actor, reason)
    states = {"before": before["state"], "after": row.state}
    audit.record(actor, f"knowledge.{action}", "shared_context", row.id, **states, reason=reason, **details)
    if row.active and before["state"] != "active":
        queue_event("knowledge.activated", row.id, actor=actor)
    return True


def _versioned_values(row: SharedContext) -> dict[str, Any]:
    """What an edit can change, in JSON's types."""
    values = {name: getattr(row, name) for name in VERSIONED}
    return {name: str(value) if isinstance(value, UUID) else value for name, value in values.items()}


def _save(row: SharedContext) -> None:
    """Two active rows that say the same in the same scope would only take room in the prompt."""
    try:
        with db.session.begin_nested():
            db.session.add(row)
            db.session.flush()
    except IntegrityError as trouble:
        if "shared_context_same_key" not in str(trouble.orig):
            raise
        raise Refused("An active row of this kind and scope has the same text.") from None


def _write_history(row: SharedContext, action: str, before: dict[str, Any], actor: Actor, reason: str | None) -> None:
    db.session.add(
        SharedContextHistory(
            tenant_id=actor.tenant_id,
            shared_context_id=row.id,
            version=row.version,
            action=action,
            before=before,
            after=_versioned_values(row),
            reason=reason,
            user_id=None if actor.agent_id else actor.id,
            agent_id=actor.agent_id,
            created_at=row.updated_at,
        )
    )
    db.session.flush()


def _history_at(row_id: UUID, version: int, actor: Actor) -> SharedContextHistory | None:
    history = SharedContextHistory
    return db.session.scalar(
        select(history).where(
            history.tenant_id == actor.tenant_id, history.shared_context_id == row_id, history.version == version
        )
    )


def _compute_rank(row: SharedContext) -> float:
    used = SharedContextUsage
    mine = (used.tenant_id == row.tenant_id) & (used.shared_context_id == row.id)
    # The row itself is written behind a savepoint, not by this query.
    with db.session.no_autoflush:
        received = db.session.execute(select(used.helpful, used.harmful).where(mine)).one_or_none()
    helpful, harmful = received or (0, 0)
    return rank(_age_in_days(row.updated_at), helpful=helpful, harmful=harmful, pinned=row.pinned)


def _age_in_days(moment: datetime) -> float:
    return (datetime.now(UTC) - moment).total_seconds() / 86400
