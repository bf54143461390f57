"""Tools to read and tune other agents. They create none, and give none more permissions than it had."""

from typing import Any
from uuid import UUID

from pydantic import Field

from app.errors import Forbidden, Invalid
from app.formats.agent_config import Skill
from app.models import Agent
from app.services.agents import versions
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


@tool(GROUP, scope="admin")
def list_agents(arguments: NoArguments, scope: ToolScope) -> Outcome:
    """List the workspace's agents with their ids."""
    return answer(items=[_describe(row) for row in versions.list_agents(actor=scope.actor)])


def _describe(row: Agent) -> dict[str, Any]:
    shown = pick(row, "id", "name", "slug", "description", "kind", "is_system")
    return {**shown, "version": row.current_version}


@tool(GROUP, scope="admin")
def get_agent(arguments: OneAgent, scope: ToolScope) -> Outcome:
    """Get one agent with its instructions, skills, model and tool groups."""
    agent = versions.get_agent(arguments.id, actor=scope.actor)
    config = _load_config(agent, scope)
    return answer(**_describe(agent), config={name: config[name] for name in READABLE_KEYS if name in config})


@tool(GROUP, writes=True, scope="admin")
def update_agent_config(arguments: UpdateAgentConfig, scope: ToolScope) -> Outcome:
    """Change an agent's instructions or skills, or take tool groups from it, as a new version. Earlier versions stay
    and an admin can go back to one."""
    agent = versions.get_agent(arguments.id, actor=scope.actor)
    config = _load_config(agent, scope)
    given = arguments.model_dump(exclude={"id", "reason"}, exclude_none=True)
    _check_allowed(agent, config, given, scope)
    changed = [name for name in given if given[name] != config.get(name)]
    if not changed:
        raise Invalid("This changes nothing; send other `instructions`, `skills` or `toolGroups`.")
    version = versions.save_version(agent.id, config | given, actor=scope.actor, note=arguments.reason)
    done = {"version": version.version, "changed": changed}
    payload = {"agent_id": agent.id, "agent": agent.slug, **done, "reason": arguments.reason}
    return answer(NewEvent("agent.updated", payload), id=agent.id, slug=agent.slug, **done)


def _check_allowed(agent: Agent, config: dict[str, Any], given: dict[str, Any], scope: ToolScope) -> None:
    if agent.is_system:
        raise Forbidden(f"{agent.slug} belongs to the workspace; no tool changes it.")
    if agent.id in (scope.agent_id, scope.actor.agent_id):
        raise Forbidden("An agent does not change itself.")
    more = sorted(set(given.get("tool_groups", ())) - set(config.get("tool_groups") or ()))
    if more:
        raise Forbidden(f"Only a person gives an agent more tools; it does not have {more[0]}.")


def _load_config(agent: Agent, scope: ToolScope) -> dict[str, Any]:
    number = agent.current_version
    return versions.read_contents(agent.id, [number], actor=scope.actor)[number]
