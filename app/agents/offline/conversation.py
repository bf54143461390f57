"""What the offline model is given: a prompt, the turns of a conversation, tools, and the results of calls."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from app.formats.tool_results import looks_failed
from app.text.values import from_json
from app.text.words import split_name, words

ITEM_KEYS = ("items", "results", "rows", "data")
NAME_KEYS = ("name", "title")
# A fenced section is data, such as knowledge or memories, and never an instruction.
FENCED = re.compile(r"^<<<([a-z-]+) ([0-9a-f]+)>>>$.*?^<<<end \1 \2>>>$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class OfflineTool:
    """A tool as a model sees it. It writes unless it is marked read-only."""

    name: str
    description: str
    schema: dict[str, Any]
    writes: bool = True

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
        """The required arguments, in the order of the schema."""
        found = self.schema.get("required")
        names = [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
        return sorted(names, key=[*self.arguments, *names].index)

    @property
    def verb(self) -> str:
        return next(iter(split_name(self.name)), self.name)


@dataclass(frozen=True)
class Call:
    """A call, and its result once it has one."""

    name: str
    arguments: dict[str, Any]
    result: Any = None
    is_error: bool = False


@dataclass(frozen=True)
class Turn:
    """A user message, the calls made for it, and the answer."""

    text: str
    calls: tuple[Call, ...] = ()
    answer: str = ""


@dataclass(frozen=True)
class Conversation:
    """The prompt and the turns. The last turn is the one to answer."""

    prompt: str
    turns: tuple[Turn, ...]

    @property
    def current(self) -> Turn:
        return self.turns[-1]

    @property
    def instructions(self) -> str:
        """The prompt without its fenced sections."""
        return FENCED.sub("\n", self.prompt)


def read_tools(definitions: Iterable[Any]) -> list[OfflineTool]:
    """Read tools from their definitions, in their order."""
    return [
        OfflineTool(
            name=definition.name,
            description=definition.description or "",
            schema=definition.parameters_json_schema or {},
            writes=(definition.metadata or {}).get("writes") is not False,
        )
        for definition in definitions
    ]


def read_conversation(messages: Sequence[Any], instructions: str | None = None) -> Conversation:
    """Read a conversation from a model's messages and the instructions of the request."""
    parts = [part for message in messages for part in message.parts]
    prompts = [part.content for part in parts if part.part_kind == "system-prompt"]
    return Conversation("\n\n".join([*prompts, instructions or ""]), tuple(_split_turns(parts)) or (Turn(""),))


def _split_turns(parts: Sequence[Any]) -> Iterator[Turn]:
    """A turn begins at each user prompt, also in the middle of a message. Only calls with a result count."""
    results = {part.tool_call_id: part for part in reversed(parts) if part.part_kind == "tool-return"}
    started = [place for place, part in enumerate(parts) if part.part_kind == "user-prompt"]
    for place, end in zip(started, [*started[1:], len(parts)], strict=True):
        turn = parts[place:end]
        calls = [part for part in turn if part.part_kind == "tool-call" and part.tool_call_id in results]
        answer = "\n".join(part.content for part in turn if part.part_kind == "text")
        yield Turn(str(turn[0].content), tuple(_pair(call, results[call.tool_call_id]) for call in calls), answer)


def _pair(call: Any, result: Any) -> Call:
    failed = result.outcome != "success" or looks_failed(result.content)
    return Call(call.tool_name, call.args_as_dict(), result.content, failed)


def records_in(result: Any) -> list[dict[str, Any]] | None:
    """The records in a result; None if it is neither a list of records nor a record with an id."""
    result = from_json(result)
    if isinstance(result, dict):
        for key in sorted(result, key=lambda key: key not in ITEM_KEYS):
            if isinstance(inner := result[key], list) and (not inner or isinstance(inner[0], dict)):
                return [item for item in inner if isinstance(item, dict)]
        return [result] if "id" in result else None
    if isinstance(result, list) and all(isinstance(item, dict) for item in result):
        return result
    return None


def is_id(name: str) -> bool:
    """Whether an argument is an id, by its name."""
    return split_name(name)[-1:] == ["id"]


def record_name(item: dict[str, Any]) -> str | None:
    """The name or title of a record."""
    return next((item[key] for key in NAME_KEYS if isinstance(item.get(key), str) and item[key].strip()), None)


def iter_texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a result with its key, in reading order."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, list):
        for inner in value:
            yield from iter_texts(inner, key)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from iter_texts(inner, str(name))
