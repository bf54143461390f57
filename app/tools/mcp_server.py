"""The knowledge and feedback tools over the Model Context Protocol, with the permissions of the key. A tool that a key
may not use is not listed and counts as unknown. Imported on first use only."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from app.actor import Actor
from app.errors import Unusable
from app.services.workspaces import keys as workspace_keys
from app.tools import tools_of
from app.tools.base import Outcome, Tool, ToolScope
from app.tools.run import DATABASE_DOWN, may_use, run_tool

INVALID_KEY = "This key is not valid: it is unknown, revoked or expired. `upshot key create` makes one."
log = logging.getLogger(__name__)
OFFERED_GROUPS = ("context", "feedback-review")
INSTRUCTIONS = (
    "Upshot keeps what a workspace has learned about its agents' work. Call getContext before you begin and follow what"
    " it says. When something turns out wrong or well, say so with addFeedback; propose lasting rules with"
    " addCorrection, addLesson or addInsight. A person approves proposals before they reach a prompt."
)


def list_tools_for(actor: Actor) -> list[Tool]:
    """The tools that this key may use, always in the same order."""
    return [tool for tool in tools_of(OFFERED_GROUPS) if may_use(tool, actor)]


def build_server(current_actor: Callable[[], Actor], version: str) -> Server[Any]:
    """Build a server that finds the actor anew for each request, so that a revoked key stops working at once."""

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[describe_tool(tool) for tool in list_tools_for(current_actor())])

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return to_mcp_result(run_listed_tool(current_actor(), params.name, params.arguments))

    server: Server[Any] = Server(
        "upshot", version=version, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )
    # The library would trace each request with its content.
    server.middleware.clear()
    logging.getLogger("mcp").setLevel(logging.WARNING)
    return server


def run_listed_tool(actor: Actor, name: str, arguments: Any) -> Outcome:
    """Run one of the tools that the actor may use. Any other name is an error of the request."""
    tool = next((tool for tool in list_tools_for(actor) if tool.name == name), None)
    if tool is None:
        raise MCPError(types.INVALID_PARAMS, f"There is no tool {name[:80]!r} that this key may use.")
    try:
        return run_tool(tool, arguments, ToolScope(actor=actor))
    except DATABASE_DOWN as trouble:
        log.warning("the database is not answering (%s)", type(trouble).__name__)
        raise MCPError(types.INTERNAL_ERROR, "The database isn't answering. Try again in a few seconds.") from None


def describe_tool(tool: Tool) -> types.Tool:
    hints = types.ToolAnnotations(read_only_hint=not tool.writes, destructive_hint=False, open_world_hint=False)
    return types.Tool(name=tool.name, description=tool.description, input_schema=tool.parameters, annotations=hints)


def to_mcp_result(outcome: Outcome) -> types.CallToolResult:
    """The output as text for any client, and as an object for those that read structured content."""
    output = outcome.output
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, allow_nan=False)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=output if isinstance(output, dict) else None,
        is_error=outcome.is_error,
    )


def serve_stdio(key: str, version: str) -> None:
    """Serve one client with one key on standard input and output, until it closes."""
    if workspace_keys.actor_of(key) is None:
        raise Unusable(INVALID_KEY)
    asyncio.run(_serve(key, version))


async def _serve(key: str, version: str) -> None:
    server = build_server(lambda: find_actor(key), version)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def find_actor(key: str) -> Actor:
    """The key's actor, or an error for the client."""
    found = workspace_keys.actor_of(key)
    if found is None:
        raise MCPError(types.INVALID_REQUEST, INVALID_KEY)
    return found
