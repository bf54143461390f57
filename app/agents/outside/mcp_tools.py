"""Tools of MCP servers: listed when a run begins, called while it goes on, over the guarded way outside."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import TYPE_CHECKING, Any

from app.agents.outside.client import SECONDS, OutboundError, open_client, secret_headers
from app.agents.outside.connections import Outside
from app.errors import Problem, Refused
from app.formats.agent_config import McpServer
from app.formats.outbound_rules import check_address
from app.tools import Outcome, Tool, ToolScope

if TYPE_CHECKING:
    from mcp import Client

log = logging.getLogger(__name__)
LISTING_SECONDS = 20.0
CLOSING_SECONDS = 2.0
MOST_TOOLS = 200
LONGEST_ABOUT = 2000
LONGEST_SCHEMA = 20_000
UNNAMED = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)


class Link:
    """A connection to one server. A task of its own keeps it, so that its troubles never end the run's."""

    def __init__(self, server: McpServer, outside: Outside) -> None:
        self.server = server
        self.outside = outside
        self._done = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._keep())

    async def tools(self) -> list[Tool]:
        """What the server offers, or Refused with why it cannot be asked."""
        try:
            async with asyncio.timeout(LISTING_SECONDS):
                return [self._tool(found) for found in await _listed(await self._ready)]
        except TimeoutError:
            raise self._missing(f"it did not answer within {LISTING_SECONDS:.0f} seconds") from None
        except Problem as refusal:
            raise self._missing(refusal.detail) from None
        except Exception as trouble:
            raise self._missing(reason(trouble)) from None

    async def close(self) -> None:
        self._done.set()
        await asyncio.wait([self._task], timeout=CLOSING_SECONDS)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CLOSING_SECONDS)
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()

    async def _keep(self) -> None:
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
                log.info("the connection to the MCP server %s ended: %s", self.server.name, reason(trouble))

    def _tool(self, found: Any) -> Tool:
        name = UNNAMED.sub("_", found.name)[:60] or "tool"
        schema = found.input_schema if isinstance(found.input_schema, dict) else {}
        if len(json.dumps(schema, default=str)) > LONGEST_SCHEMA:
            schema = {}
        hints = found.annotations
        return Tool(
            name=name,
            group="own",
            description=(found.description or found.title or "")[:LONGEST_ABOUT],
            parameters={"properties": {}, **schema, "type": "object"},
            writes=not (hints is not None and hints.read_only_hint),
            role="member",
            call=lambda given, scope: self._call(found.name, given, scope),
            scope=None,
            transactional=False,
        )

    def _call(self, name: str, given: dict[str, Any], scope: ToolScope) -> Outcome:
        return self.outside.wait(self._answer(name, given))

    async def _answer(self, name: str, given: dict[str, Any]) -> Outcome:
        from mcp import types

        if self._task.done():
            return Outcome(f"The connection to the MCP server {self.server.name} ended.", is_error=True)
        try:
            async with asyncio.timeout(SECONDS):
                client = await self._ready
                # What a server says about its own answers is not checked here: its patterns could take for ever.
                found = await client.session.send_request(
                    types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=given)),
                    types.CallToolResult,
                )
        except TimeoutError:
            return Outcome(f"{self.server.name} did not answer within {SECONDS:.0f} seconds.", is_error=True)
        except Exception as trouble:
            return Outcome(f"{self.server.name} could not do it: {reason(trouble)}.", is_error=True)
        return Outcome(output_of(found), is_error=bool(found.is_error))

    def _missing(self, why: str) -> Refused:
        return Refused(f"The tools of the MCP server {self.server.name} are not there: {why.rstrip('.')}.")


async def _listed(client: Client) -> list[Any]:
    found: list[Any] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor or len(found) >= MOST_TOOLS:
            return found[:MOST_TOOLS]


def output_of(found: Any) -> Any:
    """What a server answered: its structure where there is one, else its texts; nothing else is kept."""
    if found.structured_content is not None:
        return found.structured_content
    texts = [part.text if part.type == "text" else f"[{part.type}]" for part in found.content]
    return "\n".join(texts)


def reason(trouble: BaseException) -> str:
    """The first cause of a trouble, in words, without what a request carried."""
    while isinstance(trouble, BaseExceptionGroup):
        trouble = trouble.exceptions[0]
    if isinstance(trouble, Problem):
        return trouble.detail.rstrip(".")
    if isinstance(trouble, OutboundError):
        return str(trouble).rstrip(".")
    return (str(trouble) or type(trouble).__name__)[:300].rstrip(".")
