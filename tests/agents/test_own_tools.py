"""Tools of an agent's own: someone's HTTP address, and someone's MCP server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel

from tests.agents.conftest import Outing
from tests.loopback import Asked, Loopback, Reply, as_json
from tests.loopback_model import LoopbackModel, call, say

SECRET = "canary-tool-0123456789"
WEATHER = {
    "name": "getWeather",
    "description": "Says how the weather is.",
    "method": "GET",
    "writes": False,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "minLength": 1}, "days": {"type": "integer", "maximum": 7}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


def run(outing: Outing, allow: str, *script: dict[str, Any], **config: Any) -> Any:
    """A session of an agent with these tools, answered by a model that follows the script."""
    with LoopbackModel(*script) as model:
        outing.set(openai_base_url=model.base_url, outbound_allow=allow)
        outing.agent(model="openai:loopback", limits={"seconds": 20}, **config)
        seen = outing.ask("How is the weather?")
        seen.session.asked = model.asked
        return seen


def outputs(seen: Any) -> list[tuple[bool, Any]]:
    return [(result["is_error"], result["output"]) for result in seen.payloads("tool.result")]


def test_a_get_puts_arguments_in_the_query_and_a_name_in_the_path(outing: Outing) -> None:
    outing.monkeypatch.setenv("UPSHOT_TOOL_WEATHER", f"Bearer {SECRET}")
    with Loopback(lambda asked: as_json({"path": asked.path, "said": asked.headers["authorization"]})) as server:
        tool = WEATHER | {
            "url": f"{server.url}/v1/{{city}}/now?unit=c", "headers_env": {"Authorization": "UPSHOT_TOOL_WEATHER"}
        }  # fmt: skip
        seen = run(
            outing,
            server.host,
            call("getWeather", {"city": "../ä/?x=1#@evil", "days": 2}),
            call("getWeather", {"city": ".."}),
            call("getWeather", {"city": "Oslo", "days": 9}),
            call("getWeather", {"days": 2}),
            call("getWeather", {"city": "Oslo", "unit": "f"}),
            say("Fine."),
            http_tools=[tool],
        )
    assert seen.session.status == "completed", seen.session.error
    first, *wrong = outputs(seen)
    assert (
        first
        == (
            False,
            {"path": "/v1/..%2F%C3%A4%2F%3Fx%3D1%23%40evil/now?unit=c&days=2", "said": "Bearer [hidden]"},
        )
        or first[1]["said"] == "[hidden]"
    )
    assert first[1]["said"] == "[hidden]"
    assert first[1]["path"] == "/v1/..%2F%C3%A4%2F%3Fx%3D1%23%40evil/now?unit=c&days=2"
    assert server.asked[0].headers["authorization"] == f"Bearer {SECRET}"
    assert all(is_error for is_error, _ in wrong)
    assert [output.partition("`:")[0] for _, output in wrong[1:]] == ["`days", "`city", "`unit"]
    assert len(server.asked) == 1
    assert SECRET not in outing.readable_text(seen)
    sent = seen.session.asked[0].json["tools"][0]["function"]
    assert sent["name"] == "getWeather"
    assert sent["parameters"]["required"] == ["city"]


def test_other_methods_send_a_body_and_say_what_came_back(outing: Outing) -> None:
    replies = {
        "/ok": as_json({"id": 7}),
        "/text": Reply(b"plain words\x00", content_type="text/plain"),
        "/none": Reply(b"", 204),
        "/bad": as_json({"detail": "no such ship"}, 404),
        "/away": Reply(b"", 302, headers={"Location": "http://169.254.169.254/"}),
        "/long": Reply(b"x" * 3_000_000),
        "/odd": Reply(b'{"a": NaN, "a": 1}'),
    }
    with Loopback(lambda asked: replies[asked.path]) as server:
        tools = [
            {"name": path[1:], "url": server.url + path, "method": "POST", "parameters": {"type": "object"}}
            for path in replies
        ]
        script = [call(path[1:], {"ship": "Vega", "deep": {"a": [1]}}) for path in replies]
        seen = run(outing, server.host, *script, say("Done."), http_tools=tools)
    assert seen.session.status == "completed", seen.session.error
    assert outputs(seen) == [
        (False, {"id": 7}),
        (False, "plain words\ufffd"),
        (False, {"status": 204}),
        (True, 'bad answered with status 404: {"detail": "no such ship"}'),
        (True, "127.0.0.1 answered with a redirect, which is not followed. Give the address it leads to."),
        (True, "127.0.0.1 answered more than 1 MiB."),
        (False, '{"a": NaN, "a": 1}'),
    ]
    assert server.asked[0].json == {"ship": "Vega", "deep": {"a": [1]}}


def test_what_may_not_be_reached_is_an_answer(outing: Outing) -> None:
    with Loopback(lambda asked: as_json({})) as server:
        tools = [
            {"name": "inside", "url": f"{server.url}/"},
            {"name": "meta", "url": "http://169.254.169.254/"},
            {"name": "secret", "url": f"{server.url}/", "headers_env": {"X-Key": "UPSHOT_TOOL_MISSING"}},
        ]
        seen = run(outing, "", call("inside", {}), call("meta", {}), say("No way."), http_tools=tools)
        assert server.connections == 0
    assert seen.session.status == "completed", seen.session.error
    assert [is_error for is_error, _ in outputs(seen)] == [True, True]
    assert all("UPSHOT_OUTBOUND_ALLOW" in output for _, output in outputs(seen))


def test_a_name_that_is_taken_has_another(outing: Outing) -> None:
    with Loopback(lambda asked: as_json({"mine": True})) as server:
        tools = [{"name": "searchEntities", "url": f"{server.url}/", "parameters": {}}]
        seen = run(
            outing,
            server.host,
            call("http_searchEntities", {}),
            say("Done."),
            http_tools=tools,
            tool_groups=["entities-read"],
        )
    assert outputs(seen) == [(False, {"mine": True})]


class Sum(BaseModel):
    total: int


class McpThread:
    """A real MCP server over streamable HTTP, in a thread."""

    def __init__(self) -> None:
        import uvicorn
        from mcp.server import MCPServer
        from mcp_types import ToolAnnotations

        server = MCPServer("sums")
        self.seen: list[tuple[str, Any]] = []

        @server.tool(annotations=ToolAnnotations(read_only_hint=True))
        def add(a: int, b: int) -> Sum:
            """Add two numbers."""
            return Sum(total=a + b)

        @server.tool()
        def note(text: str) -> str:
            """Write something down."""
            self.seen.append(("note", text))
            return f"noted {text}"

        @server.tool()
        def fail() -> str:
            """Always fails."""
            raise ValueError("the ledger is closed")

        @server.tool()
        def searchEntities(query: str) -> str:  # noqa: N802 - a name of ours, on purpose
            """Looks elsewhere."""
            return f"elsewhere: {query}"

        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        config = uvicorn.Config(self._noted(server.streamable_http_app()), log_level="warning", lifespan="on")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.02)

    def _noted(self, inner: Any) -> Any:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                self.seen.append(("key", dict(scope["headers"]).get(b"x-key", b"").decode()))
            await inner(scope, receive, send)

        return app

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.socket.getsockname()[1]}"

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(5)


@pytest.fixture
def sums() -> Iterator[McpThread]:
    server = McpThread()
    yield server
    server.stop()


def test_tools_of_a_server_are_called_like_ours(outing: Outing, sums: McpThread) -> None:
    outing.monkeypatch.setenv("UPSHOT_TOOL_SUMS", SECRET)
    server = {"name": "sums", "url": f"http://{sums.host}/mcp", "headers_env": {"X-Key": "UPSHOT_TOOL_SUMS"}}
    seen = run(
        outing,
        sums.host,
        call("add", {"a": 2, "b": 3}),
        call("note", {"text": SECRET}),
        call("fail", {}),
        call("add", {"a": "x"}),
        call("sums_searchEntities", {"query": "Vega"}),
        say("Five."),
        mcp_servers=[server],
        tool_groups=["entities-read"],
    )
    assert seen.session.status == "completed", seen.session.error
    found = outputs(seen)
    assert found[0] == (False, {"total": 5})
    assert found[1][0] is False
    assert "noted [hidden]" in str(found[1][1])
    assert found[2][0] is True
    assert "Error executing tool fail" in str(found[2][1])
    assert found[3][0] is True
    assert "elsewhere: Vega" in str(found[4][1])
    assert ("key", SECRET) in sums.seen
    assert SECRET not in outing.readable_text(seen)
    names = [tool["function"]["name"] for tool in seen.session.asked[0].json["tools"]]
    assert {"add", "note", "searchEntities", "sums_searchEntities"} <= set(names)


def test_a_server_that_is_down_fails_the_session_with_its_name(outing: Outing) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"
    outing.set(outbound_allow=host)
    outing.agent(mcp_servers=[{"name": "sums", "url": f"http://{host}/mcp"}])
    assert outing.failed("Hello") == ("The tools of the MCP server sums are not there: 127.0.0.1 could not be reached.")


def test_a_server_inside_is_not_reached(outing: Outing) -> None:
    with Loopback(lambda asked: as_json({})) as server:
        outing.agent(mcp_servers=[{"name": "inside", "url": f"{server.url}/mcp"}])
        assert "UPSHOT_OUTBOUND_ALLOW" in outing.failed("Hello")
        assert server.connections == 0


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b"<html>It works!</html>", content_type="text/html"),
        Reply(b"{}"),
        as_json({"error": "no"}, 500),
        Reply(b"", 307, headers={"Location": "/elsewhere"}),
        Reply(b"x" * 3_000_000),
    ],
    ids=["html", "empty", "500", "redirect", "long"],
)
def test_what_is_no_mcp_server_is_reported(outing: Outing, reply: Reply) -> None:
    with Loopback(lambda asked: reply) as server:
        outing.set(outbound_allow=server.host)
        outing.agent(mcp_servers=[{"name": "sums", "url": f"{server.url}/mcp"}])
        assert outing.failed("Hello").startswith("The tools of the MCP server sums are not there: ")
    assert outing.count_held() == 0


def test_a_server_that_dies_during_a_run_is_an_answer(outing: Outing, sums: McpThread) -> None:
    def stopping(asked: Asked) -> Reply:
        sums.stop()
        return as_json({"stopped": True})

    with Loopback(stopping) as killer:
        seen = run(
            outing,
            f"{sums.host}, {killer.host}",
            call("stop", {}),
            call("add", {"a": 1, "b": 1}),
            say("It is gone."),
            http_tools=[{"name": "stop", "url": killer.url}],
            mcp_servers=[{"name": "sums", "url": f"http://{sums.host}/mcp"}],
        )
    assert seen.session.status == "completed", seen.session.error
    assert outputs(seen)[1][0] is True
    assert seen.payloads("agent.message")[-1]["text"] == "It is gone."


def test_a_run_is_stopped_while_a_tool_waits(outing: Outing) -> None:
    server = Loopback(lambda asked: Reply(str(server.left.wait(30)).encode()))
    with server, LoopbackModel(call("wait", {})) as model:
        outing.set(openai_base_url=model.base_url, outbound_allow=server.host)
        outing.agent(model="openai:loopback", http_tools=[{"name": "wait", "url": server.url}])
        asked = outing.desk.ask("Wait for it")
        running = threading.Thread(target=outing.executor.drain)
        running.start()
        while not server.asked:
            time.sleep(0.05)
        began = time.monotonic()
        outing.desk.stop(asked)
        running.join(15)
        assert time.monotonic() - began < 10
    assert outing.desk.look(asked).session.status == "cancelled"
    assert outing.count_held() == 0


def test_no_transaction_is_open_while_someone_else_answers(outing: Outing, superuser_url: str) -> None:
    idle: list[int] = []

    def count(asked: Asked) -> Reply:
        with psycopg.connect(superuser_url) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
            ).fetchone()
        idle.append(row[0] if row else -1)
        return as_json({})

    with Loopback(count) as server:
        tool = {"name": "count", "url": server.url}
        run(outing, server.host, call("count", {}), say("Done."), http_tools=[tool])
    assert idle == [0]
