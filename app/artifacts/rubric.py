"""A rubric and the score of an artifact under it: facts first, then scores, then gaps."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from app.artifacts.checks import (
    Check,
    Fact,
    RenderabilityProbe,
    assert_tenant_scope,
    require_actionable_payload,
    require_evidence_refs,
    require_fields,
    require_renderable,
    require_safety_label,
)
from app.artifacts.model import KnowledgeArtifact, KnowledgeLoopDefinition, KnowledgeRecord

# Each dimension with the question that it answers.
DIMENSIONS = {
    "source_grounding": "Can a reader look up what the record rests on?",
    "schema_completeness": "Are the fields filled that the record is useless without?",
    "actionability": "Does it say what to do, with what and when?",
    "safety_human_gate": "Is its risk labelled, and did a person approve it?",
    "workspace_renderability": "Does a page show it, with something to read?",
    "tenant_isolation": "Does everything in it belong to one workspace?",
}


@dataclass(frozen=True)
class KnowledgeRubric:
    """Six checks read off a loop and one of its records. `schema` holds the properties of the record's entity type."""

    loop: KnowledgeLoopDefinition
    entity_type: str
    schema: Mapping[str, Any]
    probe: RenderabilityProbe | None = None

    @cached_property
    def record(self) -> KnowledgeRecord:
        return self.loop.record(self.entity_type)

    @cached_property
    def checks(self) -> Mapping[str, Check]:
        record, loop = self.record, self.loop
        return {
            "source_grounding": require_evidence_refs(record.drafts, record.finals, status=record.status),
            "schema_completeness": require_fields(*record.required, record.status, schema=self.schema),
            "actionability": require_actionable_payload(*record.actions),
            "safety_human_gate": require_safety_label(loop.review_gate, record.finals, status=record.status),
            "workspace_renderability": require_renderable(loop.surfaces, self.probe),
            "tenant_isolation": assert_tenant_scope(loop.tenant),
        }


@dataclass(frozen=True)
class DimensionScore:
    """How much of a dimension holds. Only all of it passes."""

    score: float
    gaps: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.gaps


@dataclass(frozen=True)
class KnowledgeResult:
    """The grade of one artifact under a rubric."""

    artifact: KnowledgeArtifact
    rubric: KnowledgeRubric
    dimensions: Mapping[str, DimensionScore]

    @property
    def passed(self) -> bool:
        return not self.failed

    @property
    def failed(self) -> list[str]:
        return [name for name, found in self.dimensions.items() if not found.passed]

    @property
    def score(self) -> float:
        return sum(found.score for found in self.dimensions.values()) / len(self.dimensions)

    @property
    def gaps(self) -> dict[str, tuple[str, ...]]:
        return {name: self.dimensions[name].gaps for name in self.failed}


def score_knowledge_artifact(artifact: KnowledgeArtifact, rubric: KnowledgeRubric) -> KnowledgeResult:
    """Grade an artifact on every dimension of a rubric."""
    scores = {name: score_facts(check(artifact)) for name, check in rubric.checks.items()}
    return KnowledgeResult(artifact, rubric, scores)


def score_facts(facts: list[Fact]) -> DimensionScore:
    """The share of the facts that hold, and a gap for each that does not."""
    if not facts:
        raise ValueError("A check without facts cannot fail.")
    gaps = tuple(dict.fromkeys(fact.gap for fact in facts if not fact.holds))
    return DimensionScore(sum(fact.holds for fact in facts) / len(facts), gaps)
