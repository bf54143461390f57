"""Responses over the API: submit, accept, reject."""

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
    criteria_set_id: Id = Field(description="Only its fields can be submitted.")
    values: dict[Annotated[str, Field(min_length=1, max_length=256)], Any] = Field(
        min_length=1,
        max_length=200,
        description="By field, a plain value or `{value, source, confidence}`. `source` is where the value "
        "comes from, `confidence` is 0 to 1.",
    )
    session_id: Id | None = Field(
        None, description=("The session that found the values. The key then submits for its agent.")
    )


class ResponseDecision(Body):
    """A decision about a response."""

    status: Literal["accepted", "rejected"]
    rejection_reason: str | None = Field(None, max_length=4096, description="What is wrong. Required for a rejection.")
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
    also={409: "The session runs in Upshot, so its agent submits the response."},
)
def submit_response(body: NewResponseBody) -> ResponseAnswer:
    """Submit a response. A person then accepts or rejects it. With a `session_id` the response belongs to the
    session's agent, without one to the key's owner. It counts as an extraction if the session's `output_type` is
    `field` or `fields`."""
    new = responses.NewResponse(**dict(body))
    return ResponseAnswer.model_validate(responses.report_response(new, actor=g.actor))


@route(
    bp,
    "PATCH",
    "/api/v1/responses/<uuid:response_id>",
    access=("member", "feedback"),
    also={409: "The response was already decided."},
)
def decide_response(response_id: UUID, body: ResponseDecision) -> ResponseAnswer:
    """Accept or reject a response. A rejection needs a reason and creates one feedback row. A rejected extraction is
    retried once. Retries and other responses are not."""
    row = responses.decide_response(
        response_id, body.status, actor=g.actor, reason=body.rejection_reason, field_name=body.field_name
    )
    return ResponseAnswer.model_validate(row)
