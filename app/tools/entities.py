"""Tools to read and change the workspace's records, and to submit responses for a person to accept or reject."""

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from app.db.paging import Page
from app.formats.response_values import wrap_value
from app.services.entities import criteria as criteria_store
from app.services.entities import responses as entity_responses
from app.services.entities import store as entity_store
from app.services.entities.store import EntityFilters, EntityRow
from app.services.sessions import store as session_store
from app.services.sessions.events import NewEvent
from app.tools.base import Arguments, Cursor, Limit, NoArguments, Outcome, ToolScope, answer, pick, tool

READ, WRITE = "entities-read", "entities-write"
Slug = Annotated[str, Field(min_length=1, max_length=60, description="Slug of the kind of record, such as deal.")]
Values = Annotated[dict[str, Any], Field(min_length=1)]


class ListEntities(Arguments):
    entity_type: Slug | None = None
    limit: Limit = 25
    cursor: Cursor | None = None


class SearchEntities(Arguments):
    query: Annotated[str, Field(min_length=1, max_length=200)] = Field(description="Words of the record's name.")
    entity_type: Slug | None = None
    limit: Limit = 25


class OneEntity(Arguments):
    entity_id: UUID = Field(description="The record.")


class CreateEntity(Arguments):
    entity_type: Slug
    name: Annotated[str, Field(min_length=1, max_length=300)] = Field(description="What the record is called.")
    fields: dict[str, Any] = Field({}, description="Its fields by name.")


class UpdateEntity(Arguments):
    entity_id: UUID = Field(description="The record.")
    changes: Values = Field(description="New values by field name; null clears a field.")


class SubmitResponse(Arguments):
    entity_id: UUID = Field(description="The record it is about.")
    criteria_set_id: UUID = Field(description="What it is judged by.")
    values: Values = Field(description="For each field: value, source (where it was read) and confidence from 0 to 1.")


@tool(READ, scope=None)
def list_entity_types(arguments: NoArguments, scope: ToolScope) -> Outcome:
    """List the kinds or types of records in this workspace (what can be stored or imported), with the fields that each
    has and how many records there are."""
    found = entity_store.list_types(actor=scope.actor)
    return answer(items=[{**pick(row, "id", "name", "slug", "fields"), "records": row.entities} for row in found])


@tool(READ, scope=None)
def search_entities(arguments: SearchEntities, scope: ToolScope) -> Outcome:
    """Find or look up records by words of their name. Gives their ids, names and fields."""
    _check_type(arguments.entity_type, scope)
    found = entity_store.search_entities(
        arguments.query, actor=scope.actor, entity_type=arguments.entity_type, limit=arguments.limit
    )
    return answer(items=[_item(row) for row in found])


@tool(READ, scope=None)
def list_entities(arguments: ListEntities, scope: ToolScope) -> Outcome:
    """List all records, or all of one kind, last changed first, as an overview of the whole pipeline or address book.
    Gives their ids, names and fields."""
    _check_type(arguments.entity_type, scope)
    filters, page = EntityFilters(entity_type=arguments.entity_type), Page(arguments.limit, arguments.cursor)
    found = entity_store.list_entities(filters, page, actor=scope.actor)
    return answer(items=[_item(row) for row in found.items], nextCursor=found.next_cursor)


def _check_type(slug: str | None, scope: ToolScope) -> None:
    if slug is not None:
        entity_store.find_type(slug, actor=scope.actor)


def _item(row: EntityRow) -> dict[str, Any]:
    return _flatten(row.id, row.name, row.entity_type, row.fields)


def _flatten(entity_id: UUID, name: str, entity_type: str, fields: dict[str, Any]) -> dict[str, Any]:
    """A record as id and name, then its fields. A field called `id`, `name` or `entityType` is left out."""
    return {"id": entity_id, "name": name} | {**fields, "id": entity_id, "name": name, "entityType": entity_type}


@tool(READ, scope=None)
def get_entity(arguments: OneEntity, scope: ToolScope) -> Outcome:
    """Get one record with all its fields."""
    return answer(**_load_entity(arguments.entity_id, scope))


def _load_entity(entity_id: UUID, scope: ToolScope) -> dict[str, Any]:
    found = entity_store.get_entity(entity_id, actor=scope.actor)
    return _flatten(found.entity.id, found.entity.name, found.entity_type.slug, found.entity.fields)


@tool(READ, scope=None)
def list_responses(arguments: OneEntity, scope: ToolScope) -> Outcome:
    """List the responses about a record: what was submitted and whether it was accepted or rejected, newest first."""
    found = entity_store.get_entity(arguments.entity_id, actor=scope.actor).responses
    if scope.session_id is not None and not session_store.is_personal(scope.session_id, actor=scope.actor):
        # Every member can read this session, so responses from private conversations are left out.
        found = [row for row in found if row.owner_id is None]
    names = ("id", "status", "rejection_reason", "criteria_set", "agent", "values", "created_at")
    return answer(items=[{**pick(row, *names), "name": ", ".join(row.values)} for row in found])


@tool(READ, scope=None)
def list_criteria_sets(arguments: NoArguments, scope: ToolScope) -> Outcome:
    """List what responses are judged by: each criteria set, or checklist, with its dimensions."""
    found = criteria_store.list_criteria_sets(actor=scope.actor)
    return answer(items=[pick(row, "id", "name", "slug", "dimensions") for row in found])


@tool(WRITE, writes=True, scope="ingest")
def create_entity(arguments: CreateEntity, scope: ToolScope) -> Outcome:
    """Create a new record of a kind that the workspace has."""
    kind = arguments.entity_type
    entity = entity_store.create_entity(
        entity_type=kind, name=arguments.name, fields=arguments.fields, actor=scope.actor
    )
    payload = {"entity_id": entity.id, "entity_type": kind, "name": entity.name, "fields": entity.fields}
    return answer(NewEvent("entity.created", payload), **_flatten(entity.id, entity.name, kind, entity.fields))


@tool(WRITE, writes=True, scope="ingest")
def update_entity(arguments: UpdateEntity, scope: ToolScope) -> Outcome:
    """Change or move a record: give some of its fields new values. The other fields stay as they are."""
    changed = entity_store.update_entity(arguments.entity_id, arguments.changes, actor=scope.actor)
    found = _load_entity(arguments.entity_id, scope)
    payload = {"entity_id": arguments.entity_id, "entity_type": found["entityType"], "changes": changed}
    return answer(NewEvent("entity.updated", payload), **found)


@tool(WRITE, writes=True, scope=None)
def submit_response(arguments: SubmitResponse, scope: ToolScope) -> Outcome:
    """Submit values about a record, each with where it was read and how sure you are, for a person to accept or
    reject. Leave a field out rather than guess."""
    values = {name: wrap_value(given) for name, given in arguments.values.items()}
    about = arguments.model_dump() | {"values": values}
    agent_id = scope.agent_id or scope.actor.agent_id
    new = entity_responses.NewResponse(**about, session_id=scope.session_id, agent_id=agent_id)
    response = entity_responses.submit_response(new, actor=scope.actor)
    payload = {"response_id": response.id, **about}
    return answer(NewEvent("response.submitted", payload), id=response.id, status=response.status, values=values)
