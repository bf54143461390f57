"""MCP over both transports, with the official client: what is offered, what it does, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
from flask import Flask
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from app.db import acting_as, db, transaction
from app.models import Feedback, SharedContext
from app.services.workspaces import keys as workspace_keys
from tests.cli.servers import UPSHOT, environment, upshot
from tests.conftest import Api, Workspace
from tests.http_server import served

PATIENCE = 120
OWN = {"listFeedback", "getFeedback", "addFeedback", "saveMemory"}
PROPOSALS = {"addCorrection", "addLesson", "addInsight"}
ALL = OWN | PROPOSALS | {
    "getContext", "listSharedContext", "updateSharedContext", "deactivateSharedContext", "reviewFeedback",
}  # fmt: skip
Talk = Callable[[Client], Awaitable[Any]]


@pytest.fixture
def address(app: Flask) -> Iterator[str]:
    with served(app) as address:
        yield address + "/mcp"


def over_http(address: str, key: str, talk: Talk, mode: str = "auto") -> Any:
    async def run() -> Any:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE) as http,
            Client(streamable_http_client(address, http_client=http), mode=mode) as client,
        ):
            return await talk(client)

    return asyncio.run(asyncio.wait_for(run(), PATIENCE))


def over_stdio(data: Path, database: str, talk: Talk, *arguments: str, **more: str) -> Any:
    env = environment(data, UPSHOT_DATABASE_URL=database, **more)
    started = StdioServerParameters(command=UPSHOT, args=["mcp", *arguments], env=env)

    async def run() -> Any:
        async with Client(started) as client:
            return await talk(client)

    return asyncio.run(asyncio.wait_for(run(), PATIENCE))


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


def loop_through(rule: str) -> Talk:
    """What an agent does over MCP: know, report, propose, look."""

    async def talk(client: Client) -> dict[str, Any]:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        known = await client.call_tool("getContext", {})
        said = await client.call_tool(
            "addFeedback", {"rating": "negative", "comment": "Wrong basis.", "toolSlug": "getFinancials"}
        )
        source = said.structured_content["id"]
        made = await client.call_tool("addCorrection", {"content": rule, "sourceFeedbackId": source})
        decided = await client.call_tool("reviewFeedback", {"id": source, "action": "applied", "notes": "Made a rule."})
        refused = await client.call_tool("updateSharedContext", {"id": made.structured_content["id"], "active": True})
        return {
            "listed": listed,
            "known": known,
            "said": source,
            "made": made,
            "decided": decided,
            "refused": refused,
            "instructions": client.instructions,
        }

    return talk


def check_loop(app: Flask, admin: Any, found: dict[str, Any]) -> None:
    assert set(found["listed"]) == ALL
    assert found["listed"]["getContext"].annotations.read_only_hint is True
    assert found["listed"]["addCorrection"].annotations.read_only_hint is False
    assert found["listed"]["addCorrection"].input_schema["required"] == ["content"]
    assert set(found["known"].structured_content) == {"prompt", "row_ids", "rows", "sha256"}
    assert json.loads(found["made"].content[0].text) == found["made"].structured_content
    assert found["made"].structured_content["state"] == "proposed"
    assert found["decided"].structured_content["status"] == "reviewed"
    assert found["refused"].is_error
    assert "Only a person" in found["refused"].content[0].text
    with app.app_context(), acting_as(admin), transaction():
        row = db.session.get_one(SharedContext, UUID(found["made"].structured_content["id"]))
        assert (row.state, row.created_by_user_id) == ("proposed", admin.id)
        assert str(row.source_feedback_id) == found["said"]
        assert db.session.get_one(Feedback, UUID(found["said"])).status == "reviewed"


def test_the_loop_over_http(app: Flask, address: str, workspace: Workspace, api: Callable[..., Api]) -> None:
    admin = workspace.actor("admin")
    for mode in ("auto", "legacy"):
        talk = loop_through(f"Use LTM, said in {mode} mode.")
        check_loop(app, admin, over_http(address, api(admin, "admin").key, talk, mode))


def test_the_loop_over_stdio(
    app: Flask, app_url: str, workspace: Workspace, api: Callable[..., Api], tmp_path: Path
) -> None:
    admin = workspace.actor("admin")
    key_file = tmp_path / "key"
    key_file.write_text(api(admin, "admin").key + "\n")
    found = over_stdio(tmp_path / "data", app_url, loop_through("Use LTM."), "--key-file", str(key_file))
    check_loop(app, admin, found)


def test_a_key_sees_what_it_may_use_and_nothing_else(
    address: str, workspace: Workspace, api: Callable[..., Api]
) -> None:
    member, admin = workspace.actor("member"), workspace.actor("admin")
    for actor, scopes, expected in (
        (member, ("context",), {"getContext"}),
        (member, ("feedback",), OWN),
        (member, ("knowledge",), PROPOSALS),
        (member, ("admin",), OWN | PROPOSALS | {"getContext"}),
        (admin, ("context", "feedback", "ingest", "feedback-token"), OWN | {"getContext"}),
        (admin, ("context", "knowledge"), PROPOSALS | {"getContext"}),
        (admin, ("admin",), ALL),
    ):
        assert over_http(address, api(actor, *scopes).key, names) == expected, scopes


def test_what_is_not_listed_cannot_be_called(address: str, workspace: Workspace, api: Callable[..., Api]) -> None:
    async def talk(client: Client) -> set[str]:
        said = set()
        for name in ("addCorrection", "reviewFeedback", "listSharedContext", "createEntity", "listAgents", "nothing"):
            with pytest.raises(MCPError) as refusal:
                await client.call_tool(name, {})
            said.add(str(refusal.value).replace(name, "X"))
        return said

    for actor in (workspace.actor("member"), workspace.actor("admin")):
        assert len(over_http(address, api(actor, "feedback", "context").key, talk)) == 1


def test_members_see_their_own_feedback_only(
    app: Flask, address: str, workspace: Workspace, api: Callable[..., Api]
) -> None:
    async def give(client: Client) -> str:
        found = await client.call_tool("addFeedback", {"rating": "positive", "sourceType": "observation"})
        return str(found.structured_content["id"])

    async def read(client: Client) -> Any:
        items = (await client.call_tool("listFeedback", {})).structured_content["items"]
        return {row["id"] for row in items}

    mine = api(workspace.actor("member"), "feedback").key
    theirs = api(workspace.actor("other"), "feedback").key
    given, other = over_http(address, mine, give), over_http(address, theirs, give)
    assert over_http(address, mine, read) == {given}
    assert over_http(address, api(workspace.actor("admin"), "admin").key, read) == {given, other}


def test_ids_of_another_workspace_are_unknown(
    address: str, workspace: Workspace, make_workspace: Callable[..., Workspace], api: Callable[..., Api]
) -> None:
    async def give(client: Client) -> str:
        found = await client.call_tool("addLesson", {"content": "Theirs alone."})
        return str(found.structured_content["id"])

    theirs = over_http(address, api(make_workspace().actor("admin"), "admin").key, give)

    async def ask(client: Client) -> list[str]:
        said = []
        for row_id in (theirs, str(uuid4())):
            found = await client.call_tool("deactivateSharedContext", {"id": row_id, "reason": "r"})
            said.append(json.loads(found.content[0].model_dump_json())["text"])
        return said

    first, second = over_http(address, api(workspace.actor("admin"), "admin").key, ask)
    assert first == second == "There is no such knowledge row in this workspace."


def rpc(method: str, params: Any = None, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}, **more}


ACCEPT = {"Accept": "application/json, text/event-stream"}


def test_keys_come_in_and_nothing_else(app: Flask, workspace: Workspace, sign_in: Any, api: Callable[..., Api]) -> None:
    client = app.test_client()
    listing = rpc("tools/list")
    assert client.post("/mcp", json=listing, headers=ACCEPT).status_code == 401
    wrong = {**ACCEPT, "Authorization": "Bearer up_nobody"}
    assert client.post("/mcp", json=listing, headers=wrong).status_code == 401
    browser = sign_in(workspace.actor("owner"))
    cookie = browser.post("/mcp", json=listing, headers={**ACCEPT, "X-CSRFToken": browser.csrf})
    assert cookie.status_code == 401
    key = api(workspace.actor("admin"), "admin")
    assert key.post("/mcp", listing, headers=ACCEPT).status_code == 200
    assert api(workspace.actor("admin"), "ingest").post("/mcp", listing, headers=ACCEPT).status_code == 403
    for headers in ({"Origin": "https://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        assert key.post("/mcp", listing, headers={**ACCEPT, **headers}).status_code == 403
    assert key.post("/mcp", listing, headers={**ACCEPT, "Host": "rebound.example"}).status_code == 400
    for method in ("GET", "DELETE", "PUT"):
        answer = key.request(method, "/mcp", headers=ACCEPT)
        assert (answer.status_code, answer.mimetype) == (405, "application/problem+json")


def test_a_revoked_key_ends_at_once(app: Flask, workspace: Workspace, api: Callable[..., Api]) -> None:
    admin = workspace.actor("admin")
    key = api(admin, "context")
    with app.app_context():
        found = workspace_keys.actor_of(key.key)
        assert found is not None
        assert (found.id, found.tenant_id, found.scopes) == (admin.id, admin.tenant_id, frozenset({"context"}))
        with acting_as(admin), transaction():
            workspace_keys.revoke_key(found.key_id, actor=admin)  # type: ignore[arg-type]
        assert workspace_keys.actor_of(key.key) is None
        assert workspace_keys.actor_of("nonsense") is None
    assert key.post("/mcp", rpc("tools/list"), headers=ACCEPT).status_code == 401


def test_bad_messages_are_answers_and_never_5xx(app: Flask, workspace: Workspace, api: Callable[..., Api]) -> None:
    key = api(workspace.actor("admin"), "admin")
    deep = "[" * 3000 + "]" * 3000
    bodies = [
        "", "{", "[]", "1", "null", '"x"', "{}", deep, '{"jsonrpc": "2.0"}', '{"a": 1, "a": 2}', "NaN", "\x00",
        '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "addLesson", "arguments": "x"}}',
        '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": 7}',
        '{"jsonrpc": "2.0", "id": {"a": 1}, "method": "ping"}',
        '{"jsonrpc": "2.0", "id": 1, "method": "\\u0000"}',
        '{"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {}}',
        '{"jsonrpc": "2.0", "id": 1, "result": {}}',
        json.dumps([rpc("ping"), rpc("ping")]),
    ]  # fmt: skip
    headers = {**ACCEPT, "Authorization": f"Bearer {key.key}", "Content-Type": "application/json"}
    versions: tuple[dict[str, str], ...] = (
        {},
        {"MCP-Protocol-Version": "2026-07-28"},
        {"MCP-Protocol-Version": "x" * 500},
    )
    for body in bodies:
        for version in versions:
            answer = app.test_client().post("/mcp", data=body, headers={**headers, **version})
            assert answer.status_code < 500, (body[:80], version, answer.status)
            if answer.status_code >= 400:
                assert answer.mimetype == "application/json"
                assert "error" in answer.get_json(), (body[:80], version)
            assert "validation error" not in answer.text, (body[:80], version, answer.text)
            assert "pydantic" not in answer.text
    large = app.test_client().post("/mcp", data=b'"' + b"x" * 1024 * 1024 + b'"', headers=headers)
    assert large.status_code == 413
    for kind in ({"Content-Type": "text/plain"}, {"Content-Encoding": "gzip"}):
        assert app.test_client().post("/mcp", data="{}", headers={**headers, **kind}).status_code == 415
    notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert key.post("/mcp", notice, headers=ACCEPT).status_code == 202


def test_bad_arguments_are_reported_to_the_model(app: Flask, workspace: Workspace, api: Callable[..., Api]) -> None:
    key = api(workspace.actor("admin"), "admin")

    def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = key.post("/mcp", rpc("tools/call", {"name": name, "arguments": arguments}), headers=ACCEPT)
        assert answer.status_code == 200
        found: dict[str, Any] = answer.get_json()["result"]
        return found

    for arguments in ({}, {"content": 7}, {"content": "x", "state": "active"}, {"content": "x" * 2001}):
        found = called("addLesson", arguments)
        assert found["isError"] is True
        assert "`" in found["content"][0]["text"]
    assert called("listSharedContext", {})["structuredContent"]["items"] == []


def test_the_command_needs_a_key_that_is_valid(app_url: str, tmp_path: Path) -> None:
    for arguments, more, sentence in (
        (["mcp"], {}, "No API key"),
        (["mcp", "--key-file", str(tmp_path / "none")], {}, "can't be read"),
        (["mcp"], {"UPSHOT_API_KEY": "up_nobody"}, "not valid"),
    ):
        done = upshot(*arguments, data=tmp_path / "data", UPSHOT_DATABASE_URL=app_url, **more)
        assert done.returncode == 1
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
