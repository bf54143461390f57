"""Feedback over the API: give it, read it, decide about it."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from flask import g
from pydantic import Field, model_validator

from app.api.kit.fields import Answer, Body, Id, Moment, Page
from app.api.kit.route import is_last, route
from app.api.members import bp
from app.db import paging
from app.errors import Invalid
from app.formats.feedback_details import ASSESSMENT, merge_assessment
from app.ingest.fields import PastMoment
from app.services.agents import versions
from app.services.feedback import intake as feedback_intake
from app.services.feedback import lists as feedback_lists
from app.services.feedback import review as feedback_review
from app.services.feedback.lists import FeedbackFilters

Source = Literal["chat", "response", "extraction", "tool", "session", "observation"]
Rating = Literal["positive", "negative", "neutral"]
Status = Literal["pending", "reviewed", "applied", "dismissed"]
Origin = Literal["user", "machine", "system"]
Signal = Literal["helpful", "not_helpful", "inaccurate", "unsafe", "edit", "regenerate"]
Name = Annotated[str, Field(min_length=1, max_length=256)]


class NewFeedback(Body):
    """What somebody thinks of an agent's work."""

    source_type: Source = Field(description="What it is about.")
    rating: Rating
    comment: str | None = Field(None, max_length=4096, description="In their own words.")
    session_id: Id | None = Field(None, description="The session it is about.")
    entity_id: Id | None = Field(None, description="The entity it is about.")
    agent_id: Id | None = Field(None, description="The agent it is about; or `agent`.")
    agent: str | None = Field(None, max_length=120, description="The agent's slug.")
    context: dict[str, Any] = Field(
        {},
        description="Where exactly, by source: chat `chat_id, message_index`; response"
        " `response_id, criteria_set_id, field_name`; extraction `field_name, entity_type_id, rejected_value,"
        " retry_ref`; tool `tool_slug, tool_run_id`; session `failure_reason, event_id`.",
    )
    details: dict[str, Any] = Field(
        {}, description="`error_categories, missing_context, quality_scores, output_review, preferred_answer, skipped`."
    )
    occurred_at: PastMoment | None = Field(None, description="When it was said; now when left out.")
    ts: PastMoment | None = Field(None, description="Another name for `occurred_at`.")
    trace_id: Name | None = None
    chat_id: Name | None = None
    message_id: Name | None = None
    turn_id: Name | None = None
    project: Name | None = Field(None, description="`default` when left out.")

    @model_validator(mode="after")
    def one_of_each(self) -> NewFeedback:
        for one, other in (("agent", "agent_id"), ("ts", "occurred_at")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise ValueError(f"Send `{one}` or `{other}`, not both.")
        return self


class Decision(Body):
    """What is decided about a row."""

    action: Literal["reviewed", "applied", "dismissed", "reopen"]
    notes: str | None = Field(None, max_length=4096, description="Why.")


class FeedbackQuery(Page):
    status: Status | None = None
    source_type: Source | None = None
    rating: Rating | None = None
    signal: Signal | None = None
    origin: Origin | None = None
    agent_id: Id | None = None


class FeedbackAnswer(Answer):
    """One row of feedback."""

    id: UUID
    source_type: Source
    kind: str
    rating: Rating
    signal: Signal | None
    origin: Origin
    confidence: float
    status: Status
    comment: str | None
    session_id: UUID | None
    entity_id: UUID | None
    agent_id: UUID | None
    chat_id: str | None
    message_id: str | None
    turn_id: str | None
    trace_id: str | None
    project: str
    context: dict[str, Any]
    details: dict[str, Any]
    outcome: dict[str, Any]
    reviewed_at: Moment | None
    reviewed_by_user_id: UUID | None
    reviewed_by_agent_id: UUID | None
    review_notes: str | None
    created_by: UUID | None = Field(description="Null where the workspace hides who said what.")
    created_at: Moment
    occurred_at: Moment


class FeedbackItem(FeedbackAnswer):
    """A row with the names of what it points at."""

    agent: str | None
    author: str | None
    session_title: str | None


class FeedbackPage(Answer):
    """Some of them, newest first."""

    items: list[FeedbackItem]
    next_cursor: str | None


class KnowledgeLink(Answer):
    """Knowledge that this feedback stands behind."""

    id: UUID
    type: str
    content: str
    state: str


class FeedbackRead(FeedbackItem):
    """A row with the moment it is about and what became of it."""

    reviewer: str | None
    entity_name: str | None
    chat_title: str | None
    message_text: str | None
    message_index: int | None
    knowledge: list[KnowledgeLink]


@route(bp, "POST", "/api/feedback", access=("member", "feedback"), status=201, idempotent=True)
def create(body: NewFeedback) -> FeedbackAnswer:
    """Give feedback. The row belongs to the key's person and starts pending. An admin's `observation` is a flag and
    needs a comment. Ids of sessions, entities and agents must be the workspace's; other ids are yours."""
    values = body.model_dump(exclude={"agent", "agent_id", "ts"})
    values |= {"agent_id": body.agent_id or agent_called(body.agent), "occurred_at": body.occurred_at or body.ts}
    new = feedback_intake.NewFeedback(kind=kind_of(body), **values)
    stored = feedback_intake.record_feedback(new, actor=g.actor, commit=is_last())
    return FeedbackAnswer.model_validate(stored.row)


def kind_of(body: NewFeedback) -> str:
    """What sort of feedback it is follows from the source and from who sends it; no client chooses."""
    if body.source_type == "observation" and g.actor.is_admin:
        return "flag"
    return "tool_observation" if body.source_type == "tool" else "comment"


def agent_called(slug: str | None) -> UUID | None:
    if slug is None:
        return None
    found = versions.find_agent(slug, actor=g.actor)
    if found is None:
        raise Invalid("There is no agent with this slug in this workspace.", {"agent": "Not in this workspace."})
    return found.id


@route(bp, "GET", "/api/feedback", access=("member", "feedback"))
def index(query: FeedbackQuery) -> FeedbackPage:
    """List feedback. Newest first. Members get their own rows, admin keys the workspace's."""
    wanted = query.model_dump(exclude={"limit", "cursor"}, exclude_none=True)
    page = paging.Page(query.limit, query.cursor)
    found = feedback_lists.list_feedback(FeedbackFilters(**wanted), page, actor=g.actor)
    contents = feedback_lists.load_contents([row.id for row in found.items], actor=g.actor)
    return FeedbackPage.model_validate(
        found.map(lambda row: vars(row) | contents[row.id] | {"created_by": row.author_id})
    )


@route(bp, "GET", "/api/feedback/<uuid:feedback_id>", access=("member", "feedback"))
def read(feedback_id: UUID) -> FeedbackRead:
    """Read one row. An admin who reads what somebody else said leaves a trace in the audit log."""
    return describe_feedback(feedback_id, audit_read=True)


@route(
    bp,
    "PATCH",
    "/api/feedback/<uuid:feedback_id>",
    access=("admin", "admin"),
    also={409: "The row is in a state from which this is not possible."},
)
def decide(feedback_id: UUID, body: Decision) -> FeedbackRead:
    """Decide about one row. Pending rows become reviewed, applied or dismissed; reviewed ones applied or dismissed;
    `reopen` makes any of them pending again."""
    feedback_review.review([feedback_id], body.action, actor=g.actor, notes=body.notes)
    return describe_feedback(feedback_id)


def describe_feedback(feedback_id: UUID, *, audit_read: bool = False) -> FeedbackRead:
    row = feedback_lists.get_feedback(feedback_id, actor=g.actor, audit_read=audit_read)
    details = merge_assessment(row.details | {ASSESSMENT: row.assessment})
    return FeedbackRead.model_validate(vars(row) | {"details": details, "created_by": row.author_id})
