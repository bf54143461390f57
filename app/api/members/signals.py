"""`/api/v1/feedback`: six signals on messages, each person's own and nobody else's, and tokens for other sites."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from flask import current_app, g
from pydantic import Field, model_validator

from app.api.kit.fields import Answer, Body, Moment, Page, Query
from app.api.kit.route import is_last, route
from app.api.members import bp
from app.api.members.feedback import Name, Rating, Signal, Status
from app.db import paging
from app.errors import Forbidden
from app.security import feedback_tokens
from app.security.feedback_tokens import LONGEST_LIFE, Visitor
from app.services.feedback import signals
from app.services.feedback.intake import NewFeedback
from app.services.workspaces import people


class SignalBody(Body):
    """What somebody made of one answer."""

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
    new = NewFeedback(kind="signal", comment=body.reason, **body.model_dump(exclude={"reason"}))
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
    """A token for somebody on your own site. Ask for it on your server and give it to `feedback.js`. Who mints tokens
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
