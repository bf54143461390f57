"""The knowledge that goes into an agent's prompt."""

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from uuid import UUID

from flask import Response, g, request
from pydantic import Field

from app.api.agents import bp
from app.api.kit.fields import Answer, Query
from app.api.kit.route import route
from app.learning.prompt import Prompt
from app.services.agents import versions
from app.services.entities import store as entity_store
from app.services.knowledge import prompt as knowledge_prompt
from app.services.knowledge import usage as knowledge_usage


class ContextQuery(Query):
    # An empty name is an unknown one: a variable that was not set must not look like an agent without rules of its own.
    keeps_empty = True

    agent: str | None = Field(
        None, max_length=120, description=("The agent's slug. Adds rows that only this agent gets.")
    )
    entity_type: str | None = Field(None, max_length=120, description="Slug of an entity type, such as `deal`.")


class ContextRow(Answer):
    """A row in the prompt."""

    id: UUID
    type: str


class ContextAnswer(Answer):
    """Text to add to the agent's instructions unchanged. Empty when there is no knowledge."""

    prompt: str
    row_ids: list[UUID] = Field(description="In prompt order.")
    rows: list[ContextRow]
    sha256: str = Field(description="SHA-256 of the prompt's bytes.")


@route(
    bp,
    "GET",
    "/api/v1/context",
    access=("member", "context"),
    answer=ContextAnswer,
    also={
        304: "Nothing changed since the `ETag` in `If-None-Match`.",
        404: "This workspace has no such agent or entity type.",
    },
)
def read_context(query: ContextQuery) -> Response:
    """Get the knowledge for a prompt. Returns the best active rows for the workspace, the agent and the entity type.
    The same rows always give the same bytes and `ETag`. Send `If-None-Match` before each run."""
    agent_id = None if query.agent is None else versions.resolve_agent(query.agent, actor=g.actor).id
    type_id = None if query.entity_type is None else entity_store.find_type(query.entity_type, actor=g.actor).id
    found = knowledge_prompt.load_shared_context_prompt(g.actor.tenant_id, agent_id=agent_id, entity_type_id=type_id)
    knowledge_usage.note_served(found, actor=g.actor)
    body, tag = _write_answer(PromptKey(found.sha256, tuple(found.row_ids), found))
    headers = {"ETag": f'"{tag}"', "Cache-Control": "private, no-cache"}
    if request.if_none_match.contains_weak(tag):
        return Response(status=304, headers=headers)
    return Response(body, headers=headers, mimetype="application/json")


@dataclass(frozen=True)
class PromptKey:
    """By what a prompt is known: its words and its rows. Two rows of the same words are two answers."""

    sha256: str
    row_ids: tuple[UUID, ...]
    prompt: Prompt = field(compare=False)


@lru_cache(maxsize=256)
def _write_answer(known: PromptKey) -> tuple[str, str]:
    """The answer and its ETag. The rows are read with every request, so only the writing is saved: what is taken out of
    use is gone from the next answer."""
    found = known.prompt
    rows = [ContextRow.model_validate(row) for row in found.rows]
    answer = ContextAnswer(prompt=found.text, row_ids=found.row_ids, rows=rows, sha256=found.sha256)
    return answer.model_dump_json(), sha256(" ".join([known.sha256, *map(str, known.row_ids)]).encode()).hexdigest()
