"""Feedback over the API: give it, read it, decide about it."""

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
    """What someone thinks of an agent's work."""

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
    """Knowledge that this feedback supports."""

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
def read_feedback(feedback_id: UUID) -> FeedbackRead:
    """Read one row. An admin who reads what someone else said leaves a trace in the audit log."""
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


class SignalBody(Body):
    """What someone made of one answer."""

    signal: Signal
    message_id: Name | None = Field(None, description="Your id of the message; needed unless `trace_id` is sent.")
    chat_id: Name | None = Field(None, description="Your id of the conversation, or Upshot's.")
    trace_id: Name | None = Field(None, description="The trace of the run that gave the answer.")
    reason: str | None = Field(None, max_length=4096, description="Why; for `edit` the answer that was wanted.")

    @model_validator(mode="after")
    def about_something(self) -> SignalBody:
        if self.message_id is None and self.trace_id is None:
            raise ValueError("Send `message_id` or `trace_id`: which answer is this about?")
        return self


class SignalQuery(Page):
    message_id: Name | None = None
    chat_id: Name | None = None
    trace_id: Name | None = None
    signal: Signal | None = None


class OneSignal(Query):
    message_id: Name = Field(description="As the answer to the POST named it.")
    signal: Signal


class SignalAnswer(Answer):
    """One signal of one's own."""

    id: UUID
    message_id: str
    chat_id: str | None = Field(description="With a token, as it was sent.")
    trace_id: str | None = Field(description="With a token, as it was sent.")
    signal: Signal
    reason: str | None
    rating: Rating
    weight: float = Field(description="How much it counts, 0 to 1.")
    edit_distance: int | None = Field(
        description="For `edit`: percent of the answer that was changed, when known. Null for a token."
    )
    status: Status = Field(description="What became of it.")
    created_at: Moment
    occurred_at: Moment


class SignalPage(Answer):
    """One's own signals, newest first."""

    items: list[SignalAnswer]
    next_cursor: str | None


class TokenBody(Body):
    """Whom the token is for."""

    subject: Name = Field(description="Your own id of the person.")
    name: str | None = Field(None, min_length=1, max_length=120, description="What they are called; shown to admins.")
    ttl: int = Field(LONGEST_LIFE, ge=1, le=LONGEST_LIFE, description="Seconds until it runs out.")


class TokenAnswer(Answer):
    """A token for one person."""

    token: str
    user_id: UUID = Field(description="The person in Upshot.")
    expires_at: Moment


@route(
    bp,
    "POST",
    "/api/v1/feedback",
    access=("member", "feedback"),
    also_takes="visitor",
    status=201,
    also={200: "It was there already and was changed; the id is the same."},
    idempotent=True,
)
def give(body: SignalBody) -> tuple[SignalAnswer, int]:
    """Say what an answer was like. One row for a message, a person and a signal: sent again, `reason` is replaced,
    `chat_id` and `trace_id` are kept where left out. `helpful` takes `not_helpful` back and the other way round."""
    new = feedback_intake.NewFeedback(kind="signal", comment=body.reason, **body.model_dump(exclude={"reason"}))
    stored = signals.record_signal(new, actor=g.actor, commit=is_last())
    return describe(stored.row), 201 if stored.created else 200


@route(bp, "GET", "/api/v1/feedback", access=("member", "feedback"), also_takes="visitor")
def own(query: SignalQuery) -> SignalPage:
    """One's own signals. Newest first. Nobody sees another person's here, whatever their role."""
    wanted = query.model_dump(exclude={"limit", "cursor"}, exclude_none=True)
    found = signals.list_signals(wanted, paging.Page(query.limit, query.cursor), actor=g.actor)
    return SignalPage.model_validate(found.map(describe))


@route(bp, "DELETE", "/api/v1/feedback", access=("member", "feedback"), also_takes="visitor", status=204)
def take_back(query: OneSignal) -> None:
    """Take a signal back. Also when there is none. What was decided about already stays as the reason for the decision,
    marked."""
    signals.retract_signal(query.message_id, query.signal, actor=g.actor)


def describe(row: Any) -> SignalAnswer:
    return SignalAnswer.model_validate(signals.describe_signal(row, g.actor))


@route(bp, "POST", "/api/v1/feedback/token", access=("member", "feedback-token"), status=201)
def make(body: TokenBody) -> TokenAnswer:
    """A token for someone on your own site. Ask for it on your server and give it to `feedback.js`. Who mints tokens
    can speak for any user, so this is a scope of its own. A token opens `/api/v1/feedback` alone, for that person's own
    signals, from the origins in Settings. The person needs no sign-in and is made when new."""
    if g.actor.key_id is None:
        raise Forbidden("Ask for tokens with an API key, from your own server.")
    user_id = people.ensure_person(body.subject, actor=g.actor, name=body.name)
    expires_at = int(time.time()) + body.ttl
    visitor = Visitor(g.actor.tenant_id, user_id, g.actor.key_id, expires_at)
    return TokenAnswer(
        token=feedback_tokens.make_token(current_app.config["SECRET_KEY"], visitor),
        user_id=user_id,
        expires_at=datetime.fromtimestamp(expires_at, UTC),
    )
