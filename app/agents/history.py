"""From the events of a session to the messages of a model. A run that died continues from its events, so that no tool
runs twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.services.runtime.inputs import RunInputs
from app.services.sessions.event_windows import Event

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

EXTRACTION = (
    "Submit what you find with submitResponse, each value with its source and how sure you are from 0 to 1."
    " Leave a field out rather than guess."
)


@dataclass
class OpenCall:
    """A call without a recorded result."""

    id: str
    name: str
    arguments: Any


@dataclass
class History:
    """The conversation so far. `prompts` counts user messages; `open_calls` are done first when it continues."""

    messages: list[ModelMessage]
    open_calls: list[OpenCall] = field(default_factory=list)
    prompts: int = 0
    answered: bool = False
    last_answer: str = ""
    calls: int = 0


def system_prompt(work: RunInputs) -> str:
    """Instructions, skills, the session's record, the person's memories, and the workspace's knowledge. A record's name
    is data: it is quoted, with line breaks and hidden characters escaped."""
    parts = [work.config.instructions]
    parts += [f"## {skill.name}\n{skill.text}" for skill in work.config.skills]
    if work.record is not None:
        parts.append(
            f"This session is about the {work.record.type_slug} {work.record.name[:200]!r}, whose id is"
            f" {work.record.id}."
        )
    if work.output_type in ("field", "fields"):
        parts.append(EXTRACTION)
    parts += [work.memories.text.strip(), work.prompt.text.strip()]
    return "\n\n".join(part for part in parts if part.strip())


def build_history(work: RunInputs) -> History:
    """Build the messages for a run: the system prompt, earlier messages of the chat, and events so far."""
    from pydantic_ai.messages import ModelRequest, SystemPromptPart

    history = History([ModelRequest(parts=[SystemPromptPart(content=system_prompt(work))])])
    for role, content in work.earlier:
        add_user_message(history, content) if role == "user" else add_agent_message(history, content)
    history.prompts, history.answered = 0, False
    replay_events(history, work.events)
    return history


def replay_events(history: History, events: Sequence[Event]) -> None:
    """Add recorded events in the order in which they were written."""
    from pydantic_ai.messages import ModelResponse, ToolCallPart

    for event in sorted(events, key=lambda event: event.sequence):
        payload = event.payload
        if event.event_type == "user.message":
            add_user_message(history, payload["text"])
        elif event.event_type == "agent.message":
            add_agent_message(history, payload["text"], final=not payload.get("interim"))
        elif event.event_type == "tool.call":
            part = ToolCallPart(payload["name"], _arguments(payload.get("arguments")), tool_call_id=payload["id"])
            _add_part(history, ModelResponse, part)
            history.open_calls.append(OpenCall(payload["id"], payload["name"], payload.get("arguments")))
            history.calls += 1
        elif event.event_type == "tool.result":
            found = next((call for call in history.open_calls if call.id == payload["call_id"]), None)
            if found is not None:
                add_tool_result(history, found, payload.get("output"), bool(payload.get("is_error")))


def add_user_message(history: History, text: str) -> None:
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    _add_part(history, ModelRequest, UserPromptPart(content=text))
    history.prompts, history.answered = history.prompts + 1, False


def add_agent_message(history: History, text: str, *, final: bool = True) -> None:
    from pydantic_ai.messages import ModelResponse, TextPart

    _add_part(history, ModelResponse, TextPart(content=text))
    history.answered, history.last_answer = final, text


def sort_as_stored(value: Any) -> Any:
    """Sort keys as JSONB returns them, so that a retry and a replay show a model the same bytes as the first run."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
        return {name: sort_as_stored(value[name]) for name in names}
    return [sort_as_stored(inner) for inner in value] if isinstance(value, list) else value


def add_tool_result(history: History, call: OpenCall, output: Any, is_error: bool) -> None:
    from pydantic_ai.messages import ModelRequest, ToolReturnPart

    history.open_calls.remove(call)
    outcome: Any = "failed" if is_error else "success"
    part = ToolReturnPart(call.name, output, tool_call_id=call.id, outcome=outcome)
    _add_part(history, ModelRequest, part)


def _add_part(history: History, kind: Any, part: Any) -> None:
    """Add to the last message if it is of this kind, else begin a new one."""
    last: Any = history.messages[-1]
    if isinstance(last, kind):
        last.parts = [*last.parts, part]
    else:
        history.messages.append(kind(parts=[part]))


def _arguments(given: Any) -> Any:
    return given if isinstance(given, str | dict) or given is None else json.dumps(given)
