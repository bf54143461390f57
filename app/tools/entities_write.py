"""Tools to change records, and to submit responses for a person to accept or reject."""

from typing import Annotated, Any

from pydantic import Field

from app.formats.response_values import wrap_value
from app.services.entities import responses as entity_responses
from app.services.entities import store as entity_store
from app.tools.base import Arguments, Id, Outcome, Tool, ToolScope, answer_with_event, tool
from app.tools.entities_read import Slug, flatten_record

GROUP = "entities-write"


class CreateEntity(Arguments):
    entity_type: Slug = Field(description="Slug of the kind of record, such as deal.")
    name: Annotated[str, Field(min_length=1, max_length=300)] = Field(description="What the record is called.")
    fields: dict[str, Any] = Field({}, description="Its fields by name.")


class UpdateEntity(Arguments):
    entity_id: Id = Field(description="The record.")
    changes: Annotated[dict[str, Any], Field(min_length=1)] = Field(
        description="New values by field name; null clears a field."
    )


class SubmitResponse(Arguments):
    entity_id: Id = Field(description="The record it is about.")
    criteria_set_id: Id = Field(description="What it is judged by.")
    values: Annotated[dict[str, Any], Field(min_length=1)] = Field(
        description="For each field: value, source (where it was read) and confidence from 0 to 1."
    )


@tool("createEntity", GROUP, CreateEntity, writes=True, scope="ingest")
def create_entity(arguments: CreateEntity, scope: ToolScope) -> Outcome:
    """Create a record of one of the workspace's kinds."""
    entity = entity_store.create_entity(
        entity_type=arguments.entity_type, name=arguments.name, fields=arguments.fields, actor=scope.actor
    )
    payload = {
        "entity_id": entity.id,
        "entity_type": arguments.entity_type,
        "name": entity.name,
        "fields": entity.fields,
    }
    return answer_with_event(
        "entity.created", payload, **flatten_record(entity.id, entity.name, arguments.entity_type, entity.fields)
    )


@tool("updateEntity", GROUP, UpdateEntity, writes=True, scope="ingest")
def update_entity(arguments: UpdateEntity, scope: ToolScope) -> Outcome:
    """Change fields of a record. The other fields stay as they are."""
    changed = entity_store.update_entity(arguments.entity_id, arguments.changes, actor=scope.actor)
    found = entity_store.get_entity(arguments.entity_id, actor=scope.actor)
    entity, kind = found.entity, found.entity_type.slug
    payload = {"entity_id": entity.id, "entity_type": kind, "changes": changed}
    return answer_with_event("entity.updated", payload, **flatten_record(entity.id, entity.name, kind, entity.fields))


@tool("submitResponse", GROUP, SubmitResponse, writes=True, scope=None)
def submit_response(arguments: SubmitResponse, scope: ToolScope) -> Outcome:
    """Submit values about a record, each with where it was read and how sure you are, for a person to accept or
    reject. Leave a field out rather than guess."""
    agent_id = scope.agent_id or scope.actor.agent_id
    values = {name: wrap_value(given) for name, given in arguments.values.items()}
    response = entity_responses.submit_response(
        entity_responses.NewResponse(
            entity_id=arguments.entity_id,
            criteria_set_id=arguments.criteria_set_id,
            values=values,
            session_id=scope.session_id,
            agent_id=agent_id,
        ),
        actor=scope.actor,
    )
    payload = {
        "response_id": response.id,
        "entity_id": arguments.entity_id,
        "criteria_set_id": arguments.criteria_set_id,
        "values": values,
    }
    return answer_with_event("response.submitted", payload, id=response.id, status=response.status, values=values)


TOOLS: tuple[Tool, ...] = (create_entity, update_entity, submit_response)
