"""The suites that come with Upshot: both contracts, drift, and what happens when a proof is taken away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.artifacts import catalogue
from app.artifacts.catalogue import CARE, PRODUCT, load_suites, load_workspace_suite
from app.artifacts.model import KnowledgeSafetyClass, KnowledgeSurface
from app.artifacts.rubric import DIMENSIONS, score_knowledge_artifact
from app.artifacts.scorecard import build_scorecard, write_junit, write_markdown
from app.artifacts.suites import KnowledgeEvalSuite, find_drift, merge, run_knowledge_eval_suite
from app.artifacts.surfaces import resolve_knowledge_surfaces, unresolved_knowledge_surfaces

SUITES = {suite.name: suite for suite in (*load_suites(), load_workspace_suite("here"))}
every_suite = pytest.mark.parametrize("suite", SUITES.values(), ids=list(SUITES))


class Watched(dict[str, Any]):
    """Fields that note who was read."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.read: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)


@every_suite
def test_every_fixture_behaves_as_labelled(suite: KnowledgeEvalSuite) -> None:
    result = run_knowledge_eval_suite(suite)
    assert result.problems == ()
    assert result.passed
    assert {name: proof.failing_fixtures for name, proof in result.dimensions.items()} == dict.fromkeys(DIMENSIONS, 1)


def test_the_product_suite_grades_ten_seed_records() -> None:
    good = [one for one in SUITES["pf-knowledge"].fixtures if one.fails_dimension is None]
    assert len(good) == 10
    assert {str(one.artifact.fields["status"]) for one in good} == {"draft", "published"}
    bare = [one for one in good if not one.artifact.evidence_refs]
    assert bare
    assert all(one.artifact.fields["status"] == "draft" for one in bare), "sources are due at publish, not at draft"


@every_suite
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_a_suite_without_a_failing_fixture_fails(suite: KnowledgeEvalSuite, dimension: str) -> None:
    fixtures = tuple(one for one in suite.fixtures if one.fails_dimension != dimension)
    result = run_knowledge_eval_suite(replace(suite, fixtures=fixtures))
    assert result.problems == (f"{dimension} has no failing fixture.",)
    assert [name for name, proof in result.dimensions.items() if not proof.passed] == [dimension]


@every_suite
def test_wrong_labels_are_found(suite: KnowledgeEvalSuite) -> None:
    good = next(one for one in suite.fixtures if one.fails_dimension is None)
    bad = next(one for one in suite.fixtures if one.fails_dimension == "source_grounding")
    others = tuple(one for one in suite.fixtures if one not in (good, bad))
    as_bad = replace(good, fails_dimension="actionability")
    result = run_knowledge_eval_suite(replace(suite, fixtures=(*others, as_bad, bad)))
    assert result.problems == (f"{good.name} should fail actionability, but passes.",)
    as_good = run_knowledge_eval_suite(replace(suite, fixtures=(*others, good, replace(bad, fails_dimension=None))))
    assert any(one.startswith(f"{bad.name} fails source_grounding: ") for one in as_good.problems)
    assert not as_good.dimensions["source_grounding"].passed


def test_a_bad_fixture_may_fail_nothing_else() -> None:
    suite = SUITES["pf-knowledge"]
    [bad] = [one for one in suite.fixtures if one.fails_dimension == "source_grounding"]
    elsewhere = replace(bad, artifact=replace(bad.artifact, tenant="pantry"))
    others = tuple(one for one in suite.fixtures if one is not bad)
    result = run_knowledge_eval_suite(replace(suite, fixtures=(*others, elsewhere)))
    assert result.problems == (
        "published-and-bare also fails tenant_isolation: It belongs to “pantry”, not to “basket”.",
    )


# Drift


@pytest.mark.parametrize("name", catalogue.ADAPTERS)
def test_adapters_read_only_fields_of_the_schema(name: str) -> None:
    kind, loop, adapter = catalogue.ADAPTERS[name]
    fields = Watched({"claims": ["a"]})
    adapter({"id": "x", "entity_type": kind, "tenant": "t", "name": "N", "fields": fields})
    assert fields.read <= set(catalogue.entity_types()[kind]["fields"])
    assert set(loop.record(kind).evidence) <= fields.read, "sources come from where the loop says they are"


@every_suite
def test_rubrics_read_only_what_the_schema_has(suite: KnowledgeEvalSuite) -> None:
    assert find_drift(suite.rubric) == []
    schema = dict(suite.rubric.schema)
    field = suite.rubric.record.required[0]
    without = {key: rule for key, rule in schema.items() if key != field}
    drifted = run_knowledge_eval_suite(replace(suite, rubric=replace(suite.rubric, schema=without)))
    assert f"{suite.rubric.entity_type} has no field {field}." in drifted.problems
    assert not drifted.passed
    statuses = {**schema["status"], "enum": [*schema["status"]["enum"], "archived"]}
    assert find_drift(replace(suite.rubric, schema=schema | {"status": statuses})) == [
        f"{suite.rubric.entity_type} has other statuses than its loop: archived."
    ]
    labels = {"type": "string", "enum": ["informational", "deadly"]}
    assert "other safety classes" in find_drift(replace(suite.rubric, schema=schema | {"safety_class": labels}))[0]


def test_a_rubric_is_a_lens_over_its_loop() -> None:
    """What the loop declares changes, and the grade follows without a change to the rubric."""
    suite = SUITES["pf-knowledge"]
    sure = next(one.artifact for one in suite.fixtures if one.name == "saturday-morning")
    assert score_knowledge_artifact(sure, suite.rubric).passed
    gate = replace(PRODUCT.review_gate, safety_class=KnowledgeSafetyClass.HIGH_STAKES)
    stricter = replace(suite.rubric, loop=replace(PRODUCT, review_gate=gate))
    assert score_knowledge_artifact(sure, stricter).failed == ["safety_human_gate"]
    nowhere = replace(suite.rubric, loop=replace(PRODUCT, surfaces=()))
    assert score_knowledge_artifact(sure, nowhere).failed == ["workspace_renderability"]


# Surfaces


def test_every_declared_surface_must_resolve() -> None:
    pages = {"entities.index": "/entities", "entities.detail": "/entities/…"}
    resolvers = {"page": pages.get, "entity_type": {"evidence_claim": "Evidence claim"}.get}
    resolved = {str(one.surface): one.target for one in resolve_knowledge_surfaces(CARE, resolvers)}
    assert resolved["page:entities.index"] == "/entities"
    assert unresolved_knowledge_surfaces(CARE, resolvers) == [KnowledgeSurface("entity_type", "therapy_plan")]
    assert len(unresolved_knowledge_surfaces(CARE, {})) == len(CARE.surfaces), "a kind that nobody resolves"
    result = run_knowledge_eval_suite(SUITES["evidence-claim"], resolvers)
    assert result.problems == ("The loop care-guidance declares entity_type:therapy_plan, which does not exist.",)


def test_resolvers_decide_what_can_be_shown() -> None:
    result = run_knowledge_eval_suite(SUITES["pf-idea"], {"page": lambda name: None})
    assert "same-milk-twice fails workspace_renderability" in " ".join(result.problems)


# Scorecard


def test_the_scorecard_says_what_failed() -> None:
    suite = SUITES["pf-idea"]
    broken = replace(suite, fixtures=tuple(one for one in suite.fixtures if one.fails_dimension != "actionability"))
    results = [run_knowledge_eval_suite(SUITES["pf-knowledge"]), run_knowledge_eval_suite(broken)]
    found = build_scorecard(results)
    assert (found["passed"], [one["passed"] for one in found["suites"]]) == (False, [True, False])
    assert found["suites"][0]["fixtures"] == 16
    assert found["suites"][1]["dimensions"]["actionability"] == {"passed": False, "failing_fixtures": 0}
    told = write_markdown(found)
    assert told.startswith("# Knowledge evals: FAIL\n")
    assert "- actionability has no failing fixture." in told
    report = write_junit(results)
    assert (report.count("<testsuite "), report.count("<failure")) == (2, 1)
    assert '<failure message="actionability has no failing fixture."' in report


def test_a_workspace_record_with_control_characters_can_be_reported() -> None:
    suite = SUITES["workspace"]
    strange = replace(suite.fixtures[0], name="a\x01b", fails_dimension="actionability")
    report = write_junit([run_knowledge_eval_suite(replace(suite, fixtures=(*suite.fixtures, strange)))])
    assert "\x01" not in report


def test_merge_patches_records() -> None:
    record = {"name": "a", "fields": {"one": 1, "two": [1, 2]}}
    assert merge(record, {"fields": {"one": None, "two": [3], "new": {"x": 1}}}) == {
        "name": "a", "fields": {"two": [3], "new": {"x": 1}},
    }  # fmt: skip
    assert record["fields"] == {"one": 1, "two": [1, 2]}
