"""The suites that come with Upshot, and the loops that they look through."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from app.artifacts import adapters
from app.artifacts.model import (
    KnowledgeLoopDefinition,
    KnowledgeRecord,
    KnowledgeSafetyClass,
    KnowledgeSurface,
    ReviewGate,
)
from app.artifacts.rubric import KnowledgeRubric
from app.artifacts.suites import Adapter, KnowledgeEvalSuite, read_fixtures

DATA = files("app.artifacts") / "data"
PAGES = (KnowledgeSurface("page", "entities.index"), KnowledgeSurface("page", "entities.detail"))

CARE = KnowledgeLoopDefinition(
    name="care-guidance",
    tenant="harbour-clinic",
    surfaces=(
        *PAGES,
        KnowledgeSurface("entity_type", "evidence_claim"),
        KnowledgeSurface("entity_type", "therapy_plan"),
    ),
    records=(
        KnowledgeRecord(
            "evidence_claim",
            required=("claim", "who", "use", "certainty"),
            evidence=("sources",),
            actions=("use",),
            drafts=frozenset({"draft", "in_review"}),
            finals=frozenset({"published", "retired"}),
        ),
        KnowledgeRecord(
            "therapy_plan",
            required=("goal", "who", "steps", "stop_if", "review_after_days"),
            evidence=("claims",),
            actions=("steps",),
            drafts=frozenset({"draft"}),
            finals=frozenset({"approved", "ended"}),
        ),
    ),
    review_gate=ReviewGate("clinician", KnowledgeSafetyClass.HIGH_STAKES),
)
PRODUCT = KnowledgeLoopDefinition(
    name="product-knowledge",
    tenant="basket",
    surfaces=(*PAGES, KnowledgeSurface("entity_type", "pf_idea"), KnowledgeSurface("entity_type", "pf_knowledge")),
    records=(
        KnowledgeRecord(
            "pf_idea",
            required=("problem", "proposal", "first_step", "owner"),
            evidence=("signals",),
            actions=("first_step",),
            drafts=frozenset({"idea", "shaped"}),
            finals=frozenset({"accepted", "rejected"}),
        ),
        KnowledgeRecord(
            "pf_knowledge",
            required=("statement", "apply", "area"),
            evidence=("evidence",),
            actions=("apply",),
            drafts=frozenset({"draft"}),
            finals=frozenset({"published"}),
        ),
    ),
    review_gate=ReviewGate("product lead", KnowledgeSafetyClass.OPERATIONAL),
)
# A workspace's own knowledge rows and entities, both as one record: what it is called and what it says.
WORKSPACE = KnowledgeLoopDefinition(
    name="workspace",
    tenant="here",
    surfaces=(KnowledgeSurface("page", "knowledge.detail"), KnowledgeSurface("page", "entities.detail")),
    records=(
        KnowledgeRecord(
            "workspace_record",
            required=("kind", "content"),
            evidence=(),
            actions=("content",),
            drafts=frozenset({"proposed", "recorded"}),
            finals=frozenset({"active", "answered"}),
        ),
    ),
    review_gate=ReviewGate("person", KnowledgeSafetyClass.INFORMATIONAL),
)
WORKSPACE_FIELDS: dict[str, Any] = {
    "kind": {"type": "string"},
    "content": {"type": "string"},
    "status": {"type": "string", "enum": ["proposed", "recorded", "active", "answered"]},
    "safety_class": {"type": "string", "enum": list(map(str, KnowledgeSafetyClass))},
}
ADAPTERS: dict[str, tuple[str, KnowledgeLoopDefinition, Adapter]] = {
    "evidence-claim": ("evidence_claim", CARE, adapters.evidence_claim_to_artifact),
    "therapy-plan": ("therapy_plan", CARE, adapters.therapy_plan_to_artifact),
    "pf-idea": ("pf_idea", PRODUCT, adapters.pf_idea_to_artifact),
    "pf-knowledge": ("pf_knowledge", PRODUCT, adapters.pf_knowledge_to_artifact),
}
OWN_TYPES = frozenset(kind for kind, _, _ in ADAPTERS.values())


@cache
def entity_types() -> Mapping[str, dict[str, Any]]:
    """The entity types that the suites grade, by slug: `slug`, `name` and `fields`, as a workspace stores them."""
    return {one["slug"]: one for one in json.loads((DATA / "entity_types.json").read_text("utf-8"))}


def load_suites() -> list[KnowledgeEvalSuite]:
    """The suites that need no workspace."""
    return [_load(name, *grade_with(kind, loop.tenant)) for name, (kind, loop, _) in ADAPTERS.items()]


def load_workspace_suite(tenant: str) -> KnowledgeEvalSuite:
    """The suite whose good fixtures are a workspace's own records. Here it has examples and those that fail."""
    return _load(WORKSPACE.name, *grade_with("workspace_record", tenant))


def _load(name: str, rubric: KnowledgeRubric, adapter: Adapter) -> KnowledgeEvalSuite:
    fixtures = (DATA / f"{name}.json").read_text("utf-8")
    return KnowledgeEvalSuite(name, rubric, read_fixtures(fixtures, adapter, rubric))


def grade_with(entity_type: str, tenant: str) -> tuple[KnowledgeRubric, Adapter]:
    """The rubric and the adapter for a workspace's records of a type: its own suite's, or those for any record."""
    for kind, loop, adapter in ADAPTERS.values():
        if kind == entity_type:
            return KnowledgeRubric(replace(loop, tenant=tenant), kind, entity_types()[kind]["fields"]), adapter
    loop = replace(WORKSPACE, tenant=tenant)
    return KnowledgeRubric(loop, "workspace_record", WORKSPACE_FIELDS), adapters.workspace_record_to_artifact
