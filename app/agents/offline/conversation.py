"""What the offline model is given: a prompt, the turns of a conversation, tools, and the results of calls."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from app.agents.offline.schema import MAX_DEPTH, Schema
from app.formats.tool_results import looks_failed
from app.text.words import split_name, words

MAX_SCALARS = 2000
MAX_JSON = 1_000_000
ITEM_KEYS = ("items", "results", "rows", "data")
NAME_KEYS = ("name", "title")
# A fenced section is data, such as knowledge or memories, and never an instruction.
FENCED = re.compile(r"^<<<([a-z-]+) ([0-9a-f]+)>>>$.*?^<<<end \1 \2>>>$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class OfflineTool:
    """A tool as a model sees it. It writes unless it is marked read-only."""

    name: str
    description: str
    schema: Schema
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
        found = self.schema.get("required")
        named = [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
        return [name for name in self.arguments if name in named] + [n for n in named if n not in self.arguments]

    @property
    def label(self) -> str:
        return " ".join(split_name(self.name)) or self.name


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

    @property
    def results(self) -> list[Any]:
        """The results of its successful calls, newest first."""
        return [call.result for call in reversed(self.calls) if not call.is_error]


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
    prompts = [part.content for message in messages for part in message.parts if part.part_kind == "system-prompt"]
    return Conversation("\n\n".join([*prompts, instructions or ""]), tuple(_split_turns(messages)) or (Turn(""),))


def _split_turns(messages: Sequence[Any]) -> Iterator[Turn]:
    """A turn begins at each user prompt, also in the middle of a message."""
    parts = [part for message in messages for part in message.parts]
    started = [place for place, part in enumerate(parts) if part.part_kind == "user-prompt"]
    for place, end in zip(started, [*started[1:], len(parts)], strict=True):
        answer = "\n".join(part.content for part in parts[place:end] if part.part_kind == "text")
        yield Turn(str(parts[place].content), tuple(_pair_calls(parts[place:end], parts[place:])), answer)


def _pair_calls(made: Sequence[Any], later: Sequence[Any]) -> Iterator[Call]:
    """The calls that have a result, each with its first one."""
    answers: dict[str, Any] = {}
    for part in later:
        if part.part_kind == "tool-return":
            answers.setdefault(part.tool_call_id, part)
    for part in made:
        if part.part_kind == "tool-call" and (answer := answers.get(part.tool_call_id)) is not None:
            failed = answer.outcome != "success" or looks_failed(answer.content)
            yield Call(part.tool_name, part.args_as_dict(), answer.content, failed)


def parse_result(result: Any) -> Any:
    """Parse a result that is JSON text; any other result is returned as it is."""
    if isinstance(result, str) and result.lstrip()[:1] in ("{", "[") and len(result) <= MAX_JSON:
        try:
            return json.loads(result)
        except (ValueError, RecursionError):
            return result
    return result


def records_in(result: Any) -> list[dict[str, Any]] | None:
    """The records in a result; None if it is neither a list of records nor a record with an id."""
    result = parse_result(result)
    if isinstance(result, dict):
        keys = [*(key for key in ITEM_KEYS if key in result), *(key for key in result if key not in ITEM_KEYS)]
        for key in keys:
            if isinstance(inner := result[key], list) and (not inner or isinstance(inner[0], dict)):
                return [item for item in inner if isinstance(item, dict)]
        return [result] if "id" in result else None
    if isinstance(result, list) and all(isinstance(item, dict) for item in result):
        return result
    return None


def record_name(item: dict[str, Any]) -> str | None:
    """The name or title of a record."""
    return next((item[key] for key in NAME_KEYS if isinstance(item.get(key), str) and item[key].strip()), None)


def iter_scalars(result: Any) -> Iterator[tuple[str, Any]]:
    """Every scalar in a result with its key, in reading order, up to a limit."""
    stack: list[tuple[str, Any, int]] = [("", parse_result(result), 0)]
    seen = 0
    while stack and seen < MAX_SCALARS:
        key, value, depth = stack.pop()
        seen += 1
        if isinstance(value, dict) and depth < MAX_DEPTH:
            stack += [(str(name), inner, depth + 1) for name, inner in reversed(list(value.items())[:MAX_SCALARS])]
        elif isinstance(value, list) and depth < MAX_DEPTH:
            stack += [(key, inner, depth + 1) for inner in reversed(value[:MAX_SCALARS])]
        elif is_scalar(value):
            yield key, value


def is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)
