"""Loops, the records they produce, and the artifact that every record becomes before it is graded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class KnowledgeSafetyClass(StrEnum):
    """How much harm acting on a wrong record could do, the least first. Loops declare it and evals grade it."""

    INFORMATIONAL = "informational"
    OPERATIONAL = "operational"
    HIGH_STAKES = "high_stakes"

    @property
    def level(self) -> int:
        return list(KnowledgeSafetyClass).index(self)


# Loops


@dataclass(frozen=True)
class KnowledgeSurface:
    """A place where people meet a record. `kind` says who can resolve its name: a `page`, an `entity_type`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> "KnowledgeSurface":
        kind, _, name = text.partition(":")
        return cls(kind, name)


@dataclass(frozen=True)
class KnowledgeRecord:
    """One kind of record that a loop produces, by the names of its fields. Every status is a draft or final."""

    entity_type: str
    required: tuple[str, ...]
    evidence: tuple[str, ...]
    actions: tuple[str, ...]
    drafts: frozenset[str]
    finals: frozenset[str]
    status: str = "status"

    def __post_init__(self) -> None:
        if self.drafts & self.finals:
            raise ValueError(f"{self.entity_type}: a status cannot be both a draft and final.")

    @property
    def field_names(self) -> frozenset[str]:
        return frozenset((*self.required, *self.evidence, *self.actions, self.status))


@dataclass(frozen=True)
class ReviewGate:
    """Who has to approve a record before it is final, and the least safety class that such records have."""

    reviewer: str
    safety_class: KnowledgeSafetyClass


@dataclass(frozen=True)
class KnowledgeLoopDefinition:
    """What a loop declares about itself. Rubrics read it, so that a loop and its evals cannot drift apart."""

    name: str
    tenant: str
    surfaces: tuple[KnowledgeSurface, ...]
    records: tuple[KnowledgeRecord, ...]
    review_gate: ReviewGate

    def record(self, entity_type: str) -> KnowledgeRecord:
        for record in self.records:
            if record.entity_type == entity_type:
                return record
        raise ValueError(f"The loop {self.name} produces no {entity_type}.")


# Artifacts


@dataclass(frozen=True)
class EvidenceRef:
    """Something a reader can look up. `tenant` is set where the source belongs to a workspace."""

    source: str
    tenant: str | None = None


@dataclass(frozen=True)
class ArtifactSafety:
    """What a record says about its own risk and approval. `label` is as written, known or not."""

    label: str
    reviewed_by: str = ""
    auto_approve: bool = False


@dataclass(frozen=True)
class ArtifactRender:
    """Where a record is shown, and what it shows there."""

    surface: KnowledgeSurface
    title: str
    body: str


@dataclass(frozen=True)
class KnowledgeArtifact:
    """A record in the shape that rubrics grade, whatever it was before."""

    id: str
    kind: str
    tenant: str
    fields: Mapping[str, Any]
    safety: ArtifactSafety
    render: ArtifactRender
    evidence_refs: tuple[EvidenceRef, ...] = field(default=())
