"""All tools of an agent: ours, its HTTP tools, and those of its MCP servers."""

import asyncio
from dataclasses import replace

from app.agents.outside.client import open_client
from app.agents.outside.connections import RunConnections
from app.agents.outside.http_tools import http_tool
from app.agents.outside.mcp_tools import McpConnection
from app.tools import Tool


async def open_tools(outside: RunConnections, ours: list[Tool], *, connect: bool = True) -> list[Tool]:
    """Open the tools in the agent's configuration; Refused when a server is missing. Without `connect` no server is
    asked for its tools."""
    config = outside.config
    if not config.http_tools and not config.mcp_servers:
        return ours
    tools = list(ours)
    client = await outside.enter_async_context(open_client(outside.allow))
    for spec in config.http_tools:
        _add_tool(tools, http_tool(spec, outside, client), "http")
    servers = [McpConnection(server, outside) for server in config.mcp_servers if connect]
    for server in servers:
        outside.push_async_callback(server.close)
    for server, found in zip(servers, await asyncio.gather(*[one.tools() for one in servers]), strict=True):
        for tool in found:
            _add_tool(tools, tool, server.server.name)
    return tools


def _add_tool(tools: list[Tool], tool: Tool, origin: str) -> None:
    """Add a tool. If its name is taken, it is prefixed with its origin."""
    names = {known.name for known in tools}
    name, number = tool.name, 1
    while name in names:
        name = f"{origin}_{tool.name}"[:60] + (f"_{number}" if number > 1 else "")
        number += 1
    tools.append(replace(tool, name=name))
