"""A session as the comparer reads it: events, calls paired with their results, turns."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.evals.compare import builtin_tools
from app.formats.tool_results import looks_failed
from app.text.values import Reader

NO_RESULT = "no result recorded"
COMPLETED = "completed"


@dataclass(frozen=True)
class Event:
    event_type: str
    payload: Mapping[str, Any]
    sequence: int = 0


@dataclass(frozen=True)
class Tool:
    """What is known of a tool: whether it changes anything, which argument names its target, what it takes."""

    name: str
    writes: bool = True
    target: str | None = None
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Run:
    """One session. `events` are in order of time; `tools` are those that it was offered. `clipped` says that long
    values in it are kept by their hash, `cut` that events at its end are left out."""

    session_type: str = "agent"
    status: str = COMPLETED
    output_type: str | None = None
    events: Sequence[Event] = ()
    tools: Mapping[str, Tool] = field(default_factory=dict)
    clipped: bool = False
    cut: bool = False


@dataclass(frozen=True)
class Call:
    """A call and its result. `replay` says how a recording answered it; `result_sequence` numbers its result."""

    id: str
    name: str
    arguments: Any
    output: Any
    failed: bool
    writes: bool
    sequence: int
    tool: Tool
    replay: Mapping[str, Any] | None = None
    result_sequence: int | None = None


@dataclass(frozen=True)
class Turn:
    """A user message, and the agent's last message before the next one."""

    number: int
    user: str
    answer: str
    sequence: int


def make_run(
    events: Iterable[Mapping[str, Any] | Event],
    *,
    session_type: str = "agent",
    status: str = COMPLETED,
    output_type: str | None = None,
    tools: Iterable[Any] = (),
) -> Run:
    """A run from plain values: events as they are stored or sent, and tools as MCP lists them."""
    read = [given if isinstance(given, Event) else _event(given, place) for place, given in enumerate(events, 1)]
    known = [tool for given in tools if (tool := make_tool(given)) is not None]
    return Run(session_type, status, output_type, tuple(read), {tool.name: tool for tool in known})


def _event(given: Mapping[str, Any], place: int) -> Event:
    payload, sequence = given.get("payload"), given.get("sequence")
    return Event(
        str(given.get("event_type")),
        payload if isinstance(payload, Mapping) else {},
        sequence if isinstance(sequence, int) else place,
    )


def make_tool(given: Any) -> Tool | None:
    """A tool from its definition. It writes unless its definition says that it only reads."""
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        return None
    hints = given.get("annotations")
    hints = hints if isinstance(hints, Mapping) else {}
    reads = hints.get("readOnlyHint") is True or given.get("readOnlyHint") is True or given.get("writes") is False
    schema = next((given[key] for key in _SCHEMA if isinstance(given.get(key), Mapping)), None)
    places = (given, hints, schema or {})
    target = next((place[_TARGET] for place in places if isinstance(place.get(_TARGET), str)), None)
    return Tool(given["name"], not reads, target, schema)


_SCHEMA = ("inputSchema", "input_schema", "parameters")
_TARGET = "x-upshot-target"


def find_tool(name: str, tools: Mapping[str, Tool]) -> Tool:
    """The tool of that name. An unknown tool is assumed to write, unless it is a built-in reading tool."""
    return tools.get(name) or Tool(name, name not in builtin_tools.READS)


def calls_of(run: Run, tools: Mapping[str, Tool], reader: Reader) -> list[Call]:
    """The calls in order, each with its result. One without a result failed."""
    results: dict[str, deque[Event]] = defaultdict(deque)
    for event in run.events:
        if event.event_type == "tool.result":
            results[str(event.payload.get("call_id"))].append(event)
    return [
        _call(event, results, find_tool(str(event.payload.get("name")), tools), reader)
        for event in run.events
        if event.event_type == "tool.call"
    ]


def _call(event: Event, results: dict[str, deque[Event]], tool: Tool, reader: Reader) -> Call:
    call_id = str(event.payload.get("id"))
    waiting = results.get(call_id)
    found = waiting.popleft() if waiting else None
    result = found.payload if found else None
    output = NO_RESULT if result is None else result.get("output")
    mark = result.get("replay") if result else None
    return Call(
        id=call_id,
        name=tool.name,
        arguments=reader.arguments(event.payload.get("arguments"), tool.schema),
        output=output,
        failed=result is None or result_failed(result),
        writes=tool.writes,
        sequence=event.sequence,
        tool=tool,
        replay={"kind": mark} if isinstance(mark, str) else mark if isinstance(mark, Mapping) else None,
        result_sequence=found.sequence if found else None,
    )


def result_failed(result: Mapping[str, Any]) -> bool:
    """Whether a `tool.result` is a failure: by its `is_error`, else by its output."""
    is_error = result.get("is_error")
    return is_error if isinstance(is_error, bool) else looks_failed(result.get("output"))


def turns_of(run: Run) -> list[Turn]:
    """One turn for every user message."""
    talks: list[list[Event]] = []
    for event in run.events:
        if event.event_type == "user.message":
            talks.append([event])
        elif event.event_type == "agent.message" and talks:
            talks[-1].append(event)
    return [_turn(number, *events) for number, events in enumerate(talks, 1)]


def _turn(number: int, user: Event, *events: Event) -> Turn:
    answer = next((text for event in reversed(events) if (text := text_of(event))), "")
    return Turn(number, text_of(user), answer, (events[-1] if events else user).sequence)


def last_message(run: Run) -> tuple[str, int | None]:
    """The agent's last message, and its sequence number."""
    for event in reversed(run.events):
        if event.event_type == "agent.message" and text_of(event).strip():
            return text_of(event), event.sequence
    return "", None


def text_of(event: Event) -> str:
    text = event.payload.get("text")
    return text if isinstance(text, str) else ""
