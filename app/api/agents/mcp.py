"""`/mcp`: the Model Context Protocol over HTTP, one message a request, handed to the library in a loop of its own."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from flask import Response, current_app, g, request

from app.api.agents import bp
from app.api.kit import limits
from app.api.kit.route import read_body
from app.db import db
from app.errors import Invalid, SignInNeeded
from app.security import csrf
from app.security.access import access

PARSE_ERROR, INVALID_REQUEST = -32700, -32600
DROPPED_HEADERS = frozenset({"authorization", "cookie", "content-length", "transfer-encoding"})


@bp.post("/mcp")
@access("member", "context|feedback|knowledge")
def messages() -> Response:
    """One JSON-RPC message in, its answer out. Keys only: a cookie is not how programs sign in."""
    if g.actor.key_id is None:
        raise SignInNeeded("Send `Authorization: Bearer KEY`; MCP takes no cookie.")
    csrf.check_origin()
    limits.take_request(g.actor.key_id)
    try:
        message = read_body()
    except Invalid as wrong:
        return error_answer(PARSE_ERROR, wrong.detail)
    fault = fault_of(message)
    if fault:
        return error_answer(INVALID_REQUEST, fault)
    # A request that waits for a tool must not hold the connection that the tool needs.
    db.session.rollback()
    body = json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
    # A server that speaks ASGI itself has a running loop in this thread, and a thread runs only one.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(copy_context().run, lambda: asyncio.run(exchange(body))).result()


def fault_of(message: Any) -> str | None:
    """Say what is wrong with the frame of a message. The library's own text would quote its internals."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return 'Send one JSON-RPC message: an object with `"jsonrpc": "2.0"`, not a list of them.'
    number = message.get("id", 0)
    if isinstance(number, bool) or not isinstance(number, str | int):
        return "`id` is text or a whole number."
    if "method" not in message:
        return None if isinstance(message.get("result"), dict) else "Name the `method` that you call."
    if not isinstance(message["method"], str):
        return "`method` is text."
    return None if isinstance(message.get("params", {}), dict) else "`params` is an object."


def error_answer(code: int, sentence: str) -> Response:
    document = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": sentence}}
    return Response(json.dumps(document, ensure_ascii=False), 400, mimetype="application/json")


async def exchange(body: bytes) -> Response:
    """The library's answer. The credential stays here."""
    import httpx2
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from app.tools.mcp_server import build_server

    actor = g.actor
    server = build_server(lambda: actor, current_app.config["VERSION"])
    manager = StreamableHTTPSessionManager(app=server, json_response=True, stateless=True)
    given = [(name, value) for name, value in request.headers if name.lower() not in DROPPED_HEADERS]
    headers = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in given]
    async with manager.run():
        passed_on = httpx2.Request("POST", request.base_url, headers=headers, content=body)
        found = await httpx2.ASGITransport(app=manager.handle_request).handle_async_request(passed_on)
        content = await found.aread()
    kept = {name: value for name, value in found.headers.items() if name in {"content-type", "allow"}}
    return Response(content, found.status_code, kept)
