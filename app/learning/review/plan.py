"""What becomes of a batch of feedback: proposals, merges, dismissals, and what waits."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from app.learning.review.claims import opposes
from app.learning.review.decide import DISPUTED, OUTNUMBERED, SUSPECT, UNCLEAR, Decisions, Workspace, decide, is_enough
from app.learning.review.groups import Group, group_signals, make_pattern
from app.learning.review.merge import LIVE
from app.learning.review.noise import find_noise, is_suspect
from app.learning.review.sentences import SentenceVectors
from app.learning.review.types import Agent, Dismissal, EntityType, KnownPattern, Pattern, Plan, Rule, Signal

__all__ = ["is_enough", "plan_review"]
WAITS = "Waiting for a second signal."
# What is said when a row of a group has waited long enough.
GIVES_UP = {
    UNCLEAR: "Nobody said what to do instead in {} days.",
    DISPUTED: "People said different things for {} days.",
    OUTNUMBERED: OUTNUMBERED,
}


def plan_review(
    signals: Iterable[Signal],
    *,
    agents: Sequence[Agent],
    entity_types: Sequence[EntityType],
    rules: Sequence[Rule],
    now: datetime,
    known: Sequence[KnownPattern] = (),
    wait_days: int = 14,
    sentences: SentenceVectors | None = None,
) -> Plan:
    """Decide about each signal. The order of the signals makes no difference. Parts of one review share their
    `sentences`."""
    rows = {signal.id: signal for signal in sorted(signals, key=lambda row: (row.occurred_at, row.id))}
    suspect = {id: SUSPECT for id, row in rows.items() if is_suspect(row)}
    noise = {id: reason for id, row in rows.items() if id not in suspect and (reason := find_noise(row))}
    made = Decisions(pending=suspect, dismissed=noise)
    open_rows = {id: row for id, row in rows.items() if id not in suspect and id not in noise}
    groups = group_signals(
        open_rows.values(), agents=agents, entity_types=entity_types, known=known, sentences=sentences
    )
    workspace = Workspace(agents, entity_types, rules, list(rows.values()), now.date(), known)
    groups = [part for group in groups for part in _leave_rule(group, rows, workspace)]
    for group in groups:
        decide(group, [rows[id] for id in group.pattern.signal_ids], workspace, made)
    _wait(open_rows, groups, made, now - timedelta(days=wait_days), wait_days)
    made.dismissed = {id: reason for id, reason in made.dismissed.items() if not rows[id].settled}
    patterns = [part for group in groups for part in _split_pattern(group.pattern, made.pending, rows, entity_types)]
    return Plan(patterns, made.proposals, made.merges, _group_dismissals(made.dismissed), made.pending)


def _leave_rule(group: Group, rows: Mapping[UUID, Signal], workspace: Workspace) -> list[Group]:
    """A group without the rows that say the opposite of the rule that its pattern has; these are one of their own."""
    known_id = group.pattern.known_id
    rule = workspace.rules_of_known.get(known_id) if known_id else None
    members = [rows[id] for id in group.pattern.signal_ids]
    against = [row for row in members if rule and rule.state in LIVE and opposes(row, rule.content)]
    if not against:
        return [group]
    kept = [row for row in members if row not in against]
    parts = [(kept, known_id), (against, None)]
    return [Group(make_pattern(some, id, workspace.kinds), group.likeness) for some, id in parts if some]


def _split_pattern(
    pattern: Pattern, pending: Mapping[UUID, str], rows: Mapping[UUID, Signal], kinds: Sequence[EntityType]
) -> list[Pattern]:
    """A pattern without the rows that say the opposite of what most say; these are one of their own."""
    gone = [rows[id] for id in pattern.signal_ids if pending.get(id) == OUTNUMBERED]
    if not gone:
        return [pattern]
    stay = [rows[id] for id in pattern.signal_ids if pending.get(id) != OUTNUMBERED]
    return [make_pattern(stay, pattern.known_id, kinds), make_pattern(gone, None, kinds)]


def _wait(
    rows: Mapping[UUID, Signal], groups: Sequence[Group], made: Decisions, oldest: datetime, wait_days: int
) -> None:
    """What nobody else says, or nobody says well, waits; it is dismissed when it has waited long enough. A group waits
    as long as people add to it."""
    last: dict[UUID, datetime] = {}
    for ids in (group.pattern.signal_ids for group in groups):
        last |= dict.fromkeys(ids, max(rows[id].occurred_at for id in ids))
    decided = made.decided()
    for id, row in rows.items():
        if id not in decided:
            old = row.occurred_at < oldest
            (made.dismissed if old else made.pending)[id] = f"No second signal in {wait_days} days." if old else WAITS
        elif made.pending.get(id) in GIVES_UP and last[id] < oldest:
            made.dismissed[id] = GIVES_UP[made.pending.pop(id)].format(wait_days)


def _group_dismissals(dismissed: Mapping[UUID, str]) -> list[Dismissal]:
    reasons = sorted(set(dismissed.values()))
    return [Dismissal(tuple(id for id in dismissed if dismissed[id] == reason), reason) for reason in reasons]
