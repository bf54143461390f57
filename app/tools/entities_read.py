"""Tools to read the workspace's records."""

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from app.db.paging import Page
from app.services.entities import search as entity_search
from app.services.entities import store as entity_store
from app.services.entities.store import EntityFilters, EntityRow
from app.services.sessions import store as session_store
from app.tools.base import Arguments, Id, NoArguments, Outcome, Tool, ToolScope, answer, tool

GROUP = "entities-read"
Slug = Annotated[str, Field(min_length=1, max_length=60)]


class ListEntities(Arguments):
    entity_type: Slug | None = Field(None, description="Slug of the kind of record, such as deal.")
    limit: Annotated[int, Field(ge=1, le=100)] = 25
    cursor: Annotated[str, Field(max_length=500)] | None = Field(None, description="nextCursor of the page before.")


class SearchEntities(Arguments):
    query: Annotated[str, Field(min_length=1, max_length=200)] = Field(description="Words of the record's name.")
    entity_type: Slug | None = Field(None, description="Slug of the kind of record, such as deal.")
    limit: Annotated[int, Field(ge=1, le=100)] = 25


class OneEntity(Arguments):
    entity_id: Id = Field(description="The record.")


@tool("listEntityTypes", GROUP, NoArguments, scope=None)
def list_entity_types(arguments: NoArguments, scope: ToolScope) -> Outcome:
    """List the kinds of records in this workspace, with the fields that each has."""
    found = entity_store.list_types(actor=scope.actor)
    return answer(
        items=[
            {"id": row.id, "name": row.name, "slug": row.slug, "records": row.entities, "fields": row.fields}
            for row in found
        ]
    )


@tool("searchEntities", GROUP, SearchEntities, scope=None)
def search_entities(arguments: SearchEntities, scope: ToolScope) -> Outcome:
    """Find records by words of their name. Gives their ids, names and fields."""
    if arguments.entity_type is not None:
        entity_store.find_type(arguments.entity_type, actor=scope.actor)
    found = entity_search.search_entities(
        arguments.query, actor=scope.actor, entity_type=arguments.entity_type, limit=arguments.limit
    )
    return answer(items=[_item(row) for row in found])


@tool("listEntities", GROUP, ListEntities, scope=None)
def list_entities(arguments: ListEntities, scope: ToolScope) -> Outcome:
    """List records, last changed first. Gives their ids, names and fields."""
    if arguments.entity_type is not None:
        entity_store.find_type(arguments.entity_type, actor=scope.actor)
    filters, page = EntityFilters(entity_type=arguments.entity_type), Page(arguments.limit, arguments.cursor)
    found = entity_store.list_entities(filters, page, actor=scope.actor)
    return answer(items=[_item(row) for row in found.items], nextCursor=found.next_cursor)


def _item(row: EntityRow) -> dict[str, Any]:
    return flatten_record(row.id, row.name, row.entity_type, row.fields)


def flatten_record(entity_id: UUID, name: str, entity_type: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Flatten a record: id and name, then its fields. A field called `id`, `name` or `entityType` is left out."""
    return {"id": entity_id, "name": name} | {**fields, "id": entity_id, "name": name, "entityType": entity_type}


@tool("getEntity", GROUP, OneEntity, scope=None)
def get_entity(arguments: OneEntity, scope: ToolScope) -> Outcome:
    """Get one record with all its fields."""
    found = entity_store.get_entity(arguments.entity_id, actor=scope.actor)
    entity = found.entity
    return answer(**flatten_record(entity.id, entity.name, found.entity_type.slug, entity.fields))


@tool("listResponses", GROUP, OneEntity, scope=None)
def list_responses(arguments: OneEntity, scope: ToolScope) -> Outcome:
    """List what was submitted about a record and whether it was accepted or rejected, newest first."""
    found = entity_store.get_entity(arguments.entity_id, actor=scope.actor).responses
    if scope.session_id is not None and not session_store.is_personal(scope.session_id, actor=scope.actor):
        # Every member can read this session, so responses from private conversations are left out.
        found = [row for row in found if row.owner_id is None]
    items = [
        {
            "id": row.id,
            "name": ", ".join(row.values),
            "status": row.status,
            "rejectionReason": row.rejection_reason,
            "criteriaSet": row.criteria_set,
            "agent": row.agent,
            "values": row.values,
            "createdAt": row.created_at,
        }
        for row in found
    ]
    return answer(items=items)


@tool("listCriteriaSets", GROUP, NoArguments, scope=None)
def list_criteria_sets(arguments: NoArguments, scope: ToolScope) -> Outcome:
    """List what responses are judged by: each criteria set with its dimensions."""
    found = entity_store.list_criteria_sets(actor=scope.actor)
    return answer(
        items=[{"id": row.id, "name": row.name, "slug": row.slug, "dimensions": row.dimensions} for row in found]
    )


TOOLS: tuple[Tool, ...] = (
    list_entity_types,
    search_entities,
    list_entities,
    get_entity,
    list_responses,
    list_criteria_sets,
)
