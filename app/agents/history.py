"""A session's events as the messages of a model: what was said, called and answered so far.

A run that died is taken up from its events, so that no tool is run a second time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.services.runtime.inputs import RunInputs
from app.services.sessions.events import Event

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

EXTRACTION = (
    "Submit what you find with submitResponse, each value with its source and how sure you are from 0 to 1."
    " Leave a field out rather than guess."
)


@dataclass
class Open:
    """A call whose result was never written."""

    id: str
    name: str
    arguments: Any


@dataclass
class Talk:
    """The conversation so far. `unanswered` calls come first when it goes on; `said` counts user messages."""

    messages: list[ModelMessage]
    unanswered: list[Open] = field(default_factory=list)
    said: int = 0
    answered: bool = False
    last_answer: str = ""
    calls: int = 0


def system_prompt(work: RunInputs) -> str:
    """Instructions, skills, the record at hand, the person's memories, and the workspace's knowledge.

    What an admin wrote is in it as they wrote it. A record's name is data: it is quoted, with its line breaks and
    hidden characters spelled out.
    """
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


def talk_of(work: RunInputs) -> Talk:
    """What the model gets to read first."""
    from pydantic_ai.messages import ModelRequest, SystemPromptPart

    talk = Talk([ModelRequest(parts=[SystemPromptPart(content=system_prompt(work))])])
    for role, content in work.earlier:
        say(talk, content) if role == "user" else answer(talk, content)
    talk.said, talk.answered = 0, False
    replay(talk, work.events)
    return talk


def replay(talk: Talk, events: Sequence[Event]) -> None:
    """Go through the events in the order in which they were written."""
    from pydantic_ai.messages import ToolCallPart

    for event in sorted(events, key=lambda event: event.sequence):
        payload = event.payload
        if event.event_type == "user.message":
            say(talk, payload["text"])
        elif event.event_type == "agent.message":
            answer(talk, payload["text"], final=not payload.get("interim"))
        elif event.event_type == "tool.call":
            part = ToolCallPart(payload["name"], _arguments(payload.get("arguments")), tool_call_id=payload["id"])
            _respond(talk, part)
            talk.unanswered.append(Open(payload["id"], payload["name"], payload.get("arguments")))
            talk.calls += 1
        elif event.event_type == "tool.result":
            found = next((call for call in talk.unanswered if call.id == payload["call_id"]), None)
            if found is not None:
                returned(talk, found, payload.get("output"), bool(payload.get("is_error")))


def say(talk: Talk, text: str) -> None:
    """A person says something."""
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    part = UserPromptPart(content=text)
    last = talk.messages[-1]
    if isinstance(last, ModelRequest):
        last.parts = [*last.parts, part]
    else:
        talk.messages.append(ModelRequest(parts=[part]))
    talk.said, talk.answered = talk.said + 1, False


def answer(talk: Talk, text: str, *, final: bool = True) -> None:
    """The agent says something."""
    from pydantic_ai.messages import TextPart

    _respond(talk, TextPart(content=text))
    talk.answered, talk.last_answer = final, text


def as_stored(value: Any) -> Any:
    """The same value with its keys in the order in which the database gives them back, so that a second attempt and a
    replay show a model what the first run showed it, to the byte."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
        return {name: as_stored(value[name]) for name in names}
    return [as_stored(inner) for inner in value] if isinstance(value, list) else value


def returned(talk: Talk, call: Open, output: Any, is_error: bool) -> None:
    """A tool answers a call."""
    from pydantic_ai.messages import ModelRequest, ToolReturnPart

    talk.unanswered.remove(call)
    outcome: Any = "failed" if is_error else "success"
    part = ToolReturnPart(call.name, output, tool_call_id=call.id, outcome=outcome)
    last = talk.messages[-1]
    if isinstance(last, ModelRequest):
        last.parts = [*last.parts, part]
    else:
        talk.messages.append(ModelRequest(parts=[part]))


def _respond(talk: Talk, part: Any) -> None:
    from pydantic_ai.messages import ModelResponse

    last = talk.messages[-1]
    if isinstance(last, ModelResponse):
        last.parts = [*last.parts, part]
    else:
        talk.messages.append(ModelResponse(parts=[part]))


def _arguments(given: Any) -> Any:
    return given if isinstance(given, str | dict) or given is None else json.dumps(given)
