"""Responses over the API: submitted, accepted or rejected."""

from typing import Annotated, Any, Literal
from uuid import UUID

from flask import g
from pydantic import Field

from app.api.kit.fields import Answer, Body, Id, Moment
from app.api.kit.route import route
from app.api.members import bp
from app.services.entities import responses


class NewResponseBody(Body):
    """Values about a record."""

    entity_id: Id
    criteria_set_id: Id = Field(description="Its fields are the only ones that can be submitted.")
    values: dict[Annotated[str, Field(min_length=1, max_length=256)], Any] = Field(
        min_length=1,
        max_length=200,
        description="By field: `{value, source, confidence}` or a bare value. `source` says where it was read,"
        " `confidence` is from 0 to 1.",
    )
    session_id: Id | None = Field(None, description="The session that found them; a key submits for its agent.")


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
    "POST",
    "/api/v1/responses",
    access=("member", "ingest"),
    status=201,
    idempotent=True,
    also={409: "The session is run here; its agent submits by itself."},
)
def submit_response(body: NewResponseBody) -> ResponseAnswer:
    """Submit a response. A person accepts or rejects it. With a `session_id`, a key submits for the session's agent;
    without one the response is the person's own. It is an extraction when the session's `output_type` is `field` or
    `fields`."""
    new = responses.NewResponse(**dict(body))
    return ResponseAnswer.model_validate(responses.report_response(new, actor=g.actor))


@route(
    bp,
    "PATCH",
    "/api/v1/responses/<uuid:response_id>",
    access=("member", "feedback"),
    also={409: "It is decided already."},
)
def decide_response(response_id: UUID, body: ResponseDecision) -> ResponseAnswer:
    """Accept or reject a response. A rejection says why and writes exactly one row of feedback. What an agent extracted
    is tried again, once; a retry, a person's response and an agent's other responses are not."""
    row = responses.decide_response(
        response_id, body.status, actor=g.actor, reason=body.rejection_reason, field_name=body.field_name
    )
    return ResponseAnswer.model_validate(row)
