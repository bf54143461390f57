"""Suites: a rubric with labelled fixtures, and the two contracts that make it worth trusting.

Every fixture behaves as labelled: a good one passes, a bad one fails exactly the dimension it is aimed at. And every
dimension has a failing fixture aimed at it, because a dimension that nothing ever failed proves nothing.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.artifacts.checks import RenderabilityProbe
from app.artifacts.model import KnowledgeArtifact, KnowledgeSafetyClass
from app.artifacts.rubric import DIMENSIONS, KnowledgeResult, KnowledgeRubric, score_knowledge_artifact
from app.artifacts.surfaces import Resolver, probe_with, unresolved_knowledge_surfaces
from app.errors import Invalid

Entity = Mapping[str, Any]
Adapter = Callable[[Entity], KnowledgeArtifact]


@dataclass(frozen=True)
class KnowledgeFixture:
    """An artifact and how it behaves: it passes, or fails one dimension. A rubric of its own replaces the suite's."""

    name: str
    artifact: KnowledgeArtifact
    fails_dimension: str | None = None
    rubric: KnowledgeRubric | None = None


@dataclass(frozen=True)
class KnowledgeEvalSuite:
    name: str
    rubric: KnowledgeRubric
    fixtures: tuple[KnowledgeFixture, ...]


@dataclass(frozen=True)
class GradedFixture:
    """What became of a fixture. `problem` is a sentence where it did not behave as labelled."""

    fixture: KnowledgeFixture
    result: KnowledgeResult
    problem: str | None


@dataclass(frozen=True)
class DimensionProof:
    """Whether a dimension is proved: a failing fixture aimed at it failed it, and nobody else was hit by it."""

    passed: bool
    failing_fixtures: int


@dataclass(frozen=True)
class SuiteResult:
    """`problems` are sentences; a suite without any passes."""

    name: str
    graded: tuple[GradedFixture, ...]
    dimensions: Mapping[str, DimensionProof]
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.problems


def run_knowledge_eval_suite(suite: KnowledgeEvalSuite, resolvers: Mapping[str, Resolver] | None = None) -> SuiteResult:
    """Grade every fixture and hold the suite to both contracts. With resolvers, the surfaces of its loop have to exist,
    and they alone say which page can show a record."""
    probe = probe_with(resolvers) if resolvers is not None else None
    graded = tuple(_grade(fixture, fixture.rubric or suite.rubric, probe) for fixture in suite.fixtures)
    dimensions = {name: _prove(name, graded) for name in DIMENSIONS}
    unproved = [f"{name} has no failing fixture." for name, found in dimensions.items() if not found.failing_fixtures]
    missing = unresolved_knowledge_surfaces(suite.rubric.loop, resolvers) if resolvers is not None else []
    problems = (
        *unproved,
        *(one.problem for one in graded if one.problem),
        *find_drift(suite.rubric),
        *(f"The loop {suite.rubric.loop.name} declares {one}, which does not exist." for one in missing),
    )
    return SuiteResult(suite.name, graded, dimensions, problems)


def _grade(fixture: KnowledgeFixture, rubric: KnowledgeRubric, probe: RenderabilityProbe | None) -> GradedFixture:
    result = score_knowledge_artifact(fixture.artifact, replace(rubric, probe=probe) if probe else rubric)
    return GradedFixture(fixture, result, _describe_problem(fixture, result))


def _describe_problem(fixture: KnowledgeFixture, result: KnowledgeResult) -> str | None:
    aimed, failed = fixture.fails_dimension, result.failed
    if failed == ([aimed] if aimed else []):
        return None
    if aimed and aimed not in failed:
        return f"{fixture.name} should fail {aimed}, but {'passes' if not failed else f'fails {_join(failed)}'}."
    strays = [name for name in failed if name != aimed]
    return f"{fixture.name} {'also ' if aimed else ''}fails {_join(strays)}: {result.gaps[strays[0]][0]}"


def _prove(dimension: str, graded: Sequence[GradedFixture]) -> DimensionProof:
    aimed = [one for one in graded if one.fixture.fails_dimension == dimension]
    hit = sum(dimension in one.result.failed for one in aimed)
    strays = any(dimension in one.result.failed for one in graded if one.fixture.fails_dimension != dimension)
    return DimensionProof(bool(aimed) and hit == len(aimed) and not strays, hit)


def _join(names: Iterable[str]) -> str:
    return " and ".join(names)


# Drift


def find_drift(rubric: KnowledgeRubric) -> list[str]:
    """Where a rubric reads fields, statuses or labels that the entity type does not have."""
    record, schema = rubric.record, rubric.schema
    kind = record.entity_type
    drift = [f"{kind} has no field {name}." for name in sorted(record.field_names - set(schema))]
    declared = schema.get(record.status, {}).get("enum")
    statuses = record.drafts | record.finals
    if declared is not None and set(declared) != statuses:
        drift.append(f"{kind} has other statuses than its loop: {', '.join(sorted(set(declared) ^ statuses))}.")
    labels = schema.get("safety_class", {}).get("enum")
    if labels is not None and set(labels) != set(KnowledgeSafetyClass):
        drift.append(f"{kind} has other safety classes than {', '.join(KnowledgeSafetyClass)}.")
    return drift


# Fixtures in JSON


def read_fixtures(text: str, adapter: Adapter, rubric: KnowledgeRubric) -> tuple[KnowledgeFixture, ...]:
    """Fixtures from a JSON list of records. A bad one is `like` a good one, with `change` merged into it, and names the
    dimension that it `fails`. A record without a tenant belongs to that of its loop."""
    records: dict[str, dict[str, Any]] = {}
    return tuple(_read_fixtures(json.loads(text), records, adapter, rubric))


def _read_fixtures(
    given: list[dict[str, Any]], records: dict[str, dict[str, Any]], adapter: Adapter, rubric: KnowledgeRubric
) -> Iterator[KnowledgeFixture]:
    start = {"entity_type": rubric.entity_type, "tenant": rubric.loop.tenant}
    for one in given:
        fails = one.get("fails")
        if fails is not None and fails not in DIMENSIONS:
            raise Invalid(f"{one['id']}: there is no dimension {fails}.")
        record = merge({**start, **records[one["like"]]}, one["change"]) if fails else {**start, **one}
        records[one["id"]] = {**record, "id": one["id"]}
        yield KnowledgeFixture(one["id"], adapter(records[one["id"]]), fails)


def merge(record: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A record with a JSON merge patch applied: objects are merged, null removes, everything else replaces."""
    merged = dict(record)
    for name, value in change.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            merged[name] = merge(merged[name] if isinstance(merged.get(name), Mapping) else {}, value)
        else:
            merged[name] = value
    return merged
