"""One line of a file as a session: what chat-completion messages become, and what is wrong with a bad one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.errors import Invalid
from app.formats import session_limits as limits
from app.ingest.messages import ImportedSession, read_line

RUN: dict[str, Any] = {
    "external_id": "desk-1",
    "agent": "help-desk",
    "session_type": "agent",
    "status": "completed",
    "tools": [{"name": "find_order", "annotations": {"readOnlyHint": True}}],
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where is order 7?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "find_order", "arguments": '{"order": 7}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "name": "find_order", "content": '{"error": "unknown order"}'},
        {"role": "assistant", "content": "I cannot find it."},
    ],
}


def read(**changes: Any) -> ImportedSession:
    line = {name: value for name, value in {**RUN, **changes}.items() if value is not ...}
    return read_line(json.dumps(line).encode())


def refusal(**changes: Any) -> str:
    with pytest.raises(Invalid) as wrong:
        read(**changes)
    return wrong.value.detail


def test_messages_become_events() -> None:
    found = read()
    assert {name: found.fields[name] for name in ("agent", "external_id", "session_type", "status")} == {
        "agent": "help-desk", "external_id": "desk-1", "session_type": "agent", "status": "completed",
    }  # fmt: skip
    assert [(event.event_type, event.payload) for event in found.events] == [
        ("user.message", {"text": "Where is order 7?"}),
        ("tool.call", {"id": "c1", "name": "find_order", "arguments": {"order": 7}}),
        ("tool.result", {"call_id": "c1", "name": "find_order", "output": '{"error": "unknown order"}'}),
        ("agent.message", {"text": "I cannot find it."}),
    ]
    assert found.fields["metadata"] == {"tools": RUN["tools"], "system": "Be brief."}


def test_other_forms_of_the_same() -> None:
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {}}],
            "id": "m1",
        },
        {"role": "assistant", "content": "One moment.", "function_call": {"name": "look", "arguments": "not json"}},
        {"role": "function", "name": "look", "content": None, "occurred_at": "2026-03-01T09:30:00Z"},
        {"role": "tool", "tool_call_id": "elsewhere", "content": "done", "is_error": False},
    ]
    tools = [{"type": "function", "function": {"name": "look"}, "annotations": {"readOnlyHint": True}}]
    found = read(messages=messages, tools=tools, cost=0.25, input_tokens=12, tags=["a", "a", "b"])
    assert [(event.event_type, event.payload) for event in found.events] == [
        ("user.message", {"text": "Look:\n[image_url]", "message_id": "m1"}),
        ("agent.message", {"text": "One moment."}),
        ("tool.call", {"id": "call-1", "name": "look", "arguments": "not json"}),
        ("tool.result", {"call_id": "call-1", "name": "look", "output": None}),
        ("tool.result", {"call_id": "elsewhere", "output": "done", "is_error": False}),
    ]
    assert found.events[3].occurred_at is not None
    assert found.fields["metadata"]["tools"] == [{"name": "look", "annotations": {"readOnlyHint": True}}]
    assert (str(found.fields["cost"]), found.fields["input_tokens"], found.fields["tags"]) == ("0.25", 12, ("a", "b"))


def test_a_run_without_an_id_is_known_by_its_line() -> None:
    first, again, other = read(external_id=...), read(external_id=...), read(external_id=..., agent="other")
    assert first.fields["external_id"] == again.fields["external_id"] != other.fields["external_id"]


def test_every_limit_at_its_edge() -> None:
    texts = {"external_id": limits.NAME, "title": limits.TITLE, "error": limits.ERROR, "trace_id": limits.NAME,
             "model": limits.MODEL, "environment": limits.ENVIRONMENT}  # fmt: skip
    for name, most in texts.items():
        for size in (most - 1, most):
            read(**{name: "x" * size})
        assert refusal(**{name: "x" * (most + 1)}) == f"{name}: Send at most {most} characters."
    for name, most in {"input_tokens": limits.TOKENS, "duration_ms": limits.DURATION_MS, "cost": limits.COST}.items():
        for number in (most - 1, most):
            read(**{name: number})
        assert refusal(**{name: most + 1}).startswith(f"{name}: Send a")
        assert refusal(**{name: -1}).startswith(f"{name}: Send a")
    for count in (limits.TAGS - 1, limits.TAGS):
        read(tags=[f"t{n}" for n in range(count)])
    assert refusal(tags=[f"t{n}" for n in range(limits.TAGS + 1)]).startswith("tags:")
    read(tags=["x" * limits.TAG])
    assert refusal(tags=["x" * (limits.TAG + 1)]).startswith("tags.0:")


def test_a_bad_line_says_what_is_wrong() -> None:
    for changes, wanted in (
        ({"agent": "Not A Slug"}, "agent:"),
        ({"agent": ...}, "agent:"),
        ({"session_type": "dance"}, "session_type:"),
        ({"status": "done"}, "status:"),
        ({"title": 7}, "title:"),
        ({"created_at": "yesterday"}, "created_at:"),
        ({"created_at": "2999-01-01T00:00:00Z"}, "created_at:"),
        ({"finished_at": "2026-01-01T00:00:00"}, "finished_at:"),
        ({"metadata": []}, "metadata:"),
        ({"tools": [{"name": ""}]}, "tools:"),
        ({"tools": {}}, "tools:"),
        ({"messages": []}, "messages:"),
        ({"messages": ["hello"]}, "messages.0:"),
        ({"messages": [{"role": "robot"}]}, "messages.0.role:"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages.0.content:"),
        ({"messages": [{"role": "assistant", "tool_calls": {"a": 1}}]}, "messages.0.tool_calls:"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]}, "messages.0.tool_calls.0.function:"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.tool_call_id:"),
        ({"golden": True}, "golden:"),
    ):
        assert refusal(**changes).startswith(wanted), changes
    for raw in (b"", b"[]", b"{", b'{"a": NaN}', b'{"a": "\\u0000"}', b'{"a": "\\ud800"}', b'{"a": 1, "a": 2}', b"\xff",
                b"[" * 70 + b"]" * 70):  # fmt: skip
        with pytest.raises(Invalid):
            read_line(raw)
