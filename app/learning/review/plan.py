"""What becomes of a batch of feedback: proposals, merges, dismissals, and what waits."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from app.learning.hygiene.prompt_talk import find_prompt_talk
from app.learning.review.groups import group_signals, words_of
from app.learning.review.types import (
    Agent,
    Dismissal,
    EntityType,
    KnownPattern,
    Pattern,
    Plan,
    Proposal,
    Rule,
    Signal,
)

WAITS = "Waiting for a second signal."


def plan_review(
    signals: Iterable[Signal],
    *,
    agents: Sequence[Agent],
    entity_types: Sequence[EntityType],
    rules: Sequence[Rule],
    now: datetime,
    known: Sequence[KnownPattern] = (),
    wait_days: int = 14,
) -> Plan:
    """Decide about each signal. The order of the signals makes no difference."""
    rows = {signal.id: signal for signal in sorted(signals, key=lambda row: (row.occurred_at, row.id))}
    dismissed = {id: reason for id, row in rows.items() if (reason := _find_noise(row))}
    open_rows = [row for id, row in rows.items() if id not in dismissed]
    patterns = group_signals(open_rows, agents=agents, entity_types=entity_types, known=known)
    proposals = [_propose(pattern, rows) for pattern in patterns if _is_enough(pattern, rows)]
    used = {id for proposal in proposals for id in proposal.signal_ids}
    for row in open_rows:
        if row.id not in used and row.occurred_at < now - timedelta(days=wait_days):
            dismissed[row.id] = f"No second signal in {wait_days} days."
    reasons = sorted(set(dismissed.values()))
    dismissals = [Dismissal(tuple(id for id in dismissed if dismissed[id] == reason), reason) for reason in reasons]
    pending = {row.id: WAITS for row in open_rows if row.id not in used and row.id not in dismissed}
    return Plan(patterns, proposals, (), dismissals, pending)


def _find_noise(row: Signal) -> str | None:
    if find_prompt_talk(words_of(row)):
        return "It speaks to the reviewer, not about the work."
    if row.rating == "positive":
        return "Praise, nothing to change."
    return None


def _is_enough(pattern: Pattern, rows: dict[UUID, Signal]) -> bool:
    """Two sessions and two authors, or one flag of an admin."""
    members = [rows[id] for id in pattern.signal_ids]
    authors = {row.author_id or row.session_id for row in members}
    sessions = {row.session_id for row in members}
    return any(row.admin_flag for row in members) or (len(authors) > 1 and len(sessions) > 1)


def _propose(pattern: Pattern, rows: dict[UUID, Signal]) -> Proposal:
    clearest = rows[pattern.signal_ids[0]]
    reason = f"{len(pattern.signal_ids)} signals say the same."
    return Proposal(
        "correction",
        words_of(clearest),
        None,
        pattern.agent_id,
        pattern.entity_type_id,
        pattern.signal_ids,
        reason,
    )
