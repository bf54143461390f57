"""What the offline model gets to read: a prompt, the turns of a conversation, and the tools on offer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from app.agents.offline.values import Schema
from app.formats.tool_results import looks_failed
from app.text.words import split_name, words

# Whatever is fenced is a section with a reader of its own, no instruction.
FENCED = re.compile(r"^<<<([a-z-]+) ([0-9a-f]+)>>>$.*?^<<<end \1 \2>>>$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class OfferedTool:
    """A tool as a model sees it. Without a mark that it only reads, it writes."""

    name: str
    description: str
    schema: Schema
    writes: bool = True
    returns: Any = None

    @cached_property
    def name_words(self) -> frozenset[str]:
        return frozenset(words(self.name))

    @cached_property
    def known_words(self) -> frozenset[str]:
        return self.name_words | frozenset(words(self.description))

    @cached_property
    def arguments(self) -> dict[str, Any]:
        found = self.schema.get("properties")
        return found if isinstance(found, dict) else {}

    @cached_property
    def required(self) -> list[str]:
        found = self.schema.get("required")
        named = [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
        return [name for name in self.arguments if name in named] + [n for n in named if n not in self.arguments]

    @property
    def spoken(self) -> str:
        return " ".join(split_name(self.name)) or self.name


@dataclass(frozen=True)
class Call:
    """A call, and its result once it was made."""

    name: str
    arguments: dict[str, Any]
    result: Any = None
    is_error: bool = False

    def same_as(self, other: Call) -> bool:
        return self.name == other.name and self.arguments == other.arguments


@dataclass(frozen=True)
class Turn:
    """What a person said, the calls that were made to answer it, and the answer."""

    text: str
    calls: tuple[Call, ...] = ()
    answer: str = ""

    @property
    def results(self) -> list[Any]:
        """What its calls brought, newest first."""
        return [call.result for call in reversed(self.calls) if not call.is_error]


@dataclass(frozen=True)
class Talk:
    """The prompt and the turns, the one to answer last."""

    prompt: str
    turns: tuple[Turn, ...] = field(default_factory=lambda: (Turn(""),))

    @property
    def now(self) -> Turn:
        return self.turns[-1] if self.turns else Turn("")

    @property
    def instructions(self) -> str:
        """The prompt without its fenced sections."""
        return FENCED.sub("\n", self.prompt)


def offered(definitions: Iterable[Any]) -> list[OfferedTool]:
    """Tools from their definitions, in the order in which they are offered."""
    return [
        OfferedTool(
            name=definition.name,
            description=definition.description or "",
            schema=definition.parameters_json_schema or {},
            writes=not _only_reads(definition.metadata),
            returns=getattr(definition, "return_schema", None),
        )
        for definition in definitions
    ]


def read_talk(messages: Sequence[Any], instructions: str | None = None) -> Talk:
    """A conversation from a model's messages. Instructions that come with the request win over those in messages."""
    prompts = [part.content for message in messages for part in message.parts if part.part_kind == "system-prompt"]
    if instructions is None:
        instructions = next((found for m in reversed(messages) if (found := getattr(m, "instructions", None))), "")
    return Talk("\n\n".join([*prompts, instructions]), tuple(_turns(messages)) or (Turn(""),))


def _turns(messages: Sequence[Any]) -> Iterator[Turn]:
    """A turn begins where somebody says something, also in the middle of a message."""
    parts = [part for message in messages for part in message.parts]
    started = [place for place, part in enumerate(parts) if part.part_kind == "user-prompt"]
    for place, end in zip(started, [*started[1:], len(parts)], strict=True):
        told = "\n".join(part.content for part in parts[place:end] if part.part_kind == "text")
        yield Turn(_text(parts[place].content), tuple(_calls(parts[place:end], parts[place:])), told)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part if isinstance(part, str) else str(getattr(part, "content", "")) for part in content if part)


def _calls(made: Sequence[Any], later: Sequence[Any]) -> Iterator[Call]:
    """The calls that were answered, each with the first answer to it."""
    answers: dict[str, Any] = {}
    for part in later:
        if part.part_kind in ("tool-return", "retry-prompt"):
            answers.setdefault(part.tool_call_id, part)
    for part in made:
        if part.part_kind == "tool-call" and (answer := answers.get(part.tool_call_id)) is not None:
            yield Call(part.tool_name, part.args_as_dict(), answer.content, _is_failed(answer))


def _is_failed(answer: Any) -> bool:
    if answer.part_kind == "retry-prompt" or answer.outcome != "success":
        return True
    return looks_failed(answer.content)


def _only_reads(metadata: Any) -> bool:
    if not isinstance(metadata, dict):
        return False
    notes = metadata.get("annotations")
    marks = (metadata, notes if isinstance(notes, dict) else {})
    return metadata.get("writes") is False or any(mark.get("readOnlyHint") is True for mark in marks)
