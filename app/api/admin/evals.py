"""Goldens and candidates over JSON, under the names that the page uses."""

from typing import Any, Literal
from uuid import UUID

from flask import g
from pydantic import Field

from app.api.admin import bp
from app.api.kit.fields import Answer, Body, Cursor, Id, Limit, Moment, Query, SetName
from app.api.kit.route import route
from app.db import paging
from app.evals.grouping import Candidate
from app.services.evals import candidates, golden_lists, promotion
from app.services.evals import candidates as eval_candidates
from app.services.evals import golden as eval_golden

ADMIN = ("admin", "admin")


class CandidateItem(Answer):
    """A request that people complained about."""

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
    total: int


class CandidateQuery(Query):
    limit: Limit = Field(20, validate_default=False, description="How many groups, 1 to 100.")
    cursor: Cursor | None = Field(None, description="`next_cursor` of the page before.")


class RunAgain(Answer):
    """The session that was started."""

    sessionId: UUID  # noqa: N815 - the API speaks camel case here.
    status: str


class Resolution(Body):
    """What becomes of a group."""

    feedbackIds: list[Id] = Field(max_length=candidates.MAX_IDS, strict=False)  # noqa: N815 - the API's name.
    action: Literal["applied", "dismissed"]
    notes: str | None = Field(None, max_length=4096)


class Resolved(Answer):
    updated: int


class GoldenItem(Answer):
    """A golden without its snapshot."""

    sessionId: UUID  # noqa: N815 - the API speaks camel case here.
    title: str
    set: str
    note: str | None
    criteriaSetId: UUID | None  # noqa: N815 - the same.
    agent: str
    agentId: UUID  # noqa: N815 - the same.
    agentVersion: int | None  # noqa: N815 - the same.
    sessionType: str  # noqa: N815 - the same.
    promotedAt: Moment | None  # noqa: N815 - the same.
    promotedBy: UUID | None  # noqa: N815 - the same.
    sha256: str | None
    baselineRejected: bool  # noqa: N815 - the same.
    expected: dict[str, Any] | None


class NewlyGolden(GoldenItem):
    """A golden that has just become one."""

    updated: int = Field(description="How many of `feedbackIds` were pending in this workspace, and are applied now.")


class GoldenPage(Answer):
    items: list[GoldenItem]
    next_cursor: str | None


class GoldenQuery(Query):
    set: SetName | None = Field(None, description="Only goldens of this set.")
    limit: Limit = Field(50, validate_default=False, description="How many items, 1 to 100.")
    cursor: Cursor | None = Field(None, description="`next_cursor` of the page before.")


class NewGolden(Body):
    """A completed session that shall be what others are measured against."""

    sessionId: Id = Field(strict=False)  # noqa: N815 - the API speaks camel case here.
    set: SetName | None = Field(None, description="A slug; `default` if left out.")
    note: str | None = Field(None, max_length=eval_golden.MAX_NOTE_CHARS)
    criteriaSetId: Id | None = Field(None, strict=False)  # noqa: N815 - the same.
    feedbackIds: list[Id] = Field(  # noqa: N815 - the same.
        [], max_length=candidates.MAX_IDS, strict=False, description="Pending complaints that this settles."
    )
    expected: dict[str, Any] | None = Field(
        None, description="What should have happened: answer, mentions, must_not_mention, calls, no_calls, effects."
    )
    recorded_is_right: bool = Field(False, description="The complaint was wrong; the recorded run is right.")
    confirm_incomplete: bool = Field(False, description="Promote although an answer was cut off by a length limit.")


class GoldenChange(Body):
    """What to change; what is left out stays."""

    set: SetName = Field(default_factory=str)
    note: str | None = Field(None, max_length=eval_golden.MAX_NOTE_CHARS)
    criteriaSetId: Id | None = Field(None, strict=False)  # noqa: N815 - the API speaks camel case here.


@route(
    bp, "GET", "/api/admin/evals/candidates", access=ADMIN, query=CandidateQuery, answer=CandidateList,
    summary="List candidates",
    about="Pending complaints about responses and sessions, brought together by agent and first request; those with"
    " most complaints first.",
)  # fmt: skip
def list_candidates(query: CandidateQuery) -> CandidateList:
    found = candidates.list_candidates(actor=g.actor, limit=query.limit, cursor=query.cursor)
    items = [_candidate(one) for one in found.items]
    return CandidateList(items=items, next_cursor=found.next_cursor, total=found.total)


def _candidate(one: Candidate) -> CandidateItem:
    return CandidateItem(
        prompt=one.prompt,
        agentId=one.agent_id,
        agentSlug=one.agent_slug,
        occurrenceCount=one.occurrence_count,
        feedbackIds=one.feedback_ids,
        representativeSessionId=one.representative_session_id,
        lastFeedbackAt=one.last_feedback_at,
    )


@route(
    bp, "POST", "/api/admin/evals/candidates/<uuid:session_id>/run-again", access=ADMIN, body=Body, answer=RunAgain,
    status=202, idempotent=True, summary="Run a candidate again",
    also={
        404: "There is no such session in this workspace.",
        409: "It is running again already, a session of it completed, nothing of it is pending, or its agent is"
        " archived or runs elsewhere.",
    },
    about="For a candidate whose sessions failed: a session with the same prompt on the agent's current version, by the"
    " key's person. Once it completed, it is the candidate's `representativeSessionId`.",
)  # fmt: skip
def run_again(session_id: UUID, body: Body) -> RunAgain:
    session = eval_candidates.run_again(session_id, actor=g.actor)
    return RunAgain(sessionId=session.id, status=session.status)


@route(
    bp, "PATCH", "/api/admin/evals/candidates", access=ADMIN, body=Resolution, answer=Resolved,
    summary="Settle a group of complaints",
    about="Only rows that are still pending move; `updated` says how many.",
)  # fmt: skip
def resolve_candidates(body: Resolution) -> Resolved:
    return Resolved(
        updated=len(candidates.resolve_group(body.feedbackIds, body.action, actor=g.actor, notes=body.notes))
    )


@route(
    bp, "GET", "/api/admin/evals/golden", access=ADMIN, query=GoldenQuery, answer=GoldenPage,
    summary="List goldens",
)  # fmt: skip
def list_goldens(query: GoldenQuery) -> GoldenPage:
    found = golden_lists.list_goldens(paging.Page(query.limit, query.cursor), actor=g.actor, set_name=query.set)
    return GoldenPage(items=[_golden(row) for row in found.items], next_cursor=found.next_cursor)


@route(
    bp, "POST", "/api/admin/evals/golden", access=ADMIN, body=NewGolden, answer=NewlyGolden, status=201,
    idempotent=True, summary="Promote a session",
    also={
        404: "There is no such session in this workspace.",
        409: "Golden already, a replay, not completed, cut off without `confirm_incomplete`, or all of `feedbackIds`"
        " were settled by somebody else.",
        422: "Nobody said anything in the session.",
    },
    about="Freezes the session with everything that went into it. With `feedbackIds` the complaints are applied in the"
    " same transaction; `updated` says how many. Ids that are unknown here, or were settled before, are passed"
    " over.",
)  # fmt: skip
def promote(body: NewGolden) -> NewlyGolden:
    given = promotion.Promotion(
        set_name=body.set,
        note=body.note,
        criteria_set_id=body.criteriaSetId,
        feedback_ids=body.feedbackIds,
        expected=body.expected,
        recorded_is_right=body.recorded_is_right,
        confirm_incomplete=body.confirm_incomplete,
    )
    done = promotion.promote_session(body.sessionId, given, actor=g.actor)
    made = _golden(golden_lists.get_golden(body.sessionId, actor=g.actor))
    return NewlyGolden(**made.model_dump(), updated=done.applied)


@route(
    bp, "GET", "/api/admin/evals/golden/<uuid:session_id>", access=ADMIN, answer=GoldenItem, summary="Read a golden",
)  # fmt: skip
def read_golden(session_id: UUID) -> GoldenItem:
    return _golden(golden_lists.get_golden(session_id, actor=g.actor))


@route(
    bp, "PATCH", "/api/admin/evals/golden/<uuid:session_id>", access=ADMIN, body=GoldenChange, answer=GoldenItem,
    summary="Change a golden's set, note or criteria",
)  # fmt: skip
def change_golden(session_id: UUID, body: GoldenChange) -> GoldenItem:
    eval_golden.edit_golden(session_id, body.model_dump(exclude_unset=True), actor=g.actor)
    return _golden(golden_lists.get_golden(session_id, actor=g.actor))


@route(
    bp, "DELETE", "/api/admin/evals/golden/<uuid:session_id>", access=ADMIN, status=204, summary="Revoke a golden",
    about="The session stays. Revoking twice is fine.",
)  # fmt: skip
def revoke(session_id: UUID) -> None:
    eval_golden.revoke_golden(session_id, actor=g.actor)


def _golden(row: golden_lists.GoldenRow) -> GoldenItem:
    return GoldenItem(
        sessionId=row.id,
        title=row.title,
        set=row.set_name,
        note=row.note,
        criteriaSetId=row.criteria_set_id,
        agent=row.agent,
        agentId=row.agent_id,
        agentVersion=row.agent_version,
        sessionType=row.session_type,
        promotedAt=row.promoted_at,
        promotedBy=row.promoted_by,
        sha256=row.sha256,
        baselineRejected=row.baseline_rejected,
        expected=row.expected,
    )
