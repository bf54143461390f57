"""What a review may do with its feedback, whoever decides. These rules hold for the deterministic reviewer and for a
model alike: each decision names only feedback of the batch, proposes and never activates, and deletes nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db, get_own
from app.errors import Forbidden, Invalid, Refused
from app.learning.hygiene.checks import Row
from app.learning.review.merge import find_rejected
from app.learning.review.types import Dismissal, Merge, Proposal, Rule, Signal
from app.models import Agent, ChangeDraft, SharedContext
from app.services import audit
from app.services.feedback import review as feedback_review
from app.services.knowledge import hygiene, proposals
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from app.services.sessions.events import NewEvent

# A rule with one of these is never proposed; people are asked about the other findings.
FORBIDDEN_FINDINGS = ("addresses the model", "hidden", "duplicate")
# Marks of sections and fences. A rule is plain sentences; what looks like a part of the prompt is none.
FORGED = re.compile(r"#{2,}|`{3,}|={3,}|</?[a-z][^<>\n]*>|<\|", re.IGNORECASE)
PROPOSED_TYPES = ("correction", "lesson", "insight")
MIN_SESSIONS = 2
TOO_LITTLE = "This needs two people in two sessions, an admin's flag or a failed replay."


@dataclass(frozen=True)
class Batch:
    """The feedback that decisions may be about, and the rules that people turned down. `by_model` says that a model
    decides."""

    signals: Mapping[UUID, Signal]
    rejected: Sequence[Rule] = ()
    by_model: bool = False

    def pick(self, ids: Iterable[UUID]) -> list[Signal]:
        """Rows of the batch, each once."""
        wanted = list(dict.fromkeys(ids))
        if not wanted:
            raise Invalid("Name the feedback that this is about.")
        foreign = next((one for one in wanted if one not in self.signals), None)
        if foreign is not None:
            raise Forbidden(f"The feedback {foreign} is not in this batch.")
        return [self.signals[one] for one in wanted]

    def of(self, ids: Iterable[UUID]) -> Batch:
        """The batch with these rows alone."""
        return replace(self, signals={signal.id: signal for signal in self.pick(ids)})


@dataclass(frozen=True)
class Done:
    """What a decision changed, with its events."""

    events: list[NewEvent] = field(default_factory=list)
    row_id: UUID | None = None
    moved: Sequence[UUID] = ()


def is_evidence(signals: Collection[Signal]) -> bool:
    """Whether a rule may be proposed: two sessions and two people, an admin's flag, or a failed replay. Rows of the
    system count by their session."""
    if any(signal.admin_flag or signal.kind == "replay_failure" for signal in signals):
        return True
    sessions = {signal.session_id for signal in signals}
    sources = {signal.author_id or signal.session_id for signal in signals}
    return len(sessions) >= MIN_SESSIONS and len(sources) >= MIN_SESSIONS


def propose(proposal: Proposal, batch: Batch, *, actor: Actor, session_id: UUID) -> Done:
    """Propose a rule with its evidence. The feedback is reviewed and stays open until a person decides."""
    signals = batch.pick(proposal.signal_ids)
    if not is_evidence(signals):
        raise Refused(TOO_LITTLE)
    if proposal.type not in PROPOSED_TYPES:
        raise Forbidden(f"A review proposes a {', '.join(PROPOSED_TYPES)}; people write the other types.")
    if FORGED.search(f"{proposal.content}\n{proposal.context or ''}"):
        raise Refused("A rule is plain sentences, without headings, fences or tags.")
    _check_scope(proposal, signals, actor)
    given = {name: getattr(proposal, name) for name in ("type", "content", "context", "agent_id", "entity_type_id")}
    ids = [signal.id for signal in signals]
    new = NewRow(**given, source_feedback_id=ids[0], feedback_ids=ids)
    row = proposals.propose_row(new, actor=actor, session_id=session_id)
    found = hygiene.check_rows([row.id], actor=actor).get(row.id, [])
    wrong = next((finding for finding in found if finding.check in FORBIDDEN_FINDINGS), None)
    if wrong is not None:
        raise Refused(f"{wrong.check}: {wrong.reason}")
    _check_rejected(row, batch.rejected)
    moved = feedback_review.settle_pending(ids, "reviewed", actor=actor, notes=_note("Proposed", row.content))
    return Done([_changed(row, "proposed", proposal.reason), *_reviewed(ids, "reviewed", row.id)], row.id, moved)


def _check_scope(proposal: Proposal, signals: Sequence[Signal], actor: Actor) -> None:
    """A rule for one agent is for the agent that the feedback is about, and never for one of the workspace's own."""
    if proposal.agent_id is None:
        return
    if proposal.agent_id not in {signal.agent_id for signal in signals}:
        raise Forbidden("A rule is for the agent that its feedback is about, or for all.")
    agent = db.session.scalar(select(Agent).where(Agent.tenant_id == actor.tenant_id, Agent.id == proposal.agent_id))
    if agent is None or agent.is_system:
        raise Forbidden("A review makes no rule for the workspace's own agents.")


def _check_rejected(row: SharedContext, rejected: Sequence[Rule]) -> None:
    """What a person turned down is not proposed again in other words."""
    new = Row(row.content, row.context, row.id, row.agent_id, row.entity_type_id)
    known = [Row(rule.content, rule.context, rule.id, rule.agent_id, rule.entity_type_id) for rule in rejected]
    if find_rejected(new, known):
        raise Refused("A person rejected a rule that says the same.")


def merge(merged: Merge, batch: Batch, *, actor: Actor) -> Done:
    """Put feedback behind a rule that says it already. Feedback from before an active rule is applied by it; what came
    after is reviewed, since the rule did not help."""
    signals = batch.pick(merged.signal_ids)
    row = proposals.get_model(merged.rule_id, actor=actor)
    if row.state not in ("active", "proposed"):
        raise Refused(f"This rule is {row.state}; feedback joins one that is active or proposed.", current=row.state)
    if row.agent_id is not None and row.agent_id not in {signal.agent_id for signal in signals}:
        raise Forbidden("This rule is for another agent than its feedback.")
    known = set(knowledge_rows.signals_of(row))
    wanted = [signal.id for signal in signals if signal.id not in known]
    knowledge_rows.link_signals(row, wanted)
    entries = [(row.id, {"feedback_id": feedback_id}) for feedback_id in wanted]
    audit.record_each(actor, "knowledge.signal_added", "shared_context", entries)
    since = row.updated_at if row.state == "active" else None
    before = [signal.id for signal in signals if since is not None and signal.occurred_at < since]
    after = [signal.id for signal in signals if signal.id not in before]
    outcome = {"kind": "knowledge", "id": str(row.id), "text": row.content}
    note = _note("Same as the rule", row.content)
    moved = feedback_review.settle_pending(before, "applied", actor=actor, notes=note, outcome=outcome)
    moved += feedback_review.settle_pending(after, "reviewed", actor=actor, notes=note)
    events = [_changed(row, "merged", merged.reason)]
    return Done([*events, *_reviewed(before, "applied", row.id), *_reviewed(after, "reviewed", row.id)], row.id, moved)


def link_draft(draft_id: UUID, ids: Sequence[UUID], batch: Batch, *, actor: Actor) -> Done:
    """Put feedback behind a draft that was just made of it, which needs as much evidence as a rule."""
    signals = batch.pick(ids)
    if not is_evidence(signals):
        raise Refused(TOO_LITTLE)
    draft: ChangeDraft = get_own(ChangeDraft, draft_id, "draft", actor=actor)
    draft.feedback_ids = list(ids)
    note = _note("Drafted a change", draft.reason or "")
    moved = feedback_review.settle_pending(ids, "reviewed", actor=actor, notes=note)
    return Done(_reviewed(list(ids), "reviewed", None, note), None, moved)


def dismiss(dismissal: Dismissal, batch: Batch, *, actor: Actor) -> Done:
    """Close feedback that needs no change. A model dismisses neither what an admin flagged nor what two people say."""
    signals = batch.pick(dismissal.signal_ids)
    if not dismissal.reason.strip():
        raise Invalid("Say why it needs no change.")
    if batch.by_model and is_evidence(signals):
        raise Forbidden("Only a person dismisses what an admin flagged or what two people say.")
    if batch.by_model and is_evidence(list(batch.signals.values())):
        raise Forbidden("Only a person dismisses a part of what two people say.")
    ids = [signal.id for signal in signals]
    notes = f"{feedback_review.BY_MODEL}{dismissal.reason}" if batch.by_model else dismissal.reason
    moved = feedback_review.settle_pending(ids, "dismissed", actor=actor, notes=notes)
    return Done(_reviewed(moved, "dismissed", None, dismissal.reason), None, moved)


def _changed(row: SharedContext, action: str, reason: str) -> NewEvent:
    shown = {"type": row.type, "state": row.state, "content": row.content, "context": row.context}
    payload = {"shared_context_id": str(row.id), "action": action, **shown, "reason": reason}
    return NewEvent("knowledge.changed", payload)


def _reviewed(ids: Sequence[UUID], status: str, row_id: UUID | None, notes: str | None = None) -> list[NewEvent]:
    """An event for at most 200 rows, so that a large review does not fill its session."""
    size = feedback_review.MAX_AT_ONCE
    parts = [[str(one) for one in ids[start : start + size]] for start in range(0, len(ids), size)]
    about = {"action": status, "notes": notes, "shared_context_id": str(row_id) if row_id else None}
    return [NewEvent("feedback.reviewed", {"feedback_id": part[0], "feedback_ids": part, **about}) for part in parts]


def _note(what: str, content: str) -> str:
    return f"{what}: {content}"[: feedback_review.MAX_NOTE_LENGTH]
