"""Two sessions compared over JSON."""

from typing import Any, Literal

from flask import g
from pydantic import Field

from app.api.admin import bp
from app.api.kit.fields import Answer, Body, Id
from app.api.kit.route import route
from app.services.evals import compare as eval_compare


class ComparedDimension(Answer):
    score: float
    passed: bool
    weight: float
    reason: str
    decides: bool


class Divergence(Answer):
    """One difference. The sequences are those of the events it was found in."""

    dimension: str
    path: str
    golden: Any
    replay: Any
    weight: float
    golden_seq: int | None
    replay_seq: int | None
    text: str


class ComparisonAnswer(Answer):
    """A verdict. `passed` and `overall_accuracy` are null where nothing could be judged."""

    session_type: str
    verdict: Literal["pass", "fail", "flaky", "errored", "unknown"]
    passed: bool | None
    reason: str
    overall_accuracy: float | None
    dimensions: dict[str, ComparedDimension]
    divergences: list[Divergence]
    effects: dict[str, list[dict[str, Any]]] = Field(description="What each side changed.")
    drift: dict[str, Any] | None
    drifted: bool
    left_recording: bool
    truncated: bool
    baseline: Literal["recorded", "expected", "rejected"]


class Pair(Body):
    """The session that is right, and the one in question."""

    goldenSessionId: Id = Field(strict=False)  # noqa: N815 - the API speaks camel case here.
    replaySessionId: Id = Field(strict=False)  # noqa: N815 - the same.


@route(
    bp, "POST", "/api/admin/evals/compare", access=("admin", "admin"), body=Pair, answer=ComparisonAnswer,
    summary="Compare two sessions",
    also={404: "One of the sessions is not in this workspace."},
    about="Any two sessions; the first need not be golden. Nothing is stored.",
)  # fmt: skip
def compare(body: Pair) -> ComparisonAnswer:
    found = eval_compare.compare_sessions(body.goldenSessionId, body.replaySessionId, actor=g.actor)
    return ComparisonAnswer(**found.as_json())
