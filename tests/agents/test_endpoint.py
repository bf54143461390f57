"""Agents behind an address: what they are asked, what they may answer, and what happens when they do not."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.conftest import Outing
from tests.loopback import Loopback, Reply, as_json

DOCS = Path(__file__).resolve().parents[2] / "docs/agent-system.md"
SECRET = "canary-endpoint-0123456789"
ANSWER = {"event_type": "agent.message", "payload": {"text": "Hello."}}
CALL = {"event_type": "tool.call", "payload": {"id": "a", "name": "look", "arguments": {"key": SECRET}}}
RESULT = {"event_type": "tool.result", "payload": {"call_id": "a", "name": "look", "output": {"found": 3}}}


def lines(*events: Any) -> Reply:
    body = "".join(json.dumps(event) + "\n" for event in events).encode()
    return Reply(body, content_type="application/x-ndjson; charset=utf-8")


def prepare(outing: Outing, server: Loopback, **config: Any) -> None:
    outing.monkeypatch.setenv("UPSHOT_TOOL_AGENT", f"Bearer {SECRET}")
    outing.set(outbound_allow=server.host)
    outing.agent(
        "endpoint",
        endpoint_url=f"{server.url}/run",
        endpoint_headers_env={"Authorization": "UPSHOT_TOOL_AGENT"},
        **{"instructions": "Be kind.", "limits": {"seconds": 3, "tool_calls": 3}} | config,
    )


def test_instructions_and_skills_are_sent_as_they_were_written(outing: Outing) -> None:
    instructions, skill = "  Be  kind.\n\n```\n<<<x>>>\n```", "\tOne ⟨period⟩.\n\n\n## Never two  "
    with Loopback(lambda asked: as_json({"events": [ANSWER]})) as server:
        prepare(outing, server, instructions=instructions, skills=[{"name": "## Comparing  deals", "text": skill}])
        outing.ask("Hello there")
    assert server.asked[0].json["system_prompt"] == f"{instructions}\n\n## ## Comparing  deals\n{skill}"


def test_a_turn_is_asked_for_and_its_events_are_kept(outing: Outing) -> None:
    usage = {"model": "theirs", "input_tokens": 11, "output_tokens": 5, "cost": 0.25}
    with Loopback(lambda asked: as_json({"events": [CALL, RESULT, ANSWER], "usage": usage})) as server:
        prepare(outing, server)
        seen = outing.ask("Hello there", "And again")
    assert seen.session.status == "completed", seen.session.error
    assert seen.types == [
        "context.loaded", "user.message", "tool.call", "tool.result", "agent.message", "user.message", "tool.call",
        "tool.result", "agent.message", "session.completed",
    ]  # fmt: skip
    assert (seen.session.model, seen.session.input_tokens, seen.session.output_tokens) == ("theirs", 22, 10)
    assert float(seen.session.cost or 0) == 0.5
    assert SECRET not in outing.readable_text(seen)
    first, second = (asked.json for asked in server.asked)
    assert server.asked[0].headers["authorization"] == f"Bearer {SECRET}"
    assert server.asked[0].headers["idempotency-key"] == f"{seen.session.id}:1"
    assert first["protocol"] == "upshot.run/1"
    assert first["agent"] == {"slug": "assistant", "name": "Assistant", "version": 1}
    assert first["session"]["id"] == str(seen.session.id)
    assert first["session"]["trace_id"] == seen.session.trace_id
    assert first["turn"] == {"number": 1, "id": None, "text": "Hello there"}
    assert first["system_prompt"].startswith("Be kind.")
    assert first["knowledge"]["row_ids"] == seen.payloads("context.loaded")[0]["row_ids"]
    assert first["knowledge"]["sha256"] == seen.payloads("context.loaded")[0]["sha256"]
    assert [message["text"] for message in second["messages"]] == ["Hello there", "Hello.", "And again"]
    assert [message["role"] for message in second["messages"]] == ["user", "agent", "user"]
    assert second["turn"]["number"] == 2


def test_events_may_come_on_lines(outing: Outing) -> None:
    interim = {"event_type": "agent.message", "payload": {"text": "Wait.", "interim": True}}
    with Loopback(lambda asked: lines(interim, CALL, RESULT, ANSWER, {"usage": {"input_tokens": 3}})) as server:
        prepare(outing, server)
        seen = outing.ask("Hello", metadata={"live": True})
    assert seen.session.status == "completed", seen.session.error
    assert seen.types[2:] == ["agent.message", "tool.call", "tool.result", "agent.message", "session.completed"]
    assert seen.session.input_tokens == 3


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (as_json({"error": "on fire"}, 500), 'answered with status 500: {"error": "on fire"}'),
        (as_json({"key": SECRET}, 403), 'status 403: {"key": "[hidden]"}'),
        (Reply(b"", 302, headers={"Location": "http://127.0.0.1:1/"}), "a redirect, which is not followed"),
        (Reply(b"<html>"), "was not understood: The answer is not JSON"),
        (Reply(b"\xff\xfe"), "was not understood: The answer is not UTF-8"),
        (Reply(b""), "was not understood: The answer is empty"),
        (as_json([ANSWER]), "was not understood: The answer is no JSON object"),
        (as_json({"messages": []}), 'did not answer with {"events": […]}'),
        (as_json({"events": []}), "did not end with an agent.message"),
        (as_json({"events": [ANSWER, CALL]}), "did not end with an agent.message"),
        (as_json({"events": [ANSWER | {"payload": {"text": "…", "interim": True}}]}), "did not end with"),
        (as_json({"events": [ANSWER | {"payload": {"text": " "}}]}), "answered nothing"),
        (as_json({"events": [{"event_type": "made.up"}, ANSWER]}), "events.0.event_type: Use one of"),
        (as_json({"events": [{"event_type": "tool.call", "payload": {}}, ANSWER]}), "events.0.payload.id"),
        (as_json({"events": [ANSWER | {"surprise": 1}]}), "events.0.surprise: Unknown field"),
        (as_json({"events": [ANSWER | {"occurred_at": "now"}]}), "events.0.occurred_at"),
        (as_json({"events": ["text"]}), "events.0: Send a JSON object"),
        (as_json({"events": [{"event_type": "session.completed"}]}), "session.completed is written by Upshot"),
        (as_json({"events": [{"event_type": "user.message", "payload": {"text": "x"}}]}), "written by Upshot"),
        (as_json({"events": [CALL] * 4 + [ANSWER]}), "more than 3 tool calls, which is its limit"),
        (as_json({"events": [RESULT] * 501}), "more than 500 events"),
        (Reply(b'{"events": [' + b"1" * 5_000_000), "answered more than 4 MiB"),
        (Reply(b"[" * 500_000), "was not understood: "),
    ],
)  # fmt: skip
def test_what_does_not_fit_fails_the_session_with_a_sentence(outing: Outing, reply: Reply, sentence: str) -> None:
    with Loopback(lambda asked: reply) as server:
        prepare(outing, server)
        assert sentence in outing.failed("Hello")
    assert outing.count_held() == 0


def test_what_came_before_the_trouble_is_kept(outing: Outing) -> None:
    with Loopback(lambda asked: lines(CALL, RESULT, {"event_type": "made.up"})) as server:
        prepare(outing, server)
        seen = outing.ask("Hello")
    assert seen.session.status == "failed"
    assert seen.types == ["context.loaded", "user.message", "tool.call", "tool.result", "session.failed"]
    assert SECRET not in outing.readable_text(seen)


@pytest.mark.parametrize("content_type", ["application/json", "application/x-ndjson"])
def test_a_body_that_breaks_off_is_a_failure(outing: Outing, content_type: str) -> None:
    body = json.dumps(ANSWER if content_type.endswith("ndjson") else {"events": [ANSWER]}).encode() + b"\n"

    def torn() -> Iterator[bytes]:
        """One whole chunk with a whole answer, and not the chunk that ends the body."""
        yield b"%x\r\n%b\r\n" % (len(body), body)

    def reply(asked: Any) -> Reply:
        return Reply(torn(), content_type=content_type, headers={"Transfer_Encoding": "chunked"})

    with Loopback(reply) as server:
        prepare(outing, server)
        seen = outing.ask("Hello")
    assert seen.session.status == "failed"
    assert "broke off" in str(seen.session.error)
    assert "session.completed" not in seen.types


@pytest.mark.parametrize("mark", [{"truncated": True}, {"finish_reason": "length"}])
def test_an_answer_that_says_it_was_cut_is_marked(outing: Outing, mark: dict[str, Any]) -> None:
    cut = {"event_type": "agent.message", "payload": {"text": "The Halden deal closes on", **mark}}
    with Loopback(lambda asked: as_json({"events": [cut]})) as server:
        prepare(outing, server)
        seen = outing.ask("Hello")
    assert seen.payloads("agent.message")[0]["truncated"] is True
    assert (seen.session.status, seen.session.truncated) == ("completed", True)


def test_silence_ends_at_the_agents_limit(outing: Outing) -> None:
    def slowly() -> Iterator[bytes]:
        yield json.dumps(CALL).encode() + b"\n"
        server.left.wait(30)

    server = Loopback(lambda asked: Reply(slowly(), content_type="application/x-ndjson"))
    with server:
        prepare(outing, server)
        began = time.monotonic()
        seen = outing.ask("Hello")
    assert time.monotonic() - began < 10
    assert seen.session.status == "failed"
    assert "3 seconds" in str(seen.session.error) or "in time" in str(seen.session.error)
    assert "tool.call" in seen.types
    assert len(outing.rows(seen)) == 1


def test_an_address_inside_is_not_reached(outing: Outing) -> None:
    with Loopback(lambda asked: as_json({"events": [ANSWER]})) as server:
        prepare(outing, server)
        outing.set(outbound_allow="")
        assert "UPSHOT_OUTBOUND_ALLOW" in outing.failed("Hello")
        assert server.connections == 0


def test_a_missing_variable_says_what_to_set(outing: Outing) -> None:
    with Loopback(lambda asked: as_json({"events": [ANSWER]})) as server:
        prepare(outing, server)
        outing.monkeypatch.delenv("UPSHOT_TOOL_AGENT")
        assert "UPSHOT_TOOL_AGENT, which is not set" in outing.failed("Hello")
        assert server.connections == 0


def test_the_example_of_the_documentation_runs(outing: Outing) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    agent = subprocess.Popen(
        [sys.executable, "-c", example], env={**os.environ, "PORT": str(port)}, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(port)
        outing.set(outbound_allow=f"127.0.0.1:{port}")
        outing.agent("endpoint", endpoint_url=f"http://127.0.0.1:{port}/")
        seen = outing.ask("Three small words")
    finally:
        agent.kill()
        agent.wait()
    assert seen.session.status == "completed", seen.session.error
    assert seen.payloads("agent.message") == [{"text": "You said 3 words."}]
    assert seen.payloads("tool.result")[0]["output"] == 3
    assert (seen.session.model, seen.session.input_tokens) == ("word-counter", 3)


def wait_for(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("nobody listens")
