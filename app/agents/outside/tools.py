"""The tools of an agent on other servers, and what those of one run share: clients, connections and a common end."""

import asyncio
import json
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import httpx2

from app.agents.outside.client import SECONDS, OutboundError, open_client, secret_headers
from app.agents.outside.mcp_tools import McpConnection
from app.errors import Invalid, Refused
from app.formats.agent_config import AgentConfig, HttpTool
from app.formats.json_schema import check_arguments
from app.formats.outbound_rules import PLACEHOLDER, Target, check_template
from app.formats.strict_json import parse
from app.tools import Outcome, Tool, ToolScope

Result = TypeVar("Result")
MAX_ERROR = 300


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


def http_tool(spec: HttpTool, outside: RunConnections, client: httpx2.AsyncClient) -> Tool:
    """Build the tool for an HTTP address."""
    parameters = build_parameters(spec)

    def call(given: dict[str, Any], scope: ToolScope) -> Outcome:
        check_arguments(given, parameters)
        target = check_template(spec.url, outside.allow)
        url, rest = fill_url(target, given)
        headers = secret_headers(spec.headers_env, target.host)
        return outside.wait(_send(spec, url, rest, headers, client))

    return Tool(spec.name, "own", spec.description, parameters, spec.writes, call)


def build_parameters(spec: HttpTool) -> dict[str, Any]:
    """The schema for models: always an object, with every placeholder of the URL."""
    properties, required = spec.parameters.get("properties"), spec.parameters.get("required")
    named = {name: {"type": "string"} for name in PLACEHOLDER.findall(spec.url)}
    return {
        **spec.parameters,
        "type": "object",
        "properties": named | (properties if isinstance(properties, dict) else {}),
        "required": list(dict.fromkeys([*(required if isinstance(required, list) else []), *named])),
    }


def fill_url(target: Target, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Fill the placeholders of the URL, quoted so that no value leaves its place, and return the other arguments."""
    used = set(PLACEHOLDER.findall(target.rest))

    def value(name: str) -> str:
        text = _as_text(given[name]) if name in given else ""
        if text in ("", ".", ".."):
            raise Invalid(f"`{name}` is part of the address. Send a value that is neither empty nor a dot.")
        return quote(text, safe="")

    rest = PLACEHOLDER.sub(lambda found: value(found[1]), target.rest)
    url = Target(target.scheme, target.host, target.port, rest).url
    return url, {name: inner for name, inner in given.items() if name not in used}


def add_query(url: str, arguments: dict[str, Any]) -> str:
    """Add arguments to the query: a list repeats its name, an object is JSON, null is left out."""
    values = {name: value if isinstance(value, list) else [value] for name, value in arguments.items()}
    pairs = [(name, _as_text(one)) for name, some in values.items() for one in some if one is not None]
    return f"{url}{'&' if '?' in url else '?'}{urlencode(pairs, quote_via=quote)}" if pairs else url


async def _send(
    spec: HttpTool, url: str, arguments: dict[str, Any], headers: dict[str, str], client: httpx2.AsyncClient
) -> Outcome:
    try:
        async with asyncio.timeout(SECONDS):
            if spec.method == "GET":
                response = await client.request("GET", add_query(url, arguments), headers=headers)
            else:
                response = await client.request(spec.method, url, headers=headers, json=arguments)
    except TimeoutError:
        return Outcome(f"{spec.name} did not answer within {SECONDS:.0f} seconds.", is_error=True)
    except OutboundError as trouble:
        return Outcome(str(trouble), is_error=True)
    found = read_body(response)
    if response.is_success:
        return Outcome(found if found != "" else {"status": response.status_code})
    about = f": {_as_text(found)[:MAX_ERROR]}" if found != "" else ""
    return Outcome(f"{spec.name} answered with status {response.status_code}{about}", is_error=True)


def read_body(response: httpx2.Response) -> Any:
    """The body as JSON if it can be stored as such, else as text."""
    try:
        return parse(response.content)
    except Invalid:
        return response.content.decode("utf-8", "replace").strip()


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
