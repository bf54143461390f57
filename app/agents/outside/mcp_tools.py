"""Tools of MCP servers: listed when a run starts and called through the guarded client."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import TYPE_CHECKING, Any

from app.agents.outside.client import SECONDS, open_client, secret_headers
from app.errors import Refused
from app.formats.agent_config import McpServer
from app.formats.outbound_rules import check_address
from app.tools import Outcome, Tool

if TYPE_CHECKING:
    from mcp import Client

    from app.agents.outside.tools import RunConnections

log = logging.getLogger(__name__)
LISTING_SECONDS = 20.0
CLOSING_SECONDS = 2.0
MAX_TOOLS = 200
MAX_DESCRIPTION = 2000
MAX_SCHEMA = 20_000
MAX_ERROR = 300
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)


class McpConnection:
    """A connection to one server, held by a task of its own, so that its errors never end the run."""

    def __init__(self, server: McpServer, outside: RunConnections) -> None:
        self.server = server
        self.outside = outside
        self._done = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold())

    async def tools(self) -> list[Tool]:
        """The server's tools, or Refused with the reason."""
        try:
            async with asyncio.timeout(LISTING_SECONDS):
                return [self._tool(found) for found in await _list_tools(await self._ready)]
        except TimeoutError:
            why = f"it did not answer within {LISTING_SECONDS:.0f} seconds"
        except Exception as trouble:
            why = describe_error(trouble)
        raise Refused(f"The tools of the MCP server {self.server.name} are not there: {why}.")

    async def close(self) -> None:
        self._done.set()
        await asyncio.wait([self._task], timeout=CLOSING_SECONDS)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CLOSING_SECONDS)
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()

    async def _hold(self) -> None:
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        try:
            target = check_address(self.server.url, self.outside.allow)
            headers = secret_headers(self.server.headers_env, target.host)
            async with (
                open_client(self.outside.allow, headers) as http,
                Client(streamable_http_client(target.url, http_client=http), read_timeout_seconds=SECONDS) as client,
            ):
                self._ready.set_result(client)
                await self._done.wait()
        except asyncio.CancelledError:
            self._ready.cancel()
            raise
        except Exception as trouble:
            if not self._ready.done():
                self._ready.set_exception(trouble)
            else:
                log.info("the connection to the MCP server %s ended: %s", self.server.name, describe_error(trouble))

    def _tool(self, found: Any) -> Tool:
        name = NOT_IN_NAMES.sub("_", found.name)[:60] or "tool"
        schema = found.input_schema if isinstance(found.input_schema, dict) else {}
        if len(json.dumps(schema, default=str)) > MAX_SCHEMA:
            schema = {}
        hints = found.annotations
        return Tool(
            name=name,
            group="own",
            description=(found.description or found.title or "")[:MAX_DESCRIPTION],
            parameters={"properties": {}, **schema, "type": "object"},
            writes=not (hints is not None and hints.read_only_hint),
            call=lambda given, scope: self.outside.wait(self._answer(found.name, given)),
        )

    async def _answer(self, name: str, given: dict[str, Any]) -> Outcome:
        from mcp import types

        if self._task.done():
            return Outcome(f"The connection to the MCP server {self.server.name} ended.", is_error=True)
        try:
            async with asyncio.timeout(SECONDS):
                client = await self._ready
                # The result is not validated against the server's schema: its patterns could take forever.
                found = await client.session.send_request(
                    types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=given)),
                    types.CallToolResult,
                )
        except TimeoutError:
            return Outcome(f"{self.server.name} did not answer within {SECONDS:.0f} seconds.", is_error=True)
        except Exception as trouble:
            return Outcome(f"{self.server.name} could not do it: {describe_error(trouble)}.", is_error=True)
        return Outcome(read_output(found), is_error=bool(found.is_error))


async def _list_tools(client: Client) -> list[Any]:
    page = await client.list_tools()
    found = list(page.tools)
    while page.next_cursor and len(found) < MAX_TOOLS:
        page = await client.list_tools(cursor=page.next_cursor)
        found += page.tools
    return found[:MAX_TOOLS]


def read_output(found: Any) -> Any:
    """The structured content of a result, else its texts."""
    if found.structured_content is not None:
        return found.structured_content
    return "\n".join(part.text if part.type == "text" else f"[{part.type}]" for part in found.content)


def describe_error(trouble: BaseException) -> str:
    """The first cause of an error, without anything from the request."""
    while isinstance(trouble, BaseExceptionGroup):
        trouble = trouble.exceptions[0]
    return (str(trouble) or type(trouble).__name__)[:MAX_ERROR].rstrip(".")
