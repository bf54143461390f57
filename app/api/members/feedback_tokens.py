"""Tokens for people on other sites: a team's own server asks for one and hands it to `feedback.js`."""

import time
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from flask import current_app, g
from pydantic import Field

from app.api.kit.fields import Answer, Body, Moment
from app.api.kit.route import route
from app.api.members import bp
from app.errors import Forbidden
from app.security import feedback_tokens
from app.security.feedback_tokens import LONGEST_LIFE, Visitor
from app.services.workspaces import people


class TokenBody(Body):
    """Whom the token is for."""

    subject: Annotated[str, Field(min_length=1, max_length=256)] = Field(description="Your own id of the person.")
    name: str | None = Field(None, min_length=1, max_length=120, description="What they are called; shown to admins.")
    ttl: int = Field(LONGEST_LIFE, ge=1, le=LONGEST_LIFE, description="Seconds until it runs out.")


class TokenAnswer(Answer):
    """A token for one person."""

    token: str
    user_id: UUID = Field(description="The person in Upshot.")
    expires_at: Moment


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
