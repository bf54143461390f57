"""A model server on loopback: an agent that works with nothing else, and every way in which a model fails it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from app.logs import FORMAT, RedactingFormatter
from app.services.entities import store as entity_store
from tests.agents.conftest import Outing
from tests.loopback import Asked, Loopback, Reply
from tests.loopback_model import LoopbackModel, call, say

KEY = "sk-canary-0123456789"
LIMITS = {"requests": 4, "tool_calls": 6, "seconds": 30, "output_chars": 2000}


def prepare(outing: Outing, model: LoopbackModel, **config: Any) -> None:
    outing.monkeypatch.setenv("OPENAI_API_KEY", KEY)
    outing.set(openai_base_url=model.base_url)
    outing.agent(model="openai:loopback", **{"tool_groups": ["entities-read"], "limits": LIMITS} | config)


@pytest.mark.parametrize("live", [False, True], ids=["plain", "streamed"])
def test_an_agent_runs_with_only_a_model_on_loopback(outing: Outing, live: bool) -> None:
    script = call("searchEntities", {"query": "Halden"}, "Let me look."), say("There is no Halden deal yet.")
    with LoopbackModel(*script) as model:
        prepare(outing, model, instructions="Be brief.")
        seen = outing.ask("Is there a Halden deal?", metadata={"live": live})
    assert seen.session.status == "completed", seen.session.error
    assert seen.types == [
        "context.loaded", "user.message", "agent.message", "tool.call", "tool.result", "agent.message",
        "session.completed",
    ]  # fmt: skip
    (called,), (result,) = seen.payloads("tool.call"), seen.payloads("tool.result")
    assert (called["name"], called["arguments"]) == ("searchEntities", {"query": "Halden"})
    assert result["call_id"] == called["id"]
    assert result["output"] == {"items": []}
    assert not result["is_error"]
    assert [(payload["text"], payload.get("interim", False)) for payload in seen.payloads("agent.message")] == [
        ("Let me look.", True),
        ("There is no Halden deal yet.", False),
    ]
    assert (seen.session.model, seen.session.input_tokens, seen.session.output_tokens) == ("openai:loopback", 80, 16)
    assert seen.payloads("session.completed") == [{"input_tokens": 80, "output_tokens": 16}]
    first, second = model.asked
    assert first.json["messages"][0]["content"].startswith("Be brief.")
    assert {tool["function"]["name"] for tool in first.json["tools"]} >= {"searchEntities", "getEntity"}
    assert second.json["messages"][-1]["role"] == "tool"
    assert bool(first.json.get("stream")) is live
    assert outing.rows(seen) == []


@pytest.mark.parametrize("live", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("status 500", 'answered with status 500: {"message": "the server has a cold"}'),
        ("status 401", 'answered with status 401: {"message": "no such key: Bearer [hidden]"}'),
        ("not json", "could not be asked: "),
        ("hang", "didn’t answer within its limit of 3 seconds"),
        ("endless calls", "asked its model 4 times without an answer. Its limit is 4"),
        ("empty", "answered nothing"),
    ],
)
def test_a_model_in_trouble_fails_the_session_once(outing: Outing, mode: str, sentence: str, live: bool) -> None:
    with LoopbackModel(mode=mode) as model:
        prepare(outing, model, limits=LIMITS | {"seconds": 3 if mode == "hang" else 30})
        began = time.monotonic()
        seen = outing.ask("Hello", metadata={"live": live})
        assert time.monotonic() - began < 30
    assert seen.session.status == "failed"
    assert sentence in str(seen.session.error)
    assert len(seen.payloads("session.failed")) == 1
    assert outing.rows(seen) == [seen.session.error]
    assert outing.count_held() == 0
    assert KEY not in outing.readable_text(seen)


def test_ten_megabytes_are_refused_in_one_piece_and_cut_in_a_stream(outing: Outing) -> None:
    with LoopbackModel(mode="ten megabytes") as model:
        prepare(outing, model, limits=LIMITS)
        assert "It answered more than 4 MiB" in outing.failed("Hello")
        seen = outing.ask("Hello", metadata={"live": True})
    assert seen.session.status == "completed", seen.session.error
    (payload,) = seen.payloads("agent.message")
    assert payload["truncated"] is True
    assert len(payload["text"]) <= 2002


def test_a_slow_model_is_waited_for(outing: Outing) -> None:
    with LoopbackModel(say("At last."), mode="slow", seconds=1.5) as model:
        prepare(outing, model)
        assert outing.ask("Hello").payloads("agent.message") == [{"text": "At last."}]


def test_a_server_that_is_down(outing: Outing) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outing.set(openai_base_url=f"http://127.0.0.1:{port}/v1")
    outing.agent(model="openai:loopback")
    assert "The model loopback could not be asked: Connection error" in outing.failed("Hello")


def test_a_missing_key_says_what_to_set(outing: Outing) -> None:
    outing.monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    outing.monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    outing.agent(model="openai:gpt-5")
    assert outing.failed("Hello") == (
        "The model openai:gpt-5 needs a key. Set OPENAI_API_KEY where Upshot runs and start it again."
    )
    outing.agent(slug="other", model="anthropic:claude-sonnet-4-5")
    assert "Set ANTHROPIC_API_KEY where Upshot runs" in outing.failed("Hello", agent="other")
    outing.agent(slug="third", model="no-such-model")
    assert "There is no model no-such-model" in outing.failed("Hello", agent="third")


def test_wrong_calls_are_answered_and_the_session_continues(outing: Outing) -> None:
    script = (
        call("searchEntities", "{not json"),
        call("searchEntities", {"nonsense": 1}),
        call("noSuchTool", {}),
        call("getEntity", {"entityId": KEY}),
        say(f"I give up, and your key is {KEY}."),
    )
    with LoopbackModel(*script) as model:
        prepare(outing, model, limits=LIMITS | {"requests": 8})
        seen = outing.ask(f"Hello {KEY}")
    assert seen.session.status == "completed", seen.session.error
    results = seen.payloads("tool.result")
    assert [result["is_error"] for result in results] == [True] * 4
    assert "as one JSON object" in results[0]["output"] or "not JSON" in results[0]["output"]
    assert "does not take `nonsense`" in results[1]["output"] or "needs `query`" in results[1]["output"]
    assert "There is no tool 'noSuchTool'" in results[2]["output"]
    assert seen.payloads("agent.message")[-1]["text"] == "I give up, and your key is [hidden]."
    assert KEY not in outing.readable_text(seen)


def test_a_tool_that_breaks_is_an_answer(outing: Outing) -> None:
    def broken(*given: Any, **named: Any) -> Any:
        raise RuntimeError(f"boom with {KEY}")

    outing.monkeypatch.setattr(entity_store, "search_entities", broken)
    with LoopbackModel(call("searchEntities", {"query": "x"}), say("It broke.")) as model:
        prepare(outing, model)
        seen = outing.ask("Hello")
    assert seen.session.status == "completed", seen.session.error
    (result,) = seen.payloads("tool.result")
    assert result["is_error"]
    assert result["output"] == "searchEntities broke on our side and changed nothing."
    (told,) = [record for record in outing.log.records if "the tool searchEntities broke" in record.getMessage()]
    written = RedactingFormatter(FORMAT).format(told)
    assert "boom with [hidden]" in written
    assert KEY not in written


def test_too_many_calls_are_a_limit(outing: Outing) -> None:
    with LoopbackModel(mode="endless calls") as model:
        prepare(outing, model, limits=LIMITS | {"requests": 100, "tool_calls": 3})
        assert outing.failed("Hello") == "The agent reached its limit of 3 tool calls."


@pytest.mark.parametrize("mode", ["breaks off", "torn"])
def test_a_stream_that_breaks_off_twice_is_a_failure(outing: Outing, mode: str) -> None:
    with LoopbackModel(say("The Halden deal closes on Friday, and"), mode=mode) as model:
        prepare(outing, model)
        seen = outing.ask("When does it close?", metadata={"live": True})
    assert seen.session.status == "failed"
    assert "The model loopback broke off in the middle of its answer" in str(seen.session.error)
    assert seen.payloads("agent.message") == []
    assert len(model.asked) == 2, "it is asked once more"
    assert outing.rows(seen) == [seen.session.error]


def test_a_stream_that_breaks_off_once_is_asked_for_again(outing: Outing) -> None:
    with LoopbackModel(say("It closes on Friday.")) as model:
        prepare(outing, model)
        model.breaks = 1
        seen = outing.ask("When does it close?", metadata={"live": True})
    assert seen.session.status == "completed", seen.session.error
    assert seen.payloads("agent.message") == [{"text": "It closes on Friday."}]
    assert seen.session.truncated is False


@pytest.mark.parametrize("live", [False, True], ids=["plain", "streamed"])
def test_an_answer_that_was_cut_by_length_is_marked(outing: Outing, live: bool) -> None:
    with LoopbackModel(say("The Halden deal closes on"), mode="cut by length") as model:
        prepare(outing, model)
        seen = outing.ask("When does it close?", metadata={"live": live})
    assert seen.session.status == "completed", seen.session.error
    assert seen.payloads("agent.message") == [{"text": "The Halden deal closes on", "truncated": True}]
    assert seen.session.truncated is True


def anthropic_stream(stop_reason: str | None) -> Iterator[bytes]:
    """The events of an Anthropic stream; without a reason it ends in the middle."""
    usage = {"input_tokens": 4, "output_tokens": 1}
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    delta = {"type": "text_delta", "text": "The Halden deal closes on"}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": delta},
    ]
    if stop_reason:
        ending = {"stop_reason": stop_reason, "stop_sequence": None}
        events += [
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ]
    for event in events:
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def test_streams_of_anthropic_are_read_the_same_way(outing: Outing) -> None:
    reasons: list[str | None] = []

    def answer(asked: Asked) -> Reply:
        return Reply(anthropic_stream(reasons[-1]), content_type="text/event-stream")

    with Loopback(answer) as server:
        outing.monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        outing.monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        outing.agent(model="anthropic:claude-sonnet-4-5", limits=LIMITS)
        found = {}
        for reason in (None, "max_tokens", "end_turn"):
            reasons.append(reason)
            seen = outing.ask("When does it close?", metadata={"live": True})
            found[reason] = (seen.session.status, seen.session.truncated, len(seen.payloads("agent.message")))
            assert reason or "broke off in the middle of its answer" in str(seen.session.error)
    assert found == {
        None: ("failed", False, 0),
        "max_tokens": ("completed", True, 1),
        "end_turn": ("completed", False, 1),
    }
