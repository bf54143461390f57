"""Groups of feedback that complain about the same thing."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from app.learning.review.types import Agent, EntityType, KnownPattern, Pattern, Signal
from app.text.embeddings import embed, near_pairs

NEAR = 0.55
LABEL_LENGTH = 80


def group_signals(
    signals: Iterable[Signal],
    *,
    agents: Sequence[Agent],
    entity_types: Sequence[EntityType],
    known: Sequence[KnownPattern] = (),
) -> list[Pattern]:
    """Signals grouped by agent and meaning; those with no words and no companion are in no group."""
    own = sorted(signals, key=lambda signal: (signal.occurred_at, signal.id))
    known_of = {sample.id: pattern.id for pattern in known for sample in pattern.samples}
    rows = [*own, *(s for pattern in known for s in pattern.samples if s.id not in {signal.id for signal in own})]
    rows = [row for row in rows if words_of(row)]
    home = list(range(len(rows)))
    for a, b, _ in near_pairs(embed([words_of(row) for row in rows]), NEAR):
        if rows[a].agent_id == rows[b].agent_id:
            first, second = sorted((home[a], home[b]))
            home = [first if place == second else place for place in home]
    members: dict[int, list[Signal]] = {}
    for place, row in zip(home, rows, strict=True):
        members.setdefault(place, []).append(row)
    mine = {signal.id for signal in own}
    found = (_make_pattern(group, mine, known_of) for group in members.values())
    return [pattern for pattern in found if pattern.signal_ids]


def words_of(signal: Signal) -> str:
    """What the person said about the answer."""
    return signal.preferred_answer or signal.comment or signal.follow_up or ""


def clarity(signal: Signal) -> tuple[int, int, str]:
    """Clearest first: an admin's flag, an edit, a reason, a comment; then the longer text."""
    kinds = (signal.admin_flag, bool(signal.preferred_answer), bool(signal.comment))
    return (kinds.index(True) if any(kinds) else len(kinds), -len(words_of(signal)), str(signal.id))


def _make_pattern(group: Sequence[Signal], mine: set[UUID], known_of: dict[UUID, UUID]) -> Pattern:
    ordered = sorted((signal for signal in group if signal.id in mine), key=clarity)
    known_id = next((known_of[signal.id] for signal in group if signal.id in known_of), None)
    return Pattern(
        signal_ids=tuple(signal.id for signal in ordered),
        label=words_of(ordered[0])[:LABEL_LENGTH] if ordered else "",
        agent_id=ordered[0].agent_id if ordered else None,
        entity_type_id=None,
        known_id=known_id,
    )
