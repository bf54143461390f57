"""Goldens, candidates and comparisons over the API."""

from typing import Any, Literal
from uuid import UUID

from flask import g
from pydantic import AliasGenerator, ConfigDict, Field
from pydantic.alias_generators import to_snake

from app.api.admin import admin_route
from app.api.kit.fields import Answer, Body, Id, Limit, Moment, Page, SetName
from app.db import paging
from app.errors import Invalid
from app.services.evals import candidates, golden_lists, promotion, revisions
from app.services.evals import compare as eval_compare
from app.services.evals import golden as eval_golden
from app.services.evals.revisions import MAX_REASON_CHARS, Revision


class CamelCase(Answer):
    """Read from attributes in our own spelling."""

    model_config = ConfigDict(alias_generator=AliasGenerator(validation_alias=to_snake))


class CandidateItem(CamelCase):
    """A prompt that got negative feedback."""

    prompt: str
    agentId: UUID  # noqa: N815 - the API speaks camel case here.
    agentSlug: str  # noqa: N815 - the same.
    occurrenceCount: int  # noqa: N815 - the same.
    feedbackIds: list[UUID]  # noqa: N815 - the same.
    representativeSessionId: UUID  # noqa: N815 - the same.
    lastFeedbackAt: Moment  # noqa: N815 - the same.


class CandidateList(Answer):
    items: list[CandidateItem]
    next_cursor: str | None
    total: int = Field(validation_alias="count")


class CandidateQuery(Page):
    limit: Limit = Field(20, validate_default=False, description="Groups per page, 1 to 100.")


class RunAgain(Answer):
    """The new session."""

    sessionId: UUID  # noqa: N815 - the API speaks camel case here.
    status: str


class Resolution(Body):
    """A decision about a candidate."""

    feedbackIds: list[Id] = Field(max_length=candidates.MAX_IDS, strict=False)  # noqa: N815 - the API's name.
    action: Literal["applied", "dismissed"]
    notes: str | None = Field(None, max_length=4096)


class Resolved(Answer):
    updated: int


class GoldenItem(CamelCase):
    """A golden without its snapshot."""

    sessionId: UUID = Field(validation_alias="id")  # noqa: N815 - the API speaks camel case here.
    title: str
    set: str = Field(validation_alias="set_name")
    note: str | None
    criteriaSetId: UUID | None  # noqa: N815 - the same.
    agent: str
    agentId: UUID  # noqa: N815 - the same.
    agentVersion: int | None  # noqa: N815 - the same.
    sessionType: str  # noqa: N815 - the same.
    promotedAt: Moment | None  # noqa: N815 - the same.
    promotedBy: UUID | None  # noqa: N815 - the same.
    sha256: str | None = Field(validation_alias="sha256")
    baselineRejected: bool  # noqa: N815 - the same.
    recordedIsRight: bool  # noqa: N815 - the same.
    expected: dict[str, Any] | None
    revision: int = Field(description="Number of changes to its expectations.")


class PastExpectations(Answer):
    """One revision. `before` has the earlier `expected`, `baseline_rejected` and `recorded_is_right`."""

    number: int
    at: Moment
    by: UUID
    who: str | None
    reason: str | None
    before: dict[str, Any]


class GoldenDetail(GoldenItem):
    revisions: list[PastExpectations] = Field(description="Newest first.")


class NewlyGolden(GoldenItem):
    """The new golden."""

    updated: int = Field(description="How many pending rows of `feedbackIds` were applied.")


class GoldenPage(Answer):
    items: list[GoldenItem]
    next_cursor: str | None


class SetQuery(Page):
    set: SetName | None = Field(None, description="Only this set.")


class NewGolden(Body):
    """The completed session to promote."""

    sessionId: Id = Field(strict=False)  # noqa: N815 - the API speaks camel case here.
    set: SetName | None = Field(None, description="A slug. Defaults to `default`.")
    note: str | None = Field(None, max_length=eval_golden.MAX_NOTE_CHARS)
    criteriaSetId: Id | None = Field(None, strict=False)  # noqa: N815 - the same.
    feedbackIds: list[Id] = Field(  # noqa: N815 - the same.
        [], max_length=candidates.MAX_IDS, strict=False, description="Pending feedback to apply."
    )
    expected: dict[str, Any] | None = Field(
        None, description="The expected behaviour: answer, mentions, must_not_mention, calls, no_calls, effects."
    )
    recorded_is_right: bool = Field(False, description="The recorded run is right despite complaints.")
    confirm_incomplete: bool = Field(False, description="Promote even though a length limit cut off an answer.")


class GoldenChange(Body):
    """Fields to change. Omitted fields stay the same."""

    set: SetName = Field(default_factory=str)
    note: str | None = Field(None, max_length=eval_golden.MAX_NOTE_CHARS)
    criteriaSetId: Id | None = Field(None, strict=False)  # noqa: N815 - the API speaks camel case here.
    expected: dict[str, Any] | None = Field(
        None, description="The expected behaviour, as for a new golden. Null or {} goes back to the recording."
    )
    recorded_is_right: bool = Field(False, description="The recorded run is right despite complaints about it.")
    reason: str | None = Field(None, max_length=MAX_REASON_CHARS, description="Why the expectations change.")
    revision: int | None = Field(None, ge=0, description="The `revision` you read. 409 if there is a newer one.")


@admin_route("GET", "/api/admin/evals/candidates")
def list_candidates(query: CandidateQuery) -> CandidateList:
    """List candidates. Prompts with pending negative feedback, grouped by agent and first message, most complaints
    first."""
    found = candidates.list_candidates(actor=g.actor, limit=query.limit, cursor=query.cursor)
    return CandidateList.model_validate(found)


@admin_route(
    "POST",
    "/api/admin/evals/candidates/<uuid:session_id>/run-again",
    status=202,
    idempotent=True,
    also={
        404: "This workspace has no such session.",
        409: "It is already running again, has completed, has no pending feedback, or its agent is archived or "
        "external.",
    },
)
def run_again(session_id: UUID, body: Body) -> RunAgain:
    """Run a candidate again. Starts a session with the same prompt on the agent's current version, for a candidate
    whose sessions failed. Once completed, it becomes the candidate's `representativeSessionId`."""
    session = candidates.run_again(session_id, actor=g.actor)
    return RunAgain(sessionId=session.id, status=session.status)


@admin_route("PATCH", "/api/admin/evals/candidates")
def resolve_candidates(body: Resolution) -> Resolved:
    """Resolve a candidate. Only pending rows change. `updated` says how many."""
    moved = candidates.resolve_group(body.feedbackIds, body.action, actor=g.actor, notes=body.notes)
    return Resolved(updated=len(moved))


@admin_route("GET", "/api/admin/evals/golden")
def list_goldens(query: SetQuery) -> GoldenPage:
    """List goldens."""
    found = golden_lists.list_goldens(paging.Page(query.limit, query.cursor), actor=g.actor, set_name=query.set)
    return GoldenPage.model_validate(found)


@admin_route(
    "POST",
    "/api/admin/evals/golden",
    status=201,
    idempotent=True,
    also={
        404: "This workspace has no such session.",
        409: "The session is already golden, a replay, not completed, or cut off without `confirm_incomplete`; "
        "or someone else resolved all of `feedbackIds`.",
        422: "The session has no messages.",
    },
)
def promote(body: NewGolden) -> NewlyGolden:
    """Promote a session. Freezes the session with its knowledge and inputs. Applies the pending rows of
    `feedbackIds` in the same transaction and ignores other IDs. `updated` says how many were applied."""
    rest = {to_snake(name): value for name, value in body if name not in ("sessionId", "set")}
    given = promotion.Promotion(set_name=body.set, **rest)
    done = promotion.promote_session(body.sessionId, given, actor=g.actor)
    made = golden_lists.get_golden(body.sessionId, actor=g.actor)
    return NewlyGolden.model_validate({**made._mapping, "updated": done.applied})


@admin_route("GET", "/api/admin/evals/golden/<uuid:session_id>")
def read_golden(session_id: UUID) -> GoldenDetail:
    """Get a golden with its past expectations."""
    return _golden(session_id)


@admin_route(
    "PATCH",
    "/api/admin/evals/golden/<uuid:session_id>",
    also={409: "The expectations changed since `revision`, or reached the maximum number of revisions."},
)
def change_golden(session_id: UUID, body: GoldenChange) -> GoldenDetail:
    """Update a golden. Changes its set, note, criteria or expectations. `expected` and `recorded_is_right` create a
    revision. Nothing else about a golden ever changes."""
    given = body.model_dump(exclude_unset=True)
    about: dict[str, Any] = {name: given.pop(name) for name in ("set", "note", "criteriaSetId") if name in given}
    if "expected" in given or "recorded_is_right" in given:
        revisions.revise_expectations(session_id, Revision(**given), actor=g.actor)
    elif given:
        raise Invalid.of(dict.fromkeys(given, "Send it with `expected` or `recorded_is_right`."))
    if about or not given:
        eval_golden.edit_golden(session_id, about, actor=g.actor)
    return _golden(session_id)


def _golden(session_id: UUID) -> GoldenDetail:
    row = golden_lists.get_golden(session_id, actor=g.actor)
    past = revisions.list_revisions(session_id, actor=g.actor)
    return GoldenDetail.model_validate({**row._mapping, "revisions": past})


@admin_route("DELETE", "/api/admin/evals/golden/<uuid:session_id>", status=204)
def revoke(session_id: UUID) -> None:
    """Revoke a golden. The session stays. Safe to repeat."""
    eval_golden.revoke_golden(session_id, actor=g.actor)


class ComparedDimension(Answer):
    score: float
    passed: bool
    weight: float
    reason: str
    decides: bool


class Divergence(Answer):
    """One difference, with the sequence numbers of its events."""

    dimension: str
    path: str
    golden: Any
    replay: Any
    weight: float
    golden_seq: int | None
    replay_seq: int | None
    text: str


class ComparisonAnswer(Answer):
    """A verdict. `passed` and `overall_accuracy` are null if nothing could be judged."""

    session_type: str
    verdict: Literal["pass", "fail", "flaky", "errored", "unknown"]
    passed: bool | None
    reason: str
    overall_accuracy: float | None
    dimensions: dict[str, ComparedDimension]
    divergences: list[Divergence]
    effects: dict[str, list[dict[str, Any]]] = Field(description="Records each side changed.")
    drift: dict[str, Any] | None
    drifted: bool
    left_recording: bool
    truncated: bool
    baseline: Literal["recorded", "expected", "rejected"]


class Pair(Body):
    """The golden session, and the one to compare with it."""

    goldenSessionId: Id = Field(strict=False)  # noqa: N815 - the API speaks camel case here.
    replaySessionId: Id = Field(strict=False)  # noqa: N815 - the same.


@admin_route("POST", "/api/admin/evals/compare", also={404: "One of the sessions is not in this workspace."})
def compare(body: Pair) -> ComparisonAnswer:
    """Compare two sessions. The first doesn't have to be golden. Nothing is stored."""
    found = eval_compare.compare_sessions(body.goldenSessionId, body.replaySessionId, actor=g.actor)
    return ComparisonAnswer(**found.as_json())
