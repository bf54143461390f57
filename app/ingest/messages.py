"""A recorded run as one line of a file: chat-completion messages in, a session with events out."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from app.errors import Invalid
from app.formats import session_limits as limits
from app.formats.rfc3339 import read_past_moment
from app.formats.strict_json import parse

TEXTS = {
    "external_id": limits.NAME,
    "title": limits.TITLE,
    "error": limits.ERROR,
    "trace_id": limits.NAME,
    "model": limits.MODEL,
    "environment": limits.ENVIRONMENT,
}
NUMBERS = {
    "input_tokens": limits.TOKENS,
    "output_tokens": limits.TOKENS,
    "duration_ms": limits.DURATION_MS,
}
MOMENTS = ("created_at", "started_at", "finished_at")
TYPES = ("chat", "agent", "response", "tool", "mixed")
STATUSES = ("pending", "running", "completed", "failed", "cancelled")
KNOWN = {*TEXTS, *NUMBERS, *MOMENTS, "agent", "session_type", "status", "cost", "tags", "metadata", "tools", "messages"}


@dataclass(frozen=True)
class ImportedEvent:
    event_type: str
    payload: dict[str, Any]
    occurred_at: datetime | None = None


@dataclass(frozen=True)
class ImportedSession:
    """A run under the names that sessions use. `fields` holds only what the line said."""

    agent: str
    external_id: str
    session_type: str
    status: str
    fields: dict[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    events: tuple[ImportedEvent, ...] = ()


def read_line(raw: bytes) -> ImportedSession:
    """The session of one line, or Invalid with one sentence that names the field."""
    line = parse(raw, "line")
    if not isinstance(line, dict):
        raise Invalid("The line is not a JSON object.")
    unknown = sorted(line.keys() - KNOWN)
    if unknown:
        raise Invalid(f"{unknown[0][:60]}: This name is not known here; leave it out.")
    line = {name: value for name, value in line.items() if value is not None}
    texts = {name: _text(line, name, most) for name, most in TEXTS.items() if name in line}
    numbers: dict[str, Any] = {name: _number(line, name, most) for name, most in NUMBERS.items() if name in line}
    moments = {name: _moment(line[name], name) for name in MOMENTS if name in line}
    if "cost" in line:
        numbers["cost"] = _cost(line["cost"])
    external_id = texts.pop("external_id", "") or f"sha256:{hashlib.sha256(raw.strip()).hexdigest()}"
    events, system = _events(line.get("messages"))
    return ImportedSession(
        agent=_agent(line),
        external_id=external_id,
        session_type=_one_of(line, "session_type", TYPES, "agent"),
        status=_one_of(line, "status", STATUSES, "completed"),
        fields={**texts, **numbers, **moments},
        tags=_tags(line.get("tags", [])),
        metadata=_metadata(line, system),
        events=tuple(events),
    )


def _text(line: Mapping[str, Any], name: str, most: int) -> str:
    value = line[name]
    if not isinstance(value, str):
        raise Invalid.of({name: "Send text."})
    if not 1 <= len(value) <= most:
        raise Invalid.of({name: f"Send 1 to {most:,} characters."})
    return value


def _number(line: Mapping[str, Any], name: str, most: int) -> int:
    value = line[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise Invalid.of({name: f"Send a whole number from 0 to {most:,}."})
    return value


def _cost(value: Any) -> Decimal:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= limits.COST:
        raise Invalid.of({"cost": f"Send a number from 0 to {limits.COST:,}."})
    return Decimal(str(value))


def _moment(value: Any, name: str) -> datetime:
    try:
        return read_past_moment(value)
    except ValueError as wrong:
        raise Invalid.of({name: str(wrong)}) from None


def _agent(line: Mapping[str, Any]) -> str:
    slug = line.get("agent")
    if not isinstance(slug, str) or not limits.AGENT_SLUG.fullmatch(slug):
        raise Invalid.of({"agent": limits.SLUG_FORM})
    return slug


def _one_of(line: Mapping[str, Any], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = line.get(name, default)
    if value not in allowed:
        raise Invalid.of({name: f"Use one of {', '.join(allowed)}."})
    return str(value)


def _tags(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(tag, str) and 1 <= len(tag) <= limits.TAG for tag in given):
        raise Invalid.of({"tags": f"Send a list of texts of 1 to {limits.TAG} characters."})
    if len(given) > limits.TAGS:
        raise Invalid.of({"tags": f"Send at most {limits.TAGS}."})
    return tuple(dict.fromkeys(given))


def _metadata(line: Mapping[str, Any], system: str) -> dict[str, Any]:
    """What the line says, with the tools and the system messages of the run."""
    metadata = line.get("metadata", {})
    if not isinstance(metadata, dict):
        raise Invalid.of({"metadata": "Send a JSON object."})
    tools = line.get("tools", [])
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise Invalid.of({"tools": "Send a list of objects with a name each."})
    named = [_tool(tool) for tool in tools]
    return {**metadata, **({"tools": named} if named else {}), **({"system": system} if system else {})}


def _tool(given: dict[str, Any]) -> dict[str, Any]:
    """A tool as MCP lists it; the chat-completion wrapping `{"type": "function", "function": {…}}` is taken off."""
    inner = given.get("function")
    tool = {**inner, **{k: v for k, v in given.items() if k == "annotations"}} if isinstance(inner, dict) else given
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        raise Invalid.of({"tools": "Every tool needs a name."})
    return tool


def _events(messages: Any) -> tuple[list[ImportedEvent], str]:
    """The events of the messages, and what the system messages say."""
    if not isinstance(messages, list) or not messages:
        raise Invalid.of({"messages": "Send a list with at least one message."})
    events: list[ImportedEvent] = []
    system: list[str] = []
    calls = _Calls()
    for place, message in enumerate(messages):
        name = f"messages.{place}"
        if not isinstance(message, dict):
            raise Invalid.of({name: "Send a JSON object."})
        role = message.get("role")
        if role in ("system", "developer"):
            system.append(_content(message.get("content"), name))
            continue
        read = _ROLES.get(role) if isinstance(role, str) else None
        if read is None:
            raise Invalid.of({f"{name}.role": "Use system, user, assistant or tool."})
        at = _moment(message["occurred_at"], f"{name}.occurred_at") if message.get("occurred_at") else None
        events += [ImportedEvent(kind, payload, at) for kind, payload in read(message, name, calls)]
    return events, "\n\n".join(text for text in system if text)


Made = Iterator[tuple[str, dict[str, Any]]]


class _Calls:
    """The calls so far: a result without an id belongs to the oldest call of its name that still waits."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.waiting: dict[str, None] = {}

    def add(self, call_id: str, name: str) -> None:
        self.names[call_id] = name
        self.waiting[call_id] = None

    def answered(self, given: Any, tool: Any, place: str) -> str:
        if isinstance(given, str) and given:
            self.waiting.pop(given, None)
            return given
        for call_id in self.waiting:
            if tool is None or self.names[call_id] == tool:
                del self.waiting[call_id]
                return call_id
        raise Invalid.of({f"{place}.tool_call_id": "Say which call this answers."})


def _user(message: dict[str, Any], name: str, calls: _Calls) -> Made:
    yield "user.message", {"text": _content(message.get("content"), name), **_own_id(message)}


def _assistant(message: dict[str, Any], name: str, calls: _Calls) -> Made:
    text = _content(message.get("content"), name) or _content(message.get("refusal"), name)
    requested = _requested(message, name)
    if text or not requested:
        yield "agent.message", {"text": text, **_own_id(message)}
    for place, call in enumerate(requested):
        where = f"{name}.tool_calls.{place}"
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            raise Invalid.of({f"{where}.function": "Send an object with a name and arguments."})
        call_id = call["id"] if isinstance(call.get("id"), str) and call["id"] else f"call-{len(calls.names) + 1}"
        calls.add(call_id, function["name"])
        arguments = _arguments(function.get("arguments"))
        yield "tool.call", {"id": call_id, "name": function["name"], "arguments": arguments}


def _requested(message: dict[str, Any], name: str) -> list[Any]:
    """The calls of a message, also in the older form with one `function_call`."""
    requested = message.get("tool_calls") or []
    if not isinstance(requested, list):
        raise Invalid.of({f"{name}.tool_calls": "Send a list."})
    old = message.get("function_call")
    return [*requested, {"function": old}] if isinstance(old, dict) else requested


def _tool_result(message: dict[str, Any], name: str, calls: _Calls) -> Made:
    tool = message.get("name") if isinstance(message.get("name"), str) else None
    call_id = calls.answered(message.get("tool_call_id"), tool, name)
    content = message.get("content")
    output = _content(content, name) if isinstance(content, list) else content
    payload = {"call_id": call_id, "name": tool or calls.names.get(call_id), "output": output}
    if isinstance(message.get("is_error"), bool):
        payload["is_error"] = message["is_error"]
    yield "tool.result", {key: value for key, value in payload.items() if key == "output" or value is not None}


_ROLES: dict[str, Callable[[dict[str, Any], str, _Calls], Made]] = {
    "user": _user,
    "assistant": _assistant,
    "tool": _tool_result,
    "function": _tool_result,
}


def _content(content: Any, name: str) -> str:
    """The text, or the texts of a list of parts; other parts are replaced by their name."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        texts = (part.get("text") if isinstance(part.get("text"), str) else f"[{part.get('type')}]" for part in content)
        return "\n".join(str(text) for text in texts)
    raise Invalid.of({f"{name}.content": "Send text or a list of parts."})


def _arguments(given: Any) -> Any:
    """Arguments come as JSON in a text. Text that is none is kept as it is."""
    if not isinstance(given, str):
        return {} if given is None else given
    if not given.strip():
        return {}
    try:
        return parse(given.encode("utf-8", "surrogatepass"))
    except Invalid:
        return given


def _own_id(message: dict[str, Any]) -> dict[str, str]:
    given = message.get("id")
    return {"message_id": given} if isinstance(given, str) and given else {}


def size_of(value: Any) -> int:
    """How many bytes a value takes as JSON."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
