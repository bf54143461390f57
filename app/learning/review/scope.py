"""For whom a rule is: the narrowest scope in which all of its evidence lies."""

import re
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from app.learning.review.moments import read_moment
from app.learning.review.types import EntityType, Signal

Scope = tuple[UUID | None, UUID | None]
FOR_ALL = re.compile(
    r"\b(?:all|every|each|any|every ?one|none|no one) (?:(?:of )?(?:our|the|your|these|those) )?"
    r"(?:\w+ )?(?:agents?|assistants?|bots?)\b|\bevery ?where\b|\bacross the board\b|\bwhichever agent\b",
    re.IGNORECASE,
)
MIN_NAMED, MIN_SHARE = 0.34, 0.75


def find_scope(signals: Sequence[Signal], kinds: Sequence[EntityType]) -> Scope:
    """One agent when all rows are about it; else the kind of record that nearly all are about; else the workspace."""
    agents = {signal.agent_id for signal in signals}
    if any(signal.admin_flag and FOR_ALL.search(signal.comment or "") for signal in signals):
        return None, None
    if len(agents) == 1:
        return agents.pop(), None
    named = Counter(signal.entity_type_id for signal in signals if signal.entity_type_id)
    if not named:
        return None, None
    touched = Counter(slug for signal in signals for slug in read_moment(signal, kinds).kinds)
    for kind in sorted(kinds, key=lambda one: (-named[one.id], -touched[one.slug], one.slug)):
        if named[kind.id] >= MIN_NAMED * len(signals) and touched[kind.slug] >= MIN_SHARE * len(signals):
            return None, kind.id
    return None, None
