"""Responses over the API: accepted or rejected."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from flask import Blueprint, Flask, g
from pydantic import Field

from app.api.fields import Answer, Body, Moment
from app.api.route import route
from app.services import responses

bp = Blueprint("v1_responses", __name__)


class ResponseDecision(Body):
    """What is decided about a response."""

    status: Literal["accepted", "rejected"]
    rejection_reason: str | None = Field(None, max_length=4096, description="What is wrong; a rejection needs it.")
    field_name: str | None = Field(None, min_length=1, max_length=256, description="The field that is wrong.")


class ResponseAnswer(Answer):
    """A response."""

    id: UUID
    entity_id: UUID
    criteria_set_id: UUID | None
    session_id: UUID | None
    agent_id: UUID | None
    values: dict[str, Any]
    extracted: bool
    status: str
    rejection_reason: str | None
    decided_by: UUID | None
    decided_at: Moment | None
    created_at: Moment


@route(
    bp,
    "PATCH",
    "/api/v1/responses/<uuid:response_id>",
    access=("member", "feedback"),
    body=ResponseDecision,
    answer=ResponseAnswer,
    summary="Accept or reject a response",
    also={409: "It is decided already."},
    about="A rejection says why and writes exactly one row of feedback. What an agent extracted is tried again, once.",
)
def decide_response(response_id: UUID, body: ResponseDecision) -> ResponseAnswer:
    row = responses.decide_response(
        response_id, body.status, actor=g.actor, reason=body.rejection_reason, field_name=body.field_name
    )
    return ResponseAnswer.model_validate(row)


def register(app: Flask) -> None:
    app.register_blueprint(bp)
