"""A recorded run as one line of a file: chat-completion messages in, a session with events out."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.errors import Invalid
from app.formats.messages import field_errors
from app.formats.strict_json import parse
from app.ingest.fields import PastMoment, SessionFields, Status


class Function(BaseModel):
    model_config = ConfigDict(strict=True)

    name: str = Field(min_length=1)
    arguments: Any = None


class Call(BaseModel):
    id: Any = None
    function: Function


class Message(BaseModel):
    """A message as chat completions know it. Other keys are not read."""

    model_config = ConfigDict(strict=True)

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    id: Any = None
    name: Any = None
    content: Any = None
    refusal: Any = None
    tool_calls: list[Call] | None = None
    function_call: Function | None = None
    tool_call_id: Any = None
    is_error: Any = None
    occurred_at: PastMoment | None = None


class Line(SessionFields):
    status: Status = "completed"
    tools: list[dict[str, Any]] = []
    messages: list[Message] = Field(min_length=1)


class ImportedEvent(NamedTuple):
    event_type: str
    payload: dict[str, Any]
    occurred_at: datetime | None = None


@dataclass(frozen=True)
class ImportedSession:
    """A run under the names that sessions use."""

    fields: dict[str, Any]
    events: list[ImportedEvent]


def read_line(raw: bytes) -> ImportedSession:
    """The session of one line, or Invalid with one sentence that names the field."""
    given = parse(raw, "line")
    if not isinstance(given, dict):
        raise Invalid("The line is not a JSON object.")
    try:
        line = Line.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as wrong:
        raise Invalid.of(field_errors(wrong)) from None
    events, system = _events(line.messages)
    apart = {"tools": [_tool(tool) for tool in line.tools], "system": system}
    metadata = line.metadata | {name: value for name, value in apart.items() if value}
    fields = {"external_id": f"sha256:{hashlib.sha256(raw.strip()).hexdigest()}", **line.values("tools", "messages")}
    return ImportedSession(fields | {"metadata": metadata}, events)


def _tool(given: dict[str, Any]) -> dict[str, Any]:
    """A tool as MCP lists it; the chat-completion wrapping `{"type": "function", "function": {…}}` is taken off."""
    inner = given.get("function")
    tool = {**inner, **{k: v for k, v in given.items() if k == "annotations"}} if isinstance(inner, dict) else given
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        raise Invalid.of({"tools": "Every tool needs a name."})
    return tool


def _events(messages: Sequence[Message]) -> tuple[list[ImportedEvent], str]:
    """The events of the messages, and what the system messages say."""
    events: list[ImportedEvent] = []
    system: list[str] = []
    calls = _Calls()
    for place, message in enumerate(messages):
        name = f"messages.{place}"
        if message.role in ("system", "developer"):
            system.append(_content(message.content, name))
            continue
        made = _ROLES[message.role](message, name, calls)
        events += [ImportedEvent(kind, payload, message.occurred_at) for kind, payload in made]
    return events, "\n\n".join(text for text in system if text)


Made = Iterator[tuple[str, dict[str, Any]]]


class _Calls:
    """The calls so far: a result without an id belongs to the oldest call of its name that still waits."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.waiting: dict[str, None] = {}

    def add(self, given: Any, name: str) -> str:
        call_id = given if isinstance(given, str) and given else f"call-{len(self.names) + 1}"
        self.names[call_id] = name
        self.waiting[call_id] = None
        return call_id

    def answered(self, given: Any, tool: str | None, place: str) -> str:
        fits = (call_id for call_id in self.waiting if tool is None or self.names[call_id] == tool)
        call_id = given if isinstance(given, str) and given else next(fits, None)
        if call_id is None:
            raise Invalid.of({f"{place}.tool_call_id": "Say which call this answers."})
        self.waiting.pop(call_id, None)
        return str(call_id)


def _user(message: Message, name: str, calls: _Calls) -> Made:
    yield "user.message", {"text": _content(message.content, name), **_own_id(message)}


def _assistant(message: Message, name: str, calls: _Calls) -> Made:
    """What was said, and the calls, also in the older form with one `function_call`."""
    text = _content(message.content, name) or _content(message.refusal, name)
    requested = [(call.id, call.function) for call in message.tool_calls or ()]
    if message.function_call:
        requested.append((None, message.function_call))
    if text or not requested:
        yield "agent.message", {"text": text, **_own_id(message)}
    for given, function in requested:
        call_id = calls.add(given, function.name)
        yield "tool.call", {"id": call_id, "name": function.name, "arguments": _arguments(function.arguments)}


def _tool_result(message: Message, name: str, calls: _Calls) -> Made:
    tool = message.name if isinstance(message.name, str) else None
    call_id = calls.answered(message.tool_call_id, tool, name)
    content = message.content
    output = _content(content, name) if isinstance(content, list) else content
    payload = {"call_id": call_id, "name": tool or calls.names.get(call_id), "output": output}
    if isinstance(message.is_error, bool):
        payload["is_error"] = message.is_error
    yield "tool.result", {key: value for key, value in payload.items() if key == "output" or value is not None}


_ROLES: dict[str, Callable[[Message, str, _Calls], Made]] = {
    "user": _user, "assistant": _assistant, "tool": _tool_result, "function": _tool_result,
}  # fmt: skip


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


def _own_id(message: Message) -> dict[str, str]:
    return {"message_id": message.id} if isinstance(message.id, str) and message.id else {}


def size_of(value: Any) -> int:
    """How many bytes a value takes as JSON."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
