"""Groups of feedback that complain about the same thing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.learning.review.affinity import affinities
from app.learning.review.claims import named_values
from app.learning.review.clarity import clearest, read_terms
from app.learning.review.moments import read_moment, words_of
from app.learning.review.noise import says_something
from app.learning.review.scope import find_scope
from app.learning.review.sentences import SentenceVectors
from app.learning.review.types import Agent, EntityType, KnownPattern, Pattern, Signal
from app.learning.review.windows import Grown, group_in_windows

__all__ = ["group_signals", "words_of"]
LABEL_LENGTH = 80
REPLAY = "replay_failure"
# What it counts in log-odds that two people name the same value.
SAME_VALUE = 0.6


@dataclass(frozen=True)
class Group:
    """A pattern, and how alike its signals are: the mean log-odds of its pairs."""

    pattern: Pattern
    likeness: float


def group_signals(
    signals: Iterable[Signal],
    *,
    agents: Sequence[Agent],
    entity_types: Sequence[EntityType],
    known: Sequence[KnownPattern] = (),
    sentences: SentenceVectors | None = None,
) -> list[Group]:
    """Signals grouped by meaning and by what happened; those without a word are in no group."""
    own = {signal.id: signal for signal in signals if says_something(signal)}
    samples = {sample.id: (sample, pattern.id) for pattern in known for sample in pattern.samples}
    rows = sorted({**{id: sample for id, (sample, _) in samples.items()}, **own}.values(), key=_order)
    known_of = {id: pattern_id for id, (_, pattern_id) in samples.items()}
    terms = read_terms(agents, entity_types)
    names = name_tools_and_fields(agents, entity_types)
    vectors = sentences or SentenceVectors()

    def compare(places: Sequence[int]) -> Any:
        some = [rows[place] for place in places]
        moments = [read_moment(row, entity_types) for row in some]
        encoded = vectors.encode([moment.said for moment in moments])
        near = affinities(moments, [row.agent_id for row in some], names, encoded)
        return near + SAME_VALUE * _name_same_value(some)

    found = []
    apart = frozenset(place for place, row in enumerate(rows) if row.admin_flag)
    for grown in _join_replays(group_in_windows([row.agent_id for row in rows], apart, compare), rows):
        group = [rows[place] for place in grown.rows]
        if mine := [row for row in group if row.id in own]:
            pattern_id = next((known_of[row.id] for row in group if row.id in known_of), None)
            found.append(Group(make_pattern(clearest(mine, terms), pattern_id, entity_types), grown.likeness))
    return found


def _name_same_value(rows: Sequence[Signal]) -> Any:
    """The pairs about one agent that name the same value where their answers had another."""
    import numpy

    homes: dict[object, list[int]] = {}
    for place, row in enumerate(rows):
        for value in named_values(row):
            homes.setdefault((row.agent_id, value), []).append(place)
    same = numpy.zeros((len(rows), len(rows)), dtype=numpy.float32)
    for places in homes.values():
        same[numpy.ix_(places, places)] = 1
    return same


def _join_replays(groups: Sequence[Grown], rows: Sequence[Signal]) -> list[Grown]:
    """A golden fails because of what people complained about when they asked the same, so its failures go there."""
    complaints = {
        _question(rows[place]): group
        for group in reversed(groups)
        for place in group.rows
        if rows[place].kind != REPLAY and rows[place].question
    }
    kept = []
    for group in groups:
        homes = [complaints.get(_question(rows[place])) for place in group.rows]
        if homes[0] and homes[0] is not group and all(rows[place].kind == REPLAY for place in group.rows):
            homes[0].rows.extend(group.rows)
        else:
            kept.append(group)
    return kept


def _question(signal: Signal) -> tuple[UUID | None, str]:
    return signal.agent_id, " ".join((signal.question or "").lower().split())


def name_tools_and_fields(agents: Sequence[Agent], kinds: Sequence[EntityType]) -> list[str]:
    """What there is to point at: each tool with what it is for, and each field of each kind of record."""
    tools = {tool.name: tool for agent in agents for tool in agent.tools}
    named = [f"{tool.name} {tool.description} {' '.join(tool.arguments)}" for tool in tools.values()]
    return sorted({*named, *(f"{kind.name} {field}" for kind in kinds for field in kind.fields)})


def _order(signal: Signal) -> tuple[object, UUID]:
    return signal.occurred_at, signal.id


def make_pattern(ordered: Sequence[Signal], known_id: UUID | None, kinds: Sequence[EntityType]) -> Pattern:
    """The pattern of rows that are ordered, the clearest first."""
    agent_id, entity_type_id = find_scope(ordered, kinds)
    label = " ".join(words_of(ordered[0]).split())[:LABEL_LENGTH]
    return Pattern(tuple(row.id for row in ordered), label, agent_id, entity_type_id, known_id)
