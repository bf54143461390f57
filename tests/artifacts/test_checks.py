"""Each check: what holds, what is a gap, and what the gap says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from app.artifacts import adapters
from app.artifacts.bridges import (
    knowledge_result_to_rubric_score_result,
    knowledge_rubric_to_criteria_dimensions,
)
from app.artifacts.catalogue import load_suites
from app.artifacts.checks import (
    Check,
    assert_tenant_scope,
    is_filled,
    require_actionable_payload,
    require_evidence_refs,
    require_fields,
    require_renderable,
    require_safety_label,
)
from app.artifacts.model import (
    ArtifactRender,
    ArtifactSafety,
    EvidenceRef,
    KnowledgeArtifact,
    KnowledgeRecord,
    KnowledgeSafetyClass,
    KnowledgeSurface,
    ReviewGate,
)
from app.artifacts.rubric import DIMENSIONS, score_facts, score_knowledge_artifact
from app.artifacts.surfaces import make_surface_probe
from app.evals.rubric import answer_schema, ask_about
from app.formats.criteria import parse_dimensions, read_dimensions

PAGE = KnowledgeSurface("page", "entities.detail")
GATE = ReviewGate("reviewer", KnowledgeSafetyClass.OPERATIONAL)


def artifact(*sources: str | EvidenceRef, **fields: Any) -> KnowledgeArtifact:
    refs = tuple(one if isinstance(one, EvidenceRef) else EvidenceRef(one) for one in sources)
    return KnowledgeArtifact(
        "a", "note", "here", fields, ArtifactSafety("operational", "Mara"),
        ArtifactRender(PAGE, "Title", "Three words here"), refs,
    )  # fmt: skip


def gaps(check: Check, given: KnowledgeArtifact) -> tuple[str, ...]:
    return score_facts(check(given)).gaps


# Grounding


def test_sources_are_due_when_a_record_is_final() -> None:
    check = require_evidence_refs({"draft"}, {"published"})
    assert gaps(check, artifact(status="draft")) == ()
    assert gaps(check, artifact(status="published")) == ("Cite at least 1 source.",)
    assert gaps(check, artifact("https://trials.example/walk", status="published")) == ()
    assert gaps(check, artifact("session:8f", status="archived")) == (
        "status “archived” is neither a draft nor final.",
    )
    assert gaps(check, artifact("session:8f")) == ("status “None” is neither a draft nor final.",)
    two = require_evidence_refs({"draft"}, {"published"}, least=2)
    assert gaps(two, artifact("session:8f", status="published")) == ("Cite at least 2 sources.",)


@pytest.mark.parametrize(
    ("source", "citable"),
    [
        ("https://trials.example/walk", True), ("doi:10.1000/182", True), ("isbn:978-3-16-148410-0", True),
        ("session:4c1d", True), ("feedback:4c1d", True), ("interview:family", True), (" session:x ", True),
        ("http://trials.example", False), ("https://localhost", False), ("everyone knows", False), ("", False),
        ("session:", False), ("doi:walk", False), ("file:/etc/passwd", False), ("trials.example/walk", False),
    ],
)  # fmt: skip
def test_a_source_can_be_looked_up(source: str, citable: bool) -> None:
    check = require_evidence_refs({"draft"}, {"published"})
    assert (gaps(check, artifact(source, status="published")) == ()) is citable


def test_a_status_is_a_draft_or_final() -> None:
    with pytest.raises(ValueError, match="both"):
        require_evidence_refs({"draft"}, {"draft"})
    with pytest.raises(ValueError, match="both"):
        KnowledgeRecord("note", (), (), (), frozenset({"x"}), frozenset({"x"}))


# Completeness


@pytest.mark.parametrize("value", ["", "  ", "TBD", "n/a", "…", "-", "Lorem ipsum dolor", None, [], ["a", "todo"], {}])
def test_placeholders_fill_nothing(value: Any) -> None:
    assert not is_filled(value)
    assert gaps(require_fields("who"), artifact(who=value)) == ("Fill in who.",)


@pytest.mark.parametrize("value", ["Adults", 0, False, ["a"], {"source": "x", "note": ""}, "Nothing from Friday on"])
def test_real_values_do(value: Any) -> None:
    assert gaps(require_fields("who"), artifact(who=value)) == ()


def test_values_fit_their_schema() -> None:
    check = require_fields("area", schema={"area": {"type": "string", "enum": ["lists"]}, "days": {"type": "integer"}})
    assert gaps(check, artifact(area="lists", days=3)) == ()
    assert gaps(check, artifact(area="moon", days="3")) == (
        "area does not fit its schema.", "days does not fit its schema.",
    )  # fmt: skip


# Actionability


@pytest.mark.parametrize("text", ["Be careful.", "Try to do better.", "Make sure it is good", "TBD"])
def test_vague_texts_are_no_action(text: str) -> None:
    assert gaps(require_actionable_payload("use"), artifact(use=text))


def test_each_step_is_concrete() -> None:
    check = require_actionable_payload("steps")
    assert gaps(check, artifact(steps=["Walk for 10 minutes.", {"do": "Drink no coffee", "when": "after 13:00"}])) == ()
    [gap] = gaps(check, artifact(steps=["Walk for 10 minutes.", "Try to be good."]))
    assert "Try to be good." in gap
    assert score_facts(check(artifact(steps=["Walk for 10 minutes.", "Try to be good."]))).score == 0.75
    assert gaps(check, artifact(steps=[])) == gaps(check, artifact()) == ("Fill in steps.",)


# Safety


@pytest.mark.parametrize(
    ("safety", "status", "said"),
    [
        (ArtifactSafety("operational", "Mara"), "published", None),
        (ArtifactSafety("high_stakes", "Mara"), "published", None),
        (ArtifactSafety("operational"), "draft", None),
        (ArtifactSafety("operational"), "published", "Name the reviewer who approved it."),
        (ArtifactSafety("operational", "system"), "published", "Name the reviewer who approved it."),
        (ArtifactSafety("operational", "Auto-approved"), "published", None),
        (ArtifactSafety("operational", "automatic"), "published", "Name the reviewer who approved it."),
        (ArtifactSafety("operational", "Mara", auto_approve=True), "draft", "Let a reviewer approve it, not a rule."),
        (ArtifactSafety("informational", "Mara"), "draft", "Label it operational or stricter."),
        (ArtifactSafety("harmless", "Mara"), "draft", "Label it informational, operational or high_stakes."),
        (ArtifactSafety("", "Mara"), "draft", "Label it informational, operational or high_stakes."),
    ],
)
def test_a_label_and_a_person(safety: ArtifactSafety, status: str, said: str | None) -> None:
    found = gaps(require_safety_label(GATE, {"published"}), replace(artifact(status=status), safety=safety))
    assert (said in found) if said else found == ()


# Renderability


def test_a_place_and_something_to_read() -> None:
    check = require_renderable([PAGE])
    assert gaps(check, artifact()) == ()
    stub = replace(artifact(), render=ArtifactRender(PAGE, "", "TBD"))
    assert gaps(check, stub) == ("Give it a title.", "There is nothing to read yet.")
    poster = KnowledgeSurface("page", "poster")
    nowhere = replace(artifact(), render=ArtifactRender(poster, "Title", "Three words here"))
    assert gaps(check, nowhere) == ("page:poster is no place where records are shown.",)


def test_a_probe_is_authoritative() -> None:
    assert gaps(require_renderable([PAGE], probe=lambda surface: False), artifact())
    probe = make_surface_probe(lambda surface: "/entities/1" if surface == PAGE else None)
    assert gaps(require_renderable(probe=probe), artifact()) == ()


# Tenants


def test_everything_belongs_to_one_workspace() -> None:
    check = assert_tenant_scope("here")
    assert gaps(check, artifact(EvidenceRef("session:1", "here"), rows=[{"tenant": "here"}])) == ()
    assert gaps(check, replace(artifact(), tenant="there")) == ("It belongs to “there”, not to “here”.",)
    assert gaps(check, replace(artifact(), tenant="")) == ("It belongs to “”, not to “here”.",)
    assert gaps(check, artifact(EvidenceRef("session:1", "there"))) == ("It cites sources of there.",)
    deep = artifact(rows=[{"inner": {"tenant_id": "there"}}])
    assert gaps(check, deep) == ("It contains records of there.",)


# Scores and bridges


def test_a_check_without_facts_cannot_be_scored() -> None:
    with pytest.raises(ValueError, match="cannot fail"):
        score_facts([])


def test_adapters_survive_empty_records() -> None:
    for name in ("evidence_claim", "therapy_plan", "pf_idea", "pf_knowledge", "workspace_record"):
        empty: Mapping[str, Any] = {"id": 1, "entity_type": name, "tenant": "t", "name": "N", "fields": {}}
        made = getattr(adapters, f"{name}_to_artifact")(empty)
        assert (made.evidence_refs, made.safety.label) == ((), "")


def test_a_judge_is_asked_about_the_same_dimensions() -> None:
    for suite in load_suites():
        dimensions = knowledge_rubric_to_criteria_dimensions(suite.rubric)
        assert parse_dimensions(dimensions) == dimensions, "it can be stored as a criteria set as it is"
        schema = answer_schema(ask_about(read_dimensions(dimensions)))
        assert [key for key in schema["required"] if key.endswith("_score")] == [f"{name}_score" for name in DIMENSIONS]


def test_a_grade_has_the_shape_of_a_judged_rubric() -> None:
    for suite in load_suites():
        for fixture in suite.fixtures:
            result = score_knowledge_artifact(fixture.artifact, suite.rubric)
            rubric = knowledge_result_to_rubric_score_result(result)
            assert (rubric["status"], rubric["passed"]) == ("judged", result.passed)
            questions = {
                one.name: one
                for one in ask_about(read_dimensions(knowledge_rubric_to_criteria_dimensions(suite.rubric)))
            }
            for name, mark in rubric["dimensions"].items():
                assert questions[name].accepts(mark["score"])
                assert questions[name].passes(mark["score"]) is mark["passed"] is (name not in result.failed)
                assert mark["reason"]
