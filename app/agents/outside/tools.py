"""All tools of an agent: ours, its HTTP tools, and those of its MCP servers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from app.agents.outside.client import open_client
from app.agents.outside.connections import Outside
from app.agents.outside.http_tools import http_tool
from app.agents.outside.mcp_tools import Link
from app.tools import Tool


async def open_tools(outside: Outside, ours: list[Tool], *, connect: bool = True) -> list[Tool]:
    """Open what the agent's configuration names; Refused when a server is missing. Without `connect` no server is asked
    for its tools."""
    config = outside.config
    if not config.http_tools and not config.mcp_servers:
        return ours
    named = DistinctTools(ours)
    client = await outside.enter(open_client(outside.allow))
    for spec in config.http_tools:
        named.add(http_tool(spec, outside, client), "http")
    links = [Link(server, outside) for server in config.mcp_servers if connect]
    for link in links:
        outside.close_later(link.close)
    for link, tools in zip(links, await asyncio.gather(*[link.tools() for link in links]), strict=True):
        for tool in tools:
            named.add(tool, link.server.name)
    return named.tools


class DistinctTools:
    """Tools with different names. Of two with the same name, the later one is prefixed with its origin."""

    def __init__(self, tools: list[Tool]) -> None:
        self.tools = list(tools)
        self.names = {tool.name for tool in tools}

    def add(self, tool: Tool, origin: str) -> None:
        name, number = tool.name, 1
        while name in self.names:
            name = f"{origin}_{tool.name}"[:60] + (f"_{number}" if number > 1 else "")
            number += 1
        self.names.add(name)
        self.tools.append(replace(tool, name=name))
