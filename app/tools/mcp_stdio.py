"""MCP on standard input and output: one client, one key, looked at anew for every request."""

from __future__ import annotations

import asyncio

from app.actor import Actor
from app.errors import Unusable
from app.services.workspaces import keys as workspace_keys
from app.tools.mcp_server import build_server

REFUSED = "This key is not valid: it is unknown, revoked or expired. `upshot key create` makes one."


def run(key: str, version: str) -> None:
    """Serve until the client closes its end."""
    if workspace_keys.actor_of(key) is None:
        raise Unusable(REFUSED)
    asyncio.run(_serve(key, version))


async def _serve(key: str, version: str) -> None:
    from mcp.server.stdio import stdio_server

    server = build_server(lambda: whose(key), version)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def whose(key: str) -> Actor:
    """The key's actor, or an error that the client shows."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import INVALID_REQUEST

    found = workspace_keys.actor_of(key)
    if found is None:
        raise MCPError(INVALID_REQUEST, REFUSED)
    return found
