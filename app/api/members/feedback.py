"""Feedback over the API: create, read, decide."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from flask import current_app, g
from pydantic import Field, model_validator

from app.api.kit.fields import Answer, Body, Id, Moment, Page, Query
from app.api.kit.idempotency import is_last
from app.api.kit.route import route
from app.api.members import bp
from app.db import paging
from app.errors import Forbidden, Invalid
from app.formats.feedback_details import ASSESSMENT, merge_assessment
from app.ingest.fields import PastMoment
from app.security import feedback_tokens
from app.security.feedback_tokens import LONGEST_LIFE, Visitor
from app.services.agents import versions
from app.services.feedback import intake as feedback_intake
from app.services.feedback import lists as feedback_lists
from app.services.feedback import review as feedback_review
from app.services.feedback import signals
from app.services.feedback.lists import FeedbackFilters
from app.services.workspaces import people

Source = Literal["chat", "response", "extraction", "tool", "session", "observation"]
Rating = Literal["positive", "negative", "neutral"]
Status = Literal["pending", "reviewed", "applied", "dismissed"]
Origin = Literal["user", "machine", "system"]
Signal = Literal["helpful", "not_helpful", "inaccurate", "unsafe", "edit", "regenerate"]
Name = Annotated[str, Field(min_length=1, max_length=256)]


class NewFeedback(Body):
    """Feedback about an agent's work."""

    source_type: Source = Field(description="What the feedback is about.")
    rating: Rating
    comment: str | None = Field(None, max_length=4096, description="The person's own words.")
    session_id: Id | None = Field(None, description="The session the feedback is about.")
    entity_id: Id | None = Field(None, description="The entity the feedback is about.")
    agent_id: Id | None = Field(None, description="The agent's ID. Send this or `agent`.")
    agent: str | None = Field(None, max_length=120, description="The agent's slug.")
    context: dict[str, Any] = Field(
        {},
        description="The exact place. Keys by source: chat `chat_id, message_index`; response `response_id, "
        "criteria_set_id, field_name`; extraction `field_name, entity_type_id, rejected_value, "
        "retry_ref`; tool `tool_slug, tool_run_id`; session `failure_reason, event_id`.",
    )
    details: dict[str, Any] = Field(
        {}, description="`error_categories, missing_context, quality_scores, output_review, preferred_answer, skipped`."
    )
    occurred_at: PastMoment | None = Field(None, description="When the feedback was given. Defaults to now.")
    ts: PastMoment | None = Field(None, description="Another name for `occurred_at`.")
    trace_id: Name | None = None
    chat_id: Name | None = None
    message_id: Name | None = None
    turn_id: Name | None = None
    project: Name | None = Field(None, description="Defaults to `default`.")

    @model_validator(mode="after")
    def one_of_each(self) -> NewFeedback:
        for one, other in (("agent", "agent_id"), ("ts", "occurred_at")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise ValueError(f"Send `{one}` or `{other}`, not both.")
        return self


class Decision(Body):
    """A decision about a row."""

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
    """A feedback row."""

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
    created_by: UUID | None = Field(description="Null when the workspace hides names.")
    created_at: Moment
    occurred_at: Moment


class FeedbackItem(FeedbackAnswer):
    """A row with the names of its linked objects."""

    agent: str | None
    author: str | None
    session_title: str | None


class FeedbackPage(Answer):
    """One page, newest first."""

    items: list[FeedbackItem]
    next_cursor: str | None


class KnowledgeLink(Answer):
    """Knowledge that this feedback supports."""

    id: UUID
    type: str
    content: str
    state: str


class FeedbackRead(FeedbackItem):
    """A row with its moment in the transcript and its outcome."""

    reviewer: str | None
    entity_name: str | None
    chat_title: str | None
    message_text: str | None
    message_index: int | None
    knowledge: list[KnowledgeLink]


@route(bp, "POST", "/api/feedback", access=("member", "feedback"), status=201, idempotent=True)
def create(body: NewFeedback) -> FeedbackAnswer:
    """Create feedback. The row belongs to the key's owner and starts as pending. An admin's `observation` is a flag
    and needs a comment. Session, entity and agent IDs must exist in the workspace. Other IDs are yours."""
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
        raise Invalid("This workspace has no agent with this slug.", {"agent": "Not in this workspace."})
    return found.id


@route(bp, "GET", "/api/feedback", access=("member", "feedback"))
def index(query: FeedbackQuery) -> FeedbackPage:
    """List feedback. Newest first. Members get their own rows, admin keys get the whole workspace."""
    wanted = query.model_dump(exclude={"limit", "cursor"}, exclude_none=True)
    page = paging.Page(query.limit, query.cursor)
    found = feedback_lists.list_feedback(FeedbackFilters(**wanted), page, actor=g.actor)
    contents = feedback_lists.load_contents([row.id for row in found.items], actor=g.actor)
    return FeedbackPage.model_validate(
        found.map(lambda row: vars(row) | contents[row.id] | {"created_by": row.author_id})
    )


@route(bp, "GET", "/api/feedback/<uuid:feedback_id>", access=("member", "feedback"))
def read_feedback(feedback_id: UUID) -> FeedbackRead:
    """Get a feedback row. Reading another person's row is recorded in the audit log."""
    return describe_feedback(feedback_id, audit_read=True)


@route(
    bp,
    "PATCH",
    "/api/feedback/<uuid:feedback_id>",
    access=("admin", "admin"),
    also={409: "The row's current status doesn't allow this."},
)
def decide(feedback_id: UUID, body: Decision) -> FeedbackRead:
    """Change a row's status. Pending rows can become reviewed, applied or dismissed. Reviewed rows can become
    applied or dismissed. `reopen` makes any row pending again."""
    feedback_review.review([feedback_id], body.action, actor=g.actor, notes=body.notes)
    return describe_feedback(feedback_id)


def describe_feedback(feedback_id: UUID, *, audit_read: bool = False) -> FeedbackRead:
    row = feedback_lists.get_feedback(feedback_id, actor=g.actor, audit_read=audit_read)
    details = merge_assessment(row.details | {ASSESSMENT: row.assessment})
    return FeedbackRead.model_validate(vars(row) | {"details": details, "created_by": row.author_id})


class SignalBody(Body):
    """A person's rating of one answer."""

    signal: Signal
    message_id: Name | None = Field(None, description="Your message ID. Required without `trace_id`.")
    chat_id: Name | None = Field(None, description="Your conversation ID, or Upshot's.")
    trace_id: Name | None = Field(None, description="The trace of the run that produced the answer.")
    reason: str | None = Field(None, max_length=4096, description="The reason. For `edit`, the preferred answer.")

    @model_validator(mode="after")
    def about_something(self) -> SignalBody:
        if self.message_id is None and self.trace_id is None:
            raise ValueError("Send `message_id` or `trace_id`.")
        return self


class SignalQuery(Page):
    message_id: Name | None = None
    chat_id: Name | None = None
    trace_id: Name | None = None
    signal: Signal | None = None


class OneSignal(Query):
    message_id: Name = Field(description="The message ID from the POST's answer.")
    signal: Signal


class SignalAnswer(Answer):
    """One of your own feedback rows."""

    id: UUID
    message_id: str
    chat_id: str | None = Field(description="With a token, exactly as sent.")
    trace_id: str | None = Field(description="With a token, exactly as sent.")
    signal: Signal
    reason: str | None
    rating: Rating
    weight: float = Field(description="Weight, 0 to 1.")
    edit_distance: int | None = Field(
        description="For `edit`, the percentage of the answer that changed. Null for a token or when unknown."
    )
    status: Status = Field(description="The current status.")
    created_at: Moment
    occurred_at: Moment


class SignalPage(Answer):
    """Your own feedback, newest first."""

    items: list[SignalAnswer]
    next_cursor: str | None


class TokenBody(Body):
    """The person the token is for."""

    subject: Name = Field(description="Your ID for the person.")
    name: str | None = Field(None, min_length=1, max_length=120, description="The person's name, shown to admins.")
    ttl: int = Field(LONGEST_LIFE, ge=1, le=LONGEST_LIFE, description="Lifetime in seconds.")


class TokenAnswer(Answer):
    """A token for one person."""

    token: str
    user_id: UUID = Field(description="The person's ID in Upshot.")
    expires_at: Moment


@route(
    bp,
    "POST",
    "/api/v1/feedback",
    access=("member", "feedback"),
    also_takes="visitor",
    status=201,
    also={200: "The row existed and was updated. Its ID stays the same."},
    idempotent=True,
)
def give(body: SignalBody) -> tuple[SignalAnswer, int]:
    """Rate an answer. Keeps one row per message, person and signal. Sending it again replaces `reason` and keeps
    `chat_id` and `trace_id` if you leave them out. `helpful` replaces `not_helpful` and vice versa."""
    new = feedback_intake.NewFeedback(kind="signal", comment=body.reason, **body.model_dump(exclude={"reason"}))
    stored = signals.record_signal(new, actor=g.actor, commit=is_last())
    return describe(stored.row), 201 if stored.created else 200


@route(bp, "GET", "/api/v1/feedback", access=("member", "feedback"), also_takes="visitor")
def own(query: SignalQuery) -> SignalPage:
    """List your own feedback. Newest first. Never includes other people's feedback, whatever your role."""
    wanted = query.model_dump(exclude={"limit", "cursor"}, exclude_none=True)
    found = signals.list_signals(wanted, paging.Page(query.limit, query.cursor), actor=g.actor)
    return SignalPage.model_validate(found.map(describe))


@route(bp, "DELETE", "/api/v1/feedback", access=("member", "feedback"), also_takes="visitor", status=204)
def take_back(query: OneSignal) -> None:
    """Retract a rating. Safe to repeat. Feedback that led to a decision stays, marked as retracted."""
    signals.retract_signal(query.message_id, query.signal, actor=g.actor)


def describe(row: Any) -> SignalAnswer:
    return SignalAnswer.model_validate(signals.describe_signal(row, g.actor))


@route(bp, "POST", "/api/v1/feedback/token", access=("member", "feedback-token"), status=201)
def make(body: TokenBody) -> TokenAnswer:
    """Create a token for a person on your site. Request it from your server and pass it to `feedback.js`. A key that
    creates tokens can act for any user, so it needs its own scope. A token only works for `/api/v1/feedback`, for
    that person's feedback, from the origins in Settings. New people are created and need no sign-in."""
    if g.actor.key_id is None:
        raise Forbidden("Request tokens from your server, with an API key.")
    user_id = people.ensure_person(body.subject, actor=g.actor, name=body.name)
    expires_at = int(time.time()) + body.ttl
    visitor = Visitor(g.actor.tenant_id, user_id, g.actor.key_id, expires_at)
    return TokenAnswer(
        token=feedback_tokens.make_token(current_app.config["SECRET_KEY"], visitor),
        user_id=user_id,
        expires_at=datetime.fromtimestamp(expires_at, UTC),
    )
