"""The tools over the Model Context Protocol: knowledge and feedback, with the rights of the key that asks.

What a key may not use is not listed, and asking for it is asking for something unknown.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from app.actor import Actor
from app.tools import tools_of
from app.tools.base import Outcome, Tool, ToolScope
from app.tools.run import DOWN, may_use, run_tool

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server import Server

log = logging.getLogger(__name__)
OFFERED = ("context", "feedback-review")
ABOUT = (
    "Upshot keeps what a workspace has learned about its agents' work. Call getContext before you begin and follow what"
    " it says. When something turns out wrong or well, say so with addFeedback; propose lasting rules with"
    " addCorrection, addLesson or addInsight. A person approves proposals before they reach a prompt."
)


def offered(actor: Actor) -> list[Tool]:
    """What this key may use, always in the same order."""
    return [tool for tool in tools_of(OFFERED) if may_use(tool, actor)]


def build_server(whoever: Callable[[], Actor], version: str) -> Server[Any]:
    """A server that asks who it is for at every request, so that a revoked key ends there and then."""
    import mcp_types as types
    from mcp.server import Server

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[described(tool) for tool in offered(whoever())])

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return as_result(call(whoever(), params.name, params.arguments))

    server: Server[Any] = Server(
        "upshot", version=version, instructions=ABOUT, on_list_tools=list_tools, on_call_tool=call_tool
    )
    # The library would report each request as a span, with what people said in it.
    server.middleware.clear()
    logging.getLogger("mcp").setLevel(logging.WARNING)
    return server


def call(actor: Actor, name: str, arguments: Any) -> Outcome:
    """Run one of the tools that the actor may use. What is no tool of theirs is a fault of the request."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

    tool = next((tool for tool in offered(actor) if tool.name == name), None)
    if tool is None:
        raise MCPError(INVALID_PARAMS, f"There is no tool {name[:80]!r} that this key may use.")
    try:
        return run_tool(tool, arguments, ToolScope(actor=actor))
    except DOWN as trouble:
        log.warning("the database is not answering (%s)", type(trouble).__name__)
        raise MCPError(INTERNAL_ERROR, "The database does not answer. Try again in a few seconds.") from None


def described(tool: Tool) -> types.Tool:
    import mcp_types as types

    hints = types.ToolAnnotations(read_only_hint=not tool.writes, destructive_hint=False, open_world_hint=False)
    return types.Tool(name=tool.name, description=tool.description, input_schema=tool.parameters, annotations=hints)


def as_result(outcome: Outcome) -> types.CallToolResult:
    """The answer as text for any client, and as an object for those that read objects."""
    import mcp_types as types

    output = outcome.output
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, allow_nan=False)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=output if isinstance(output, dict) else None,
        is_error=outcome.is_error,
    )
