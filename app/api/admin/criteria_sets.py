"""Criteria sets: the fields that responses are submitted under and judged by."""

from typing import Annotated, Any
from uuid import UUID

from flask import g
from pydantic import Field

from app.api.admin import bp
from app.api.kit.fields import Answer, Body, Moment
from app.api.kit.route import route
from app.services.entities import store as entity_store

MAX_DIMENSIONS = 200
FieldName = Annotated[str, Field(min_length=1, max_length=256)]


class NewCriteriaSet(Body):
    """A criteria set."""

    slug: str = Field(max_length=60, description="Small letters, digits, dashes and underscores.")
    name: str = Field(min_length=1, max_length=200)
    dimensions: dict[FieldName, dict[str, Any]] = Field(
        min_length=1,
        max_length=MAX_DIMENSIONS,
        description="By field: `kind` (`numeric`, `text`, `select` or `relation-rank`), and if needed `weight`,"
        " `relative_tolerance`, `absolute_tolerance`, `match`, `options`.",
    )


class CriteriaSetAnswer(Answer):
    """A criteria set."""

    id: UUID
    slug: str
    name: str
    dimensions: dict[str, Any]
    created_at: Moment
    updated_at: Moment


class CriteriaSetList(Answer):
    """All criteria sets of the workspace, by name."""

    items: list[CriteriaSetAnswer]


@route(
    bp,
    "GET",
    "/api/admin/criteria-sets",
    access=("admin", "admin"),
    answer=CriteriaSetList,
    summary="List criteria sets",
)
def list_sets() -> CriteriaSetList:
    return CriteriaSetList.model_validate({"items": entity_store.list_criteria_sets(actor=g.actor)})


@route(
    bp,
    "POST",
    "/api/admin/criteria-sets",
    access=("admin", "admin"),
    body=NewCriteriaSet,
    answer=CriteriaSetAnswer,
    status=201,
    idempotent=True,
    summary="Create a criteria set",
    also={409: "This slug is taken."},
)
def create_set(body: NewCriteriaSet) -> CriteriaSetAnswer:
    row = entity_store.create_criteria_set(slug=body.slug, name=body.name, dimensions=body.dimensions, actor=g.actor)
    return CriteriaSetAnswer.model_validate(row)
