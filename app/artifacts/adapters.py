"""Adapters: one function per kind of record, from the record as it is stored to an artifact.

A record is an entity as plain values: `id`, `entity_type`, `tenant`, `name` and `fields`. The fields keep their names,
so that rubrics speak of the fields that people see.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from app.artifacts.checks import as_text
from app.artifacts.model import ArtifactRender, ArtifactSafety, EvidenceRef, KnowledgeArtifact, KnowledgeSurface

ENTITY_PAGE = "page:entities.detail"


def evidence_claim_to_artifact(entity: Mapping[str, Any]) -> KnowledgeArtifact:
    """A claim with the studies behind it."""
    fields = entity["fields"]
    body = (fields.get("claim"), fields.get("use"), fields.get("limits"))
    return build_artifact(entity, body=body, evidence=fields.get("sources"), reviewed_by=fields.get("reviewed_by"))


def therapy_plan_to_artifact(entity: Mapping[str, Any]) -> KnowledgeArtifact:
    """A plan. It rests on claims, which it names by their ids."""
    fields = entity["fields"]
    body = (fields.get("goal"), fields.get("steps"), fields.get("stop_if"))
    claims = [f"entity:{claim}" if isinstance(claim, str) else claim for claim in _items(fields.get("claims"))]
    return build_artifact(entity, body=body, evidence=claims, reviewed_by=fields.get("approved_by"))


def pf_idea_to_artifact(entity: Mapping[str, Any]) -> KnowledgeArtifact:
    """A product idea. It rests on what people said: feedback, interviews."""
    fields = entity["fields"]
    body = (fields.get("problem"), fields.get("proposal"), fields.get("first_step"))
    return build_artifact(entity, body=body, evidence=fields.get("signals"), reviewed_by=fields.get("decided_by"))


def pf_knowledge_to_artifact(entity: Mapping[str, Any]) -> KnowledgeArtifact:
    """Something that the product team knows, with its evidence."""
    fields = entity["fields"]
    body = (fields.get("statement"), fields.get("apply"))
    return build_artifact(entity, body=body, evidence=fields.get("evidence"), reviewed_by=fields.get("reviewed_by"))


def workspace_record_to_artifact(record: Mapping[str, Any]) -> KnowledgeArtifact:
    """A knowledge row or an entity of any type, with what it says as `content`. It rests on the feedback or on the
    responses behind it, or on the person who wrote it."""
    return build_artifact(
        record,
        body=record["fields"].get("content"),
        evidence=record.get("evidence"),
        reviewed_by=record.get("reviewed_by"),
    )


def build_artifact(entity: Mapping[str, Any], *, body: Any, evidence: Any, reviewed_by: Any) -> KnowledgeArtifact:
    """An artifact from the parts that adapters pick. `evidence` is a list of texts, or of objects with a `source`."""
    fields = entity["fields"]
    return KnowledgeArtifact(
        id=str(entity["id"]),
        kind=entity["entity_type"],
        tenant=entity.get("tenant") or "",
        fields=fields,
        evidence_refs=tuple(_read_refs(_items(evidence))),
        safety=ArtifactSafety(
            str(fields.get("safety_class") or ""),
            str(reviewed_by or ""),
            auto_approve=bool(fields.get("auto_approve")),
        ),
        render=ArtifactRender(
            KnowledgeSurface.parse(entity.get("surface") or ENTITY_PAGE), entity.get("name") or "", as_text(body)
        ),
    )


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else ()


def _read_refs(evidence: Iterable[Any]) -> Iterator[EvidenceRef]:
    for one in evidence:
        if isinstance(one, Mapping):
            yield EvidenceRef(str(one.get("source") or ""), one.get("tenant"))
        else:
            yield EvidenceRef(str(one))
