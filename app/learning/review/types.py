"""What a reviewer reads and what it decides: signals with their moment, rules, patterns and a plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call in the turn that a signal is about. `output` may be cut to its first values."""

    name: str
    arguments: Mapping[str, Any]
    is_error: bool = False
    output: Any = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that an agent has."""

    name: str
    writes: bool
    description: str = ""
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent as a reviewer knows it."""

    id: UUID
    slug: str
    name: str
    instructions: str = ""
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, slots=True)
class EntityType:
    """A kind of record with the names of its fields."""

    id: UUID
    slug: str
    name: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A row of feedback with the moment that it is about. `author_id` is None for the system's own rows. `follow_up` is
    what the person said next in the same session; a thumb without words often has its reason there. `expected` are the
    calls of a golden where its replay made others. `settled` rows count, and nothing is left to decide about them."""

    id: UUID
    kind: str
    source_type: str
    rating: str
    origin: str
    occurred_at: datetime
    signal: str | None = None
    comment: str | None = None
    preferred_answer: str | None = None
    error_categories: tuple[str, ...] = ()
    admin_flag: bool = False
    author_id: UUID | None = None
    session_id: UUID | None = None
    agent_id: UUID | None = None
    entity_type_id: UUID | None = None
    field_name: str | None = None
    question: str | None = None
    answer: str | None = None
    calls: tuple[Call, ...] = ()
    follow_up: str | None = None
    expected: tuple[Call, ...] = ()
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A knowledge row as a reviewer knows it. `rejected` marks a proposal that a person turned down."""

    id: UUID
    type: str
    content: str
    context: str | None
    agent_id: UUID | None
    entity_type_id: UUID | None
    state: str
    rejected: bool = False


@dataclass(frozen=True, slots=True)
class KnownPattern:
    """A pattern of earlier reviews, by some of its signals, with the rule that was proposed for it."""

    id: UUID
    samples: tuple[Signal, ...]
    rule_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Pattern:
    """Signals that complain about the same thing, the clearest first. `known_id` is the pattern that they belong to."""

    signal_ids: tuple[UUID, ...]
    label: str
    agent_id: UUID | None
    entity_type_id: UUID | None
    known_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A rule to propose, with its evidence, the clearest signal first."""

    type: str
    content: str
    context: str | None
    agent_id: UUID | None
    entity_type_id: UUID | None
    signal_ids: tuple[UUID, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Merge:
    """Signals that say what a rule says already."""

    rule_id: UUID
    signal_ids: tuple[UUID, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Dismissal:
    """Signals that need no change, and why."""

    signal_ids: tuple[UUID, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a reviewer decides about a batch. Each signal is in at most one decision; `pending` says why the others
    stay open."""

    patterns: Sequence[Pattern] = ()
    proposals: Sequence[Proposal] = ()
    merges: Sequence[Merge] = ()
    dismissals: Sequence[Dismissal] = ()
    pending: Mapping[UUID, str] = field(default_factory=dict)
