"""The tools of an agent on other servers, and what those of one run share: clients, connections and a common end."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, TypeVar

from app.agents.outside.client import open_client
from app.agents.outside.http_tools import http_tool
from app.agents.outside.mcp_tools import McpConnection
from app.errors import Refused
from app.formats.agent_config import AgentConfig
from app.tools import Tool

Result = TypeVar("Result")


class RunConnections(AsyncExitStack):
    """Opened when a run starts and closed when it ends. Tools run in threads and wait for work in the run's loop."""

    def __init__(self, config: AgentConfig, allow: str) -> None:
        super().__init__()
        self.config = config
        self.allow = allow
        self._loop = asyncio.get_running_loop()
        self._waiting: set[Future[Any]] = set()

    async def __aexit__(self, *trouble: Any) -> bool | None:
        for future in list(self._waiting):
            future.cancel()
        return await super().__aexit__(*trouble)

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Wait in a tool's thread for something that the run's loop does."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._waiting.add(future)
        try:
            return future.result()
        except CancelledError:
            raise Refused("The run ended before the tool answered.") from None
        finally:
            self._waiting.discard(future)

    async def open_tools(self, ours: list[Tool], *, connect: bool = True) -> list[Tool]:
        """Open the tools in the agent's configuration; Refused when a server is missing. Without `connect` no server
        is asked for its tools."""
        tools = list(ours)
        if self.config.http_tools:
            client = await self.enter_async_context(open_client(self.allow))
            for spec in self.config.http_tools:
                _add_tool(tools, http_tool(spec, self, client), "http")
        servers = [McpConnection(server, self) for server in self.config.mcp_servers if connect]
        for server in servers:
            self.push_async_callback(server.close)
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
