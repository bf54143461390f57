"""Tools to read other agents and to draft changes of agents and entity types, which a person approves. They create
none, and give none more permissions than it had."""

from typing import Any
from uuid import UUID

from pydantic import Field

from app.errors import Forbidden
from app.formats.agent_config import Skill
from app.models import Agent
from app.services.agents import versions
from app.services.review import drafts
from app.services.sessions.events import NewEvent
from app.tools.base import Arguments, NoArguments, Outcome, ToolScope, answer, pick, tool

GROUP = "agents-admin"
# URLs and keys of external tools are for people only.
READABLE_KEYS = ("instructions", "skills", "model", "tool_groups", "limits")


class OneAgent(Arguments):
    id: UUID = Field(description="The agent.")


class UpdateAgentConfig(OneAgent):
    instructions: str | None = Field(
        None, min_length=1, max_length=40_000, description="Its instructions from now on, as a whole."
    )
    skills: list[Skill] | None = Field(
        None, max_length=30, description="Its named instruction blocks from now on, each with name and text."
    )
    tool_groups: list[str] | None = Field(
        None, max_length=20, description="Those of its tool groups that it keeps; none can be added."
    )
    reason: str | None = Field(None, max_length=1000, description="Why, in a sentence.")
    source_feedback_id: UUID | None = Field(None, description="The feedback that it was learned from.")


class UpdateEntityType(Arguments):
    id: UUID = Field(description="The entity type.")
    name: str | None = Field(None, min_length=1, max_length=120, description="What it is called from then on.")
    fields: dict[str, dict[str, Any]] | None = Field(
        None, max_length=50, description="New fields, and fields with another JSON schema; the others stay."
    )
    reason: str | None = Field(None, max_length=1000, description="Why, in a sentence.")
    source_feedback_id: UUID | None = Field(None, description="The feedback that it was learned from.")


class OneDraft(Arguments):
    id: UUID = Field(description="The draft.")


@tool(GROUP, scope="admin")
def list_agents(arguments: NoArguments, scope: ToolScope) -> Outcome:
    """List the workspace's agents, or assistants, with their ids."""
    return answer(items=[_describe(row) for row in versions.list_agents(actor=scope.actor)])


def _describe(row: Agent) -> dict[str, Any]:
    shown = pick(row, "id", "name", "slug", "description", "kind", "is_system")
    return {**shown, "version": row.current_version}


@tool(GROUP, scope="admin")
def get_agent(arguments: OneAgent, scope: ToolScope) -> Outcome:
    """Get one agent with what it does: its instructions, skills, model and tool groups."""
    agent = versions.get_agent(arguments.id, actor=scope.actor)
    config = _load_config(agent, scope)
    return answer(**_describe(agent), config={name: config[name] for name in READABLE_KEYS if name in config})


@tool(GROUP, writes=True, scope="admin")
def update_agent_config(arguments: UpdateAgentConfig, scope: ToolScope) -> Outcome:
    """Draft a change of an agent's instructions or skills, or take tool groups from it. The agent stays as it is until
    a person approves. A newer draft of yours for the same agent replaces the earlier one."""
    agent = versions.get_agent(arguments.id, actor=scope.actor)
    config = _load_config(agent, scope)
    given = arguments.model_dump(exclude={"id", "reason", "source_feedback_id"}, exclude_none=True)
    _check_allowed(agent, config, given, scope)
    changed = {name: given[name] for name in given if given[name] != config.get(name)}
    draft = drafts.draft_agent(
        agent.id, changed, actor=scope.actor, reason=arguments.reason, session_id=scope.session_id,
        feedback_ids=_signals(arguments.source_feedback_id),
    )  # fmt: skip
    done = {"draft_id": draft.id, "status": draft.status, "changed": list(changed)}
    payload = {"agent_id": agent.id, "agent": agent.slug, **done, "reason": arguments.reason}
    return answer(NewEvent("agent.updated", payload), id=agent.id, slug=agent.slug, **done)


@tool(GROUP, writes=True, scope="admin")
def update_entity_type(arguments: UpdateEntityType, scope: ToolScope) -> Outcome:
    """Draft a change of a kind of record: its name, new fields, or the type and description of a field. It stays as it
    is until a person approves. No field is taken away."""
    draft = drafts.draft_type(
        arguments.id, arguments.fields or {}, name=arguments.name, actor=scope.actor, reason=arguments.reason,
        session_id=scope.session_id, feedback_ids=_signals(arguments.source_feedback_id),
    )  # fmt: skip
    return answer(id=arguments.id, draft_id=draft.id, status=draft.status)


@tool(GROUP, writes=True, scope="admin")
def withdraw_draft(arguments: OneDraft, scope: ToolScope) -> Outcome:
    """Withdraw a draft of your own that nobody decided about yet."""
    draft = drafts.withdraw_draft(arguments.id, actor=scope.actor)
    return answer(id=draft.id, status=draft.status)


def _signals(feedback_id: UUID | None) -> list[UUID]:
    return [feedback_id] if feedback_id else []


def _check_allowed(agent: Agent, config: dict[str, Any], given: dict[str, Any], scope: ToolScope) -> None:
    if agent.is_system:
        raise Forbidden(f"{agent.slug} is built in. Tools can’t change it.")
    if agent.id in (scope.agent_id, scope.actor.agent_id):
        raise Forbidden("An agent does not change itself.")
    more = sorted(set(given.get("tool_groups", ())) - set(config.get("tool_groups") or ()))
    if more:
        raise Forbidden(f"Only a person gives an agent more tools; it does not have {more[0]}.")


def _load_config(agent: Agent, scope: ToolScope) -> dict[str, Any]:
    number = agent.current_version
    return versions.read_contents(agent.id, [number], actor=scope.actor)[number]
