"""What feedback may carry beside its text: the context of each source, and the details that any row may have."""

from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.formats.messages import invalid_values

ErrorCategory = Literal[
    "missing_context", "wrong_context", "ignored_constraints", "hallucination", "style_mismatch", "other"
]
OutputIssue = Literal["hallucination", "missed_requirement", "style_issue", "security_concern", "performance_concern"]
Verdict = Literal["approved", "changes_requested", "rejected"]
ERROR_CATEGORIES: tuple[str, ...] = get_args(ErrorCategory)
OUTPUT_ISSUES: tuple[str, ...] = get_args(OutputIssue)
VERDICTS: tuple[str, ...] = get_args(Verdict)
SCORES = ("accuracy", "completeness", "style_match")
Percent = Annotated[int, Field(ge=0, le=100)]
Short = Annotated[str, Field(min_length=1, max_length=256)]
Long = Annotated[str, Field(max_length=20_000)]


class Shape(BaseModel):
    """Unknown names are refused: what nobody reads should not look stored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ChatContext(Shape):
    chat_id: Short | None = None
    message_index: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None


class ResponseContext(Shape):
    response_id: UUID
    criteria_set_id: UUID | None = None
    field_name: Short | None = None


class ExtractionContext(Shape):
    field_name: Short | None = None
    entity_type_id: UUID | None = None
    rejected_value: Any = None
    retry_ref: Short | None = None
    response_id: UUID | None = None


class ToolContext(Shape):
    tool_slug: Short
    tool_run_id: Short | None = None


class SessionContext(Shape):
    failure_reason: Annotated[str, Field(max_length=4096)] | None = None
    event_id: UUID | None = None


class ReplayContext(Shape):
    golden_session_id: UUID
    replay_session_ids: Annotated[list[UUID], Field(min_length=1, max_length=100)]
    agent_version_id: UUID | None = None
    context_mode: Literal["frozen", "live"] | None = None
    # The newest run that it failed in.
    eval_run_id: UUID | None = None
    divergences: Annotated[list[Any], Field(max_length=200)] = []


class ObservationContext(ChatContext):
    """What an admin's flag points at, as far as it is not the session itself."""

    event_id: UUID | None = None
    response_id: UUID | None = None


class QualityScores(Shape):
    accuracy: Percent | None = None
    completeness: Percent | None = None
    style_match: Percent | None = None


class OutputReview(Shape):
    verdict: Verdict
    edit_distance: Percent | None = None
    approximate: bool | None = None
    issues: Annotated[list[OutputIssue], Field(max_length=10)] = []


class Details(Shape):
    error_categories: Annotated[list[ErrorCategory], Field(max_length=10)] | None = None
    missing_context: Annotated[str, Field(max_length=4096)] | None = None
    quality_scores: QualityScores | None = None
    output_review: OutputReview | None = None
    preferred_answer: Long | None = None
    skipped: bool | None = None


class Target(Shape):
    """A turn that a message may have judged."""

    turn_id: Short
    similarity: float
    score: float


class MachineDetails(Details):
    """What Upshot noted beside a judgement that it found in a message."""

    detected_in: UUID | None = None
    targets: Annotated[list[Target], Field(max_length=5)] | None = None
    decided_by: Short | None = None


class AssessedReview(Shape):
    verdict: Verdict | None = None
    issues: Annotated[list[OutputIssue], Field(max_length=10)] = []


class Assessment(Shape):
    """What an admin thinks of the answer. No client supplies it along with feedback."""

    quality_scores: QualityScores | None = None
    output_review: AssessedReview | None = None
    error_categories: Annotated[list[ErrorCategory], Field(max_length=10)] = []


ASSESSMENT = "assessment"
# Since when its author no longer says it, on a row that stays because someone worked on it.
RETRACTED = "retracted_at"
CONTEXTS: dict[str, type[Shape]] = {
    "chat": ChatContext,
    "response": ResponseContext,
    "extraction": ExtractionContext,
    "tool": ToolContext,
    "session": SessionContext,
    "observation": ObservationContext,
}


def read_context(source_type: str, kind: str, context: dict[str, Any]) -> dict[str, Any]:
    """The context as it is stored, or Invalid with a sentence for each field."""
    return _validate("context", ReplayContext if kind == "replay_failure" else CONTEXTS[source_type], context)


def read_details(details: dict[str, Any], origin: str = "user") -> dict[str, Any]:
    """The details as they are stored, or Invalid with a sentence for each field."""
    return _validate("details", MachineDetails if origin == "machine" else Details, details)


def read_assessment(given: dict[str, Any]) -> dict[str, Any]:
    """An assessment as it is stored, without who made it: nothing that says nothing, or Invalid."""
    found = _validate("assessment", Assessment, given)
    return {name: value for name, value in found.items() if value}


def without_assessment(details: dict[str, Any]) -> dict[str, Any]:
    """The details without what an admin thinks of them."""
    return {name: value for name, value in details.items() if name != ASSESSMENT}


def merge_assessment(details: dict[str, Any]) -> dict[str, Any]:
    """The details with an admin's assessment over what the author said: scores and verdict replace, lists add up."""
    found, over = without_assessment(details), details.get(ASSESSMENT) or {}
    merged = {name: {**found.get(name, {}), **over.get(name, {})} for name in ("quality_scores", "output_review")}
    issues = _union("issues", found.get("output_review", {}), over.get("output_review", {}))
    if issues:
        merged["output_review"]["issues"] = issues
    together = {**merged, "error_categories": _union("error_categories", found, over)}
    return found | {name: value for name, value in together.items() if value}


def _union(name: str, *parts: dict[str, Any]) -> list[Any]:
    return list(dict.fromkeys(value for part in parts for value in part.get(name, [])))


def _validate(name: str, shape: type[Shape], given: dict[str, Any]) -> dict[str, Any]:
    try:
        return shape.model_validate(given).model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    except ValidationError as wrong:
        raise invalid_values(name, wrong) from None
