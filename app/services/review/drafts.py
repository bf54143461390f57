"""Drafts: changes of agents and entity types that agents propose. Nothing changes until a person approves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, text
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db import db, get_own
from app.db.paging import Page, Slice, read_page
from app.errors import Forbidden, Invalid, NotFound, Refused, Stale, Throttled
from app.formats.agent_config import AgentConfig, check_config
from app.models import Agent, AgentSession, ChangeDraft, EntityType, Feedback, User
from app.models.agents import DRAFT_STATUSES, REPLAYABLE_KINDS
from app.services import audit
from app.services.agents import versions
from app.services.entities import store as entity_store
from app.services.evals import baselines, run_lists
from app.services.evals.baselines import Changes
from app.services.evals.run_lists import RunRow
from app.services.evals.runs import NewRun, start_run
from app.services.feedback import review as feedback_review
from app.services.knowledge.validation import check_signals
from app.services.lists import filters as declare
from app.services.lists.filters import Condition, Filters
from app.services.privacy import name_of
from app.services.webhooks.queue import queue_event
from app.text.hidden_characters import strip_hidden

MAX_PER_HOUR = 20
MAX_SETS = 10
MAX_OF_AGENT = 5
REJECTED_NOTE = "The draft made of it was rejected"
LOCK_DRAFTS = text("select pg_advisory_xact_lock(hashtextextended('drafts:' || :tenant, 0))")
Author = aliased(Agent)
Decider = aliased(User)


@dataclass(frozen=True, kw_only=True)
class DraftFilters(Filters):
    status: str | None = declare.choice(DRAFT_STATUSES)

    def conditions(self) -> list[Condition]:
        return [*self._within(ChangeDraft.created_at), *self.compare(ChangeDraft, self.chosen)]


@dataclass(frozen=True)
class DraftRow:
    """A draft as it is read. `stale` where the agent or the type changed since."""

    id: UUID
    agent_id: UUID | None
    agent: str | None
    entity_type_id: UUID | None
    entity_type: str | None
    base_version: int | None
    before: dict[str, Any]
    after: dict[str, Any]
    reason: str | None
    status: str
    session_id: UUID | None
    author: str | None
    author_agent: str | None
    trial_run_ids: list[UUID]
    decided_by: str | None
    decided_at: datetime | None
    decision_note: str | None
    created_at: datetime
    feedback_ids: list[UUID]
    current_version: int | None
    current_name: str | None
    current_fields: dict[str, Any] | None

    @property
    def kind(self) -> str:
        return "agent" if self.agent_id else "entity_type"

    @property
    def target(self) -> str:
        return self.agent or self.entity_type or ""

    @property
    def stale(self) -> bool:
        if self.status != "open":
            return False
        if self.agent_id:
            return self.current_version != self.base_version
        return {"name": self.current_name, "fields": self.current_fields} != self.before


@dataclass(frozen=True)
class Trial:
    """What the goldens of one set say about a draft. `changes` compares with the set's last score."""

    run: RunRow
    changes: Changes | None


# Proposing


def draft_agent(
    agent_id: UUID,
    changes: Mapping[str, Any],
    *,
    actor: Actor,
    reason: str | None,
    session_id: UUID | None = None,
    feedback_ids: Sequence[UUID] = (),
    at: datetime | None = None,
) -> ChangeDraft:
    """Propose other instructions, skills or tool groups for an agent."""
    agent = versions.get_agent(agent_id, actor=actor)
    if agent.is_system:
        raise Forbidden(f"{agent.slug} is built in. Tools can’t change it.")
    if agent.archived_at:
        raise Refused(f"{agent.slug} is archived. Restore it before changing it.")
    number = agent.current_version
    before = versions.read_contents(agent_id, [number], actor=actor)[number]
    after = before | dict(changes)
    check_config({name: after[name] for name in AgentConfig.model_fields if name in changes})
    if after == before:
        raise Invalid("This changes nothing. Send other `instructions`, `skills` or `toolGroups`.")
    return _write(
        actor, agent_id=agent_id, base_version=number, before=before, after=after, reason=reason,
        session_id=session_id, feedback_ids=list(feedback_ids), at=at,
    )  # fmt: skip


def draft_type(
    type_id: UUID,
    fields: Mapping[str, Any],
    *,
    name: str | None = None,
    actor: Actor,
    reason: str | None,
    session_id: UUID | None = None,
    feedback_ids: Sequence[UUID] = (),
    at: datetime | None = None,
) -> ChangeDraft:
    """Propose another name, new fields or other schemas of fields. No field is taken away."""
    kind: EntityType = get_own(EntityType, type_id, "entity type", actor=actor)
    if kind.archived_at:
        raise Refused(f"The entity type {kind.slug} is archived.")
    before = {"name": kind.name, "fields": kind.fields}
    after: dict[str, Any] = {"name": (name or kind.name).strip(), "fields": {**kind.fields, **fields}}
    entity_store.check_definition(after["name"], after["fields"])
    if after == before:
        raise Invalid("This changes nothing. Send other `fields` or another `name`.")
    return _write(
        actor, entity_type_id=type_id, before=before, after=after, reason=reason, session_id=session_id,
        feedback_ids=list(feedback_ids), at=at,
    )  # fmt: skip


def _write(actor: Actor, at: datetime | None, **values: Any) -> ChangeDraft:
    """A newer draft of the same author for the same target takes the place of the earlier one."""
    actor.check_admin("Only admins’ tools can draft changes.")
    db.session.execute(LOCK_DRAFTS, {"tenant": str(actor.tenant_id)})
    _check_rate(actor)
    check_signals(values["feedback_ids"], actor)
    targets = {name: values.get(name) for name in ("agent_id", "entity_type_id")}
    for earlier in db.session.scalars(select(ChangeDraft).where(*_open(actor)).filter_by(**targets)).all():
        if _is_own(earlier, actor):
            _settle(earlier, "withdrawn", actor, "Replaced by a newer draft.")
    draft = ChangeDraft(
        tenant_id=actor.tenant_id, created_by_agent_id=actor.agent_id, created_by=actor.id, status="open",
        **({"created_at": at} if at else {}), **values,
    )  # fmt: skip
    db.session.add(draft)
    db.session.flush()
    audit.record(actor, "draft.created", "change_draft", draft.id, **_target_of(draft))
    queue_event("proposal.created", draft.id, actor=actor, draft=True)
    return draft


def _check_rate(actor: Actor) -> None:
    since = datetime.now(UTC) - timedelta(hours=1)
    mine = ChangeDraft.tenant_id == actor.tenant_id, ChangeDraft.created_at > since
    if (db.session.scalar(select(func.count()).select_from(ChangeDraft).where(*mine)) or 0) >= MAX_PER_HOUR:
        raise Throttled(f"At most {MAX_PER_HOUR} drafts an hour in a workspace. Draft this later.", 600)


def withdraw_draft(draft_id: UUID, *, actor: Actor) -> ChangeDraft:
    """Let the author of an open draft take it back."""
    draft = _lock_open(draft_id, actor)
    if not _is_own(draft, actor):
        raise Forbidden("Another agent or person made this draft. Only its author withdraws it.")
    _settle(draft, "withdrawn", actor, None)
    return draft


def _is_own(draft: ChangeDraft, actor: Actor) -> bool:
    return draft.created_by_agent_id == actor.agent_id and (actor.agent_id is not None or draft.created_by == actor.id)


# Deciding


def approve_draft(draft_id: UUID, *, actor: Actor, note: str | None = None) -> ChangeDraft:
    """Make a draft the agent's next version, or the definition of the type. Refused once either changed."""
    draft = _lock_decidable(draft_id, actor)
    if draft.agent_id:
        agent: Agent = get_own(Agent, draft.agent_id, "agent", actor=actor, lock=True)
        if agent.current_version != draft.base_version:
            said = f"{agent.slug} has version {agent.current_version} now. This draft is about {draft.base_version}."
            raise Stale(f"{said} Reject it or edit the agent.", {"version": agent.current_version})
        saved = versions.save_version(agent.id, draft.after, actor=actor, note=_version_note(draft))
        outcome = {"kind": "agent_version", "id": str(agent.id), "text": f"{agent.slug} v{saved.version}"}
    else:
        kind = entity_store.change_type(draft.entity_type_id, draft.before, draft.after, actor=actor)
        outcome = {"kind": "entity_type", "id": str(kind.id), "text": _change_of_type(draft, kind)}
    _settle(draft, "approved", actor, _clean_note(note))
    _close_feedback(draft, "applied", actor=actor, outcome=outcome)
    return draft


def _change_of_type(draft: ChangeDraft, kind: EntityType) -> str:
    """`the record type Deal has the new field currency`; authors of feedback read it."""
    before, after = draft.before["fields"], draft.after["fields"]
    added = [name for name in after if name not in before]
    changed = [name for name in after if name in before and after[name] != before[name]]
    parts = [f"the new field{'s' if len(added) > 1 else ''} {', '.join(added)}"] if added else []
    parts += [f"other rules for {', '.join(changed)}"] if changed else []
    return f"the record type {kind.name} has {' and '.join(parts) or 'another name'}"


def _close_feedback(draft: ChangeDraft, action: str, **decision: Any) -> None:
    """Decide about the feedback behind a draft that is still open."""
    mine = Feedback.tenant_id == draft.tenant_id, Feedback.id.in_(draft.feedback_ids)
    is_open = Feedback.status.in_(feedback_review.FROM[action])
    ids = db.session.scalars(select(Feedback.id).where(*mine, is_open).with_for_update()).all()
    if ids:
        feedback_review.review(ids, action, **decision)


def _version_note(draft: ChangeDraft) -> str:
    return f"Approved draft: {draft.reason}"[:500] if draft.reason else "Approved draft"


def reject_draft(draft_id: UUID, *, actor: Actor, note: str | None = None) -> ChangeDraft:
    """Turn a draft down. Nothing changes."""
    draft = _lock_decidable(draft_id, actor)
    note = _clean_note(note)
    _settle(draft, "rejected", actor, note)
    _close_feedback(draft, "dismissed", actor=actor, notes=f"{REJECTED_NOTE}{f': {note}' if note else '.'}")
    return draft


def reopen_draft(draft_id: UUID, *, actor: Actor) -> ChangeDraft:
    """Take a decision back: a rejection, or the approval of an entity type's change, which gets its definition from
    before. An agent has versions for that."""
    _check_person(actor)
    draft: ChangeDraft = get_own(ChangeDraft, draft_id, "draft", actor=actor, lock=True)
    undone = draft.status == "approved" and draft.entity_type_id is not None
    if undone:
        entity_store.change_type(draft.entity_type_id, draft.after, draft.before, actor=actor)
        ours = Feedback.outcome["id"].astext == str(draft.entity_type_id)
    elif draft.status == "rejected":
        ours = Feedback.review_notes.startswith(REJECTED_NOTE, autoescape=True)
    elif draft.status == "approved":
        raise Refused("Restore the agent’s earlier version instead.", current=draft.status)
    else:
        raise Refused(f"This draft is {draft.status}. Only decisions can be undone.", current=draft.status)
    draft.status, draft.decided_by, draft.decided_at, draft.decision_note = "open", None, None, None
    db.session.flush()
    status = "applied" if undone else "dismissed"
    behind = Feedback.tenant_id == draft.tenant_id, Feedback.id.in_(draft.feedback_ids), Feedback.status == status
    if ids := db.session.scalars(select(Feedback.id).where(*behind, ours)).all():
        feedback_review.review(ids, "reopen", actor=actor)
    audit.record(actor, "draft.undone" if undone else "draft.reopened", "change_draft", draft.id, **_target_of(draft))
    return draft


def _check_person(actor: Actor) -> None:
    if not actor.is_admin or actor.agent_id or actor.role == "system":
        raise Forbidden("Only admins can decide about drafts.")


def _clean_note(note: str | None) -> str | None:
    return strip_hidden(note).strip() or None if note else None


def _lock_decidable(draft_id: UUID, actor: Actor) -> ChangeDraft:
    _check_person(actor)
    return _lock_open(draft_id, actor)


def _lock_open(draft_id: UUID, actor: Actor) -> ChangeDraft:
    draft: ChangeDraft = get_own(ChangeDraft, draft_id, "draft", actor=actor, lock=True)
    if draft.status != "open":
        raise Refused(f"Someone else already decided. This draft is {draft.status}.", current=draft.status)
    return draft


def _settle(draft: ChangeDraft, status: str, actor: Actor, note: str | None) -> None:
    draft.status, draft.decided_at, draft.decision_note = status, datetime.now(UTC), note
    draft.decided_by = None if actor.agent_id else actor.id
    db.session.flush()
    audit.record(actor, f"draft.{status}", "change_draft", draft.id, note=draft.decision_note, **_target_of(draft))


def _target_of(draft: ChangeDraft) -> dict[str, str]:
    ids = {"agent": draft.agent_id, "entity_type": draft.entity_type_id}
    return {name: str(one) for name, one in ids.items() if one}


# What the goldens say


def start_trial(draft_id: UUID, *, actor: Actor) -> list[UUID]:
    """Replay the agent's goldens with the draft, one trial run for each of their sets; those under way, if any are."""
    draft = _lock_decidable(draft_id, actor)
    if draft.agent_id is None:
        raise Refused("Goldens can’t test entity types. They keep their recorded fields.")
    agent = versions.get_agent(draft.agent_id, actor=actor)
    if agent.current_version != draft.base_version:
        raise Stale(f"{agent.slug} has a newer version. This draft can no longer be approved.")
    known = run_lists.get_run_rows(draft.trial_run_ids, actor=actor).values()
    if any(run.open for run in known):
        return draft.trial_run_ids
    sets = _sets_of(agent, actor)
    if draft.trial_version_id is None:
        draft.trial_version_id = versions.add_trial_version(agent.id, draft.after, actor=actor).id
    new = NewRun(agent_id=agent.id, agent_version_id=draft.trial_version_id, own_only=True)
    draft.trial_run_ids = [start_run(replace(new, set_name=name), actor=actor).id for name in sets]
    db.session.flush()
    audit.record(actor, "draft.tried", "change_draft", draft.id, sets=sets, **_target_of(draft))
    return draft.trial_run_ids


def _sets_of(agent: Agent, actor: Actor) -> list[str]:
    if agent.kind not in REPLAYABLE_KINDS:
        raise Refused(f"{agent.slug} runs outside Upshot, so its goldens can’t be replayed.")
    golden = AgentSession.golden_set
    mine = AgentSession.tenant_id == actor.tenant_id, AgentSession.agent_id == agent.id, golden.is_not(None)
    sets = [name for name in db.session.scalars(select(golden).where(*mine).distinct().order_by(golden)) if name]
    if not sets:
        raise Refused(f"{agent.slug} has no goldens yet. Promote a session first.")
    return sets[:MAX_SETS]


def trials_of(rows: Sequence[DraftRow], *, actor: Actor) -> dict[UUID, list[Trial]]:
    """What the goldens say about each of these drafts. Two queries at most."""
    ids = [run_id for row in rows for run_id in row.trial_run_ids]
    runs, changes = run_lists.get_run_rows(ids, actor=actor), baselines.changes_of(ids, actor=actor)
    return {row.id: [Trial(runs[one], changes.get(one)) for one in row.trial_run_ids if one in runs] for row in rows}


def evidence_of(rows: Sequence[DraftRow], *, actor: Actor) -> dict[UUID, list[Any]]:
    """The feedback behind each of these drafts, newest first, as `id, rating, comment, author, session_id, created_at`.
    One query, none for none."""
    ids = {one for row in rows for one in row.feedback_ids}
    if not ids:
        return {}
    author = name_of(Feedback.created_by, actor, Feedback.origin == "user").label("author")
    found = db.session.execute(
        select(Feedback.id, Feedback.rating, Feedback.comment, author, Feedback.session_id, Feedback.created_at)
        .outerjoin(User, User.id == Feedback.created_by)
        .where(Feedback.tenant_id == actor.tenant_id, Feedback.id.in_(ids))
        .order_by(Feedback.created_at.desc(), Feedback.id)
    ).all()
    return {row.id: [one for one in found if one.id in row.feedback_ids] for row in rows}


# Reading


def list_drafts(filters: DraftFilters, page: Page, *, actor: Actor) -> Slice[DraftRow]:
    """One page of drafts, newest first. Two queries."""
    _check_reader(actor)
    where = [ChangeDraft.tenant_id == actor.tenant_id, *filters.conditions()]
    found = read_page(_select(), page, at=ChangeDraft.created_at, id=ChangeDraft.id, where=where)
    return found.map(lambda row: DraftRow(*row))


def open_drafts_of(agent_id: UUID, *, actor: Actor) -> Sequence[Any]:
    """The newest open drafts of an agent, as `id, reason, created_at`. One query."""
    _check_reader(actor)
    return db.session.execute(
        select(ChangeDraft.id, ChangeDraft.reason, ChangeDraft.created_at)
        .where(*_open(actor), ChangeDraft.agent_id == agent_id)
        .order_by(ChangeDraft.created_at.desc(), ChangeDraft.id.desc())
        .limit(MAX_OF_AGENT)
    ).all()


def get_draft(draft_id: UUID, *, actor: Actor) -> DraftRow:
    """One draft. One query."""
    _check_reader(actor)
    wanted = ChangeDraft.tenant_id == actor.tenant_id, ChangeDraft.id == draft_id
    row = db.session.execute(_select().where(*wanted)).one_or_none()
    if row is None:
        raise NotFound("There is no such draft in this workspace.")
    return DraftRow(*row)


def _open(actor: Actor) -> tuple[Any, ...]:
    return ChangeDraft.tenant_id == actor.tenant_id, ChangeDraft.status == "open"


def _check_reader(actor: Actor) -> None:
    actor.check_admin("Only admins can read drafts.")


def _select() -> Any:
    draft = ChangeDraft
    return (
        select(
            draft.id, draft.agent_id, Agent.slug, draft.entity_type_id, EntityType.slug, draft.base_version,
            draft.before, draft.after, draft.reason, draft.status, draft.session_id, User.name, Author.slug,
            draft.trial_run_ids, Decider.name, draft.decided_at, draft.decision_note, draft.created_at,
            draft.feedback_ids, Agent.current_version, EntityType.name, EntityType.fields,
        )
        .select_from(draft)
        .outerjoin(Agent, Agent.id == draft.agent_id)
        .outerjoin(EntityType, EntityType.id == draft.entity_type_id)
        .outerjoin(Author, Author.id == draft.created_by_agent_id)
        .outerjoin(User, User.id == draft.created_by)
        .outerjoin(Decider, Decider.id == draft.decided_by)
    )  # fmt: skip
