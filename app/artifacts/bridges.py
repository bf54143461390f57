"""Bridges to rubrics that a model judges: the dimensions as a criteria set, and a grade in the shape of a rubric."""

from typing import Any

from app.artifacts.rubric import DIMENSIONS, DimensionScore, KnowledgeResult, KnowledgeRubric
from app.evals.rubric import score_rubric
from app.formats.criteria import parse_dimensions, read_dimensions

PASSES_FROM = 4
MAX_RATING = 5


def knowledge_rubric_to_criteria_dimensions(rubric: KnowledgeRubric) -> dict[str, dict[str, Any]]:
    """The dimensions of a rubric as those of a criteria set, for a judge who answers `<dimension>_score`. One that
    fails fails the whole, as it does here."""
    what = rubric.entity_type.replace("_", " ")
    return parse_dimensions(
        {
            name: {
                "kind": "rating",
                "label": name.replace("_", " ").capitalize(),
                "description": f"Of this {what}: {question}",
                "importance": "critical",
                "passes_from": PASSES_FROM,
                "anchors": {"1": "None of it holds.", "3": "Some of it is missing.", "5": "All of it holds."},
            }
            for name, question in DIMENSIONS.items()
        }
    )


def knowledge_result_to_rubric_score_result(result: KnowledgeResult) -> dict[str, Any]:
    """A grade as a judged rubric is stored: a rating and a reason for each dimension, and whether the whole passes."""
    marks = {
        name: {"score": _rate(found), "passed": found.passed, "reason": _explain(found)}
        for name, found in result.dimensions.items()
    }
    return score_rubric(read_dimensions(knowledge_rubric_to_criteria_dimensions(result.rubric)), marks)


def _rate(found: DimensionScore) -> int:
    """From 1 to 5. What fails stays below the rating that passes, however little is missing."""
    return MAX_RATING if found.passed else min(1 + int(4 * found.score), PASSES_FROM - 1)


def _explain(found: DimensionScore) -> str:
    return " ".join(found.gaps) or "All of it holds."
