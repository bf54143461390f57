"""What becomes of a batch of feedback: proposals, merges, dismissals, and what waits."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from app.learning.review.decide import OUTNUMBERED, SUSPECT, Decisions, Workspace, decide, is_enough
from app.learning.review.groups import group_signals, make_pattern
from app.learning.review.noise import find_noise, is_suspect
from app.learning.review.types import Agent, Dismissal, EntityType, KnownPattern, Pattern, Plan, Rule, Signal

__all__ = ["is_enough", "plan_review"]
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
    suspect = {id: SUSPECT for id, row in rows.items() if is_suspect(row)}
    noise = {id: reason for id, row in rows.items() if id not in suspect and (reason := find_noise(row))}
    made = Decisions(pending=suspect, dismissed=noise)
    open_rows = {id: row for id, row in rows.items() if id not in suspect and id not in noise}
    groups = group_signals(open_rows.values(), agents=agents, entity_types=entity_types, known=known)
    workspace = Workspace(agents, entity_types, rules, list(rows.values()), now.date())
    for group in groups:
        decide(group, [rows[id] for id in group.pattern.signal_ids], workspace, made)
    _wait(open_rows, made, now - timedelta(days=wait_days), wait_days)
    patterns = [part for group in groups for part in _split_pattern(group.pattern, made.pending, rows, entity_types)]
    return Plan(patterns, made.proposals, made.merges, _group_dismissals(made.dismissed), made.pending)


def _split_pattern(
    pattern: Pattern, pending: Mapping[UUID, str], rows: Mapping[UUID, Signal], kinds: Sequence[EntityType]
) -> list[Pattern]:
    """A pattern without the rows that say the opposite of what most say; these are one of their own."""
    gone = [rows[id] for id in pattern.signal_ids if pending.get(id) == OUTNUMBERED]
    if not gone:
        return [pattern]
    stay = [rows[id] for id in pattern.signal_ids if pending.get(id) != OUTNUMBERED]
    return [make_pattern(stay, pattern.known_id, kinds), make_pattern(gone, None, kinds)]


def _wait(rows: Mapping[UUID, Signal], made: Decisions, oldest: datetime, wait_days: int) -> None:
    """What nobody else says waits, and is dismissed when it has waited long enough."""
    decided = made.decided()
    for id, row in rows.items():
        if id in decided:
            continue
        if row.occurred_at < oldest:
            made.dismissed[id] = f"No second signal in {wait_days} days."
        else:
            made.pending[id] = WAITS


def _group_dismissals(dismissed: Mapping[UUID, str]) -> list[Dismissal]:
    reasons = sorted(set(dismissed.values()))
    return [Dismissal(tuple(id for id in dismissed if dismissed[id] == reason), reason) for reason in reasons]
