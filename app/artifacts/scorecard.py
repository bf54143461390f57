"""The scorecard of several suites: as JSON, as Markdown for people, and as JUnit for builds."""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from app.artifacts.suites import GradedFixture, SuiteResult
from app.formats.run_reports import xml_safe

# Of a workspace with many records, the scorecard lists so many that fail and counts the others.
MAX_LISTED = 100


def build_scorecard(results: Sequence[SuiteResult]) -> dict[str, Any]:
    """Whether everything passes, and what each suite found. `problems` are the sentences that say why not."""
    return {"passed": all(one.passed for one in results), "suites": [_describe_suite(one) for one in results]}


def _describe_suite(result: SuiteResult) -> dict[str, Any]:
    unexpected = [one for one in result.graded if one.problem]
    return {
        "name": result.name,
        "passed": result.passed,
        "fixtures": len(result.graded),
        "dimensions": {name: vars(found) for name, found in result.dimensions.items()},
        "problems": list(result.problems[:MAX_LISTED]),
        "problem_count": len(result.problems),
        "gaps": [_describe_gaps(one) for one in unexpected[:MAX_LISTED]],
    }


def _describe_gaps(graded: GradedFixture) -> dict[str, Any]:
    """A fixture that did not behave as labelled, and what it lacks."""
    artifact, result = graded.fixture.artifact, graded.result
    return {
        "fixture": graded.fixture.name,
        "id": artifact.id,
        "title": artifact.render.title,
        "surface": str(artifact.render.surface),
        "score": round(result.score, 4),
        "gaps": {name: list(found) for name, found in result.gaps.items()},
        "problem": graded.problem,
    }


def summarise_scorecard(scorecard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The name, state and size of each suite."""
    return [
        {name: one[name] for name in ("name", "passed", "fixtures", "problem_count")} for one in scorecard["suites"]
    ]


def write_markdown(scorecard: Mapping[str, Any]) -> str:
    lines = [f"# Knowledge evals: {_word(scorecard)}", ""]
    for suite in scorecard["suites"]:
        lines += [f"## {suite['name']}: {_word(suite)}, {suite['fixtures']} fixtures", ""]
        lines += ["| dimension | | failing fixtures |", "|---|---|---|"]
        lines += [
            f"| `{name}` | {_word(one)} | {one['failing_fixtures']} |" for name, one in suite["dimensions"].items()
        ]
        lines += ["", *(f"- {' '.join(problem.split())}" for problem in suite["problems"]), ""]
    return "\n".join(lines).rstrip() + "\n"


def write_junit(results: Sequence[SuiteResult]) -> str:
    """A test suite for each suite: a case for each dimension and for each fixture."""
    root = ElementTree.Element("testsuites", name="knowledge evals")
    for result in results:
        suite = ElementTree.SubElement(root, "testsuite", name=result.name)
        cases = {name: [] if one.passed else _about(name, result) for name, one in result.dimensions.items()}
        cases |= {one.fixture.name: [one.problem] if one.problem else [] for one in result.graded}
        told = {problem for problems in cases.values() for problem in problems}
        cases["loop and schema"] = [problem for problem in result.problems if problem not in told]
        for name, problems in cases.items():
            case = ElementTree.SubElement(suite, "testcase", classname=result.name, name=xml_safe(name))
            if problems:
                ElementTree.SubElement(case, "failure", message=xml_safe(problems[0])).text = xml_safe(
                    "\n".join(problems)
                )
        suite.set("tests", str(len(cases)))
        suite.set("failures", str(sum(map(bool, cases.values()))))
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, "utf-8", xml_declaration=True)
    return f"{written.decode()}\n"


def _about(dimension: str, result: SuiteResult) -> list[str]:
    """The problems that name a dimension."""
    return [problem for problem in result.problems if dimension in problem]


def _word(found: Mapping[str, Any]) -> str:
    return "pass" if found["passed"] else "FAIL"
