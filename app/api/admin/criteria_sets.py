"""Criteria sets over the API, which responses and goldens are judged by."""

from typing import Annotated, Any
from uuid import UUID

from flask import g
from pydantic import Field

from app.api.admin import admin_route
from app.api.kit.fields import Answer, Body, Moment
from app.formats.criteria import MAX_DIMENSIONS, MAX_NAME, read_dimensions
from app.models import CriteriaSet
from app.services.entities import criteria as criteria_store

Dimensions = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=MAX_NAME)], dict[str, Any]],
    Field(
        min_length=1,
        max_length=MAX_DIMENSIONS,
        description="By name, in their order: `kind` (`numeric`, `text`, `select`, `relation-rank` or `rating`), and if"
        " needed `label`, `description`, `weight`, `importance` (`critical`, `normal` or `minor`) and what the kind"
        " takes: numeric `absolute_tolerance`, `relative_tolerance` · text `match`, `keywords`, `threshold` · select"
        " `options` · rating `anchors` (`{\"1\": …, \"5\": …}`), `passes_from`.",
    ),
]  # fmt: skip
SetName = Annotated[str, Field(min_length=1, max_length=criteria_store.MAX_NAME)]


class NewCriteriaSet(Body):
    """A criteria set."""

    slug: str = Field(max_length=60, description="Lowercase letters, digits, hyphens and underscores.")
    name: SetName
    dimensions: Dimensions


class CriteriaSetChange(Body):
    """What to change. `dimensions` replaces all dimensions."""

    version: int = Field(ge=1, description="The version you read. 409 if it is no longer current.")
    name: SetName | None = None
    dimensions: Dimensions | None = None


class CriteriaSetAnswer(Answer):
    """The current version of a criteria set."""

    id: UUID
    slug: str
    name: str
    version: int = Field(description="Number of changes.")
    dimensions: dict[str, Any]
    created_at: Moment
    updated_at: Moment


class CriteriaSetList(Answer):
    """All criteria sets of the workspace, by name."""

    items: list[CriteriaSetAnswer]


@admin_route("GET", "/api/admin/criteria-sets")
def list_sets() -> CriteriaSetList:
    """List criteria sets."""
    return CriteriaSetList(items=[_answer(row) for row in criteria_store.list_criteria_sets(actor=g.actor)])


@admin_route(
    "POST", "/api/admin/criteria-sets", status=201, idempotent=True, also={409: ("This slug is already in use.")}
)
def create_set(body: NewCriteriaSet) -> CriteriaSetAnswer:
    """Create a criteria set."""
    return _answer(
        criteria_store.create_criteria_set(slug=body.slug, name=body.name, dimensions=body.dimensions, actor=g.actor)
    )


@admin_route("GET", "/api/admin/criteria-sets/<uuid:criteria_set_id>")
def read_set(criteria_set_id: UUID) -> CriteriaSetAnswer:
    """Get a criteria set."""
    return _answer(criteria_store.get_criteria_set(criteria_set_id, actor=g.actor))


@admin_route("PATCH", "/api/admin/criteria-sets/<uuid:criteria_set_id>", also={409: "Someone else changed it first."})
def change_set(criteria_set_id: UUID, body: CriteriaSetChange) -> CriteriaSetAnswer:
    """Update a criteria set. Creates a version. Past judgements keep the version they used."""
    changes = body.model_dump(exclude_unset=True)
    return _answer(criteria_store.change_criteria_set(criteria_set_id, actor=g.actor, **changes))


def _answer(row: CriteriaSet) -> CriteriaSetAnswer:
    """The dimensions as they are stored, in their order."""
    ordered = {name: row.dimensions[name] for name in read_dimensions(row.dimensions)}
    return CriteriaSetAnswer(
        id=row.id, slug=row.slug, name=row.name, version=row.version, dimensions=ordered,
        created_at=row.created_at, updated_at=row.updated_at,
    )  # fmt: skip
