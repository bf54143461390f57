"""What the tools of one run share when they reach outside: clients, connections to servers, and an end to all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from app.errors import Refused
from app.formats.agent_config import AgentConfig
from app.tools import Tool

if TYPE_CHECKING:
    import httpx2

Result = TypeVar("Result")


class Outside:
    """Opened when a run begins and closed when it ends. Tools run in threads and do their waiting in the run's loop."""

    def __init__(self, config: AgentConfig, allow: str) -> None:
        self.config = config
        self.allow = allow
        self._loop = asyncio.get_running_loop()
        self._open = AsyncExitStack()
        self._waiting: set[Future[Any]] = set()
        self._client: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Outside:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, trouble: BaseException | None, trace: TracebackType | None
    ) -> None:
        for future in list(self._waiting):
            future.cancel()
        await self._open.aclose()

    async def tools(self, ours: list[Tool], *, connect: bool = True) -> list[Tool]:
        """All tools of the agent: ours, its HTTP tools, and those of its servers; Refused when a server is missing.
        Without `connect` no server is asked for its tools."""
        if not self.config.http_tools and not self.config.mcp_servers:
            return ours
        from app.agents.outside.client import open_client
        from app.agents.outside.http_tools import http_tool
        from app.agents.outside.mcp_tools import Link

        named = Named(ours)
        self._client = await self._open.enter_async_context(open_client(self.allow))
        for spec in self.config.http_tools:
            named.add(http_tool(spec, self, self._client), "http")
        links = [Link(server, self) for server in self.config.mcp_servers if connect]
        for link in links:
            self._open.push_async_callback(link.close)
        for link, tools in zip(links, await asyncio.gather(*[link.tools() for link in links]), strict=True):
            for tool in tools:
                named.add(tool, link.server.name)
        return named.tools

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


class Named:
    """Tools with names that differ. Of two with one name, the later has the name of where it comes from before it."""

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
