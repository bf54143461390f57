"""What was said and done, as turns to read. Pure: events, messages and notes in, turns out.

Payloads come from other people's agents: what is missing is left out, what has another shape is shown as it is.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, takewhile
from typing import Any
from uuid import UUID

from app.formats.tool_results import is_truncated
from app.models import Message
from app.services.sessions.event_windows import Event
from app.views.format import duration, short_id

WRITES = {"entity.created", "entity.updated", "response.submitted", "knowledge.changed"}


@dataclass
class Part:
    """One thing in a turn. `kind` says which of the fields count: say, tool, change, loaded or line. `event` and
    `answer` are the ids of the events it was made from, where all of it can be read."""

    kind: str
    text: str = ""
    name: str = ""
    args: Any = None
    result: Any = None
    ms: float | None = None
    failed: bool = False
    record: str = ""
    changes: list[tuple[str, Any, Any]] = field(default_factory=list)
    event: str = ""
    answer: str = ""
    known: bool = False


@dataclass
class Turn:
    """What one side did before the other's turn. Feedback names it by one of its `ids`."""

    name: str
    agent: bool
    at: datetime
    anchor: str
    detail: str = ""
    parts: list[Part] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    notes: list[Any] = field(default_factory=list)
    target: bool = False

    @property
    def text(self) -> str:
        return "\n\n".join(part.text for part in self.parts if part.kind == "say")


@dataclass(frozen=True)
class Step:
    """One part of a turn. Steps of one turn follow each other and share `turn`: its number and the role that speaks."""

    turn: tuple[int, str]
    part: Part
    at: datetime
    anchor: str
    ids: set[str] = field(default_factory=set)
    ended: datetime | None = None
    version: str = ""
    cut_off: bool = False


def build_turns(steps: Iterable[Step], *, person: str, agent: str) -> list[Turn]:
    """The turns of a session (`session_steps`) or of a chat (`chat_steps`) in order."""
    names = {"user": person, "system": "system"}
    turns = groupby(steps, key=lambda step: step.turn)
    return [_turn(list(group), names.get(role, agent), role != "user") for (_, role), group in turns]


def _turn(steps: Sequence[Step], name: str, agent: bool) -> Turn:
    first = steps[0]
    took = (max((step.ended for step in steps if step.ended), default=first.at) - first.at).total_seconds() * 1000
    cut_off = "cut off" if any(step.cut_off for step in steps) else ""
    detail = " · ".join(filter(None, (first.version, duration(took) if took >= 1 else "", cut_off)))
    ids = set().union(*(step.ids for step in steps))
    return Turn(name, agent, first.at, first.anchor, detail, [step.part for step in steps], ids)


def session_steps(events: Sequence[Event], *, version: str = "", answers: Sequence[Event] = ()) -> Iterator[Step]:
    """The steps of a session. `answers` are results that come after the last of these events."""
    results = results_by_call([*events, *answers])
    parts = [(event, part) for event in events if (part := _part(event, results))]
    # What is loaded before the first message belongs to the first answer.
    loaded = [part for _, part in takewhile(lambda pair: pair[1].kind == "loaded", parts)]
    number, asked = 0, None
    for event, part in parts[len(loaded) :]:
        anchor = f"e-{short_id(event.id)}"
        if event.event_type == "user.message":
            number, asked = number + 1, event.occurred_at
            yield Step((number, "user"), part, asked, anchor, event_ids(event))
            continue
        turn, at = (number, "agent"), asked or event.occurred_at
        for before in loaded:
            yield Step(turn, before, at, anchor, version=version)
        loaded = []
        result = _result_of(event, results)
        ended = max(event.occurred_at, result.occurred_at) if result else event.occurred_at
        cut_off = is_truncated(event.event_type, event.payload)
        yield Step(turn, part, at, anchor, event_ids(event), ended, version, cut_off)


def chat_steps(
    messages: Sequence[Message],
    *,
    versions: Mapping[UUID, str] | None = None,
    work: Mapping[UUID, Sequence[Event]] | None = None,
) -> Iterator[Step]:
    """The steps of a chat, a turn for each message. What an agent did since the message before precedes its words."""
    before: datetime | None = None
    for message in messages:
        session_id = message.session_id if message.role == "agent" else None
        version = (versions or {}).get(session_id, "") if session_id else ""
        events = (work or {}).get(session_id, ()) if session_id else ()
        turn, at, anchor = (message.message_index, message.role), message.created_at, f"m-{message.message_index}"
        for part in (*_work_between(events, before, at), _spoken(message)):
            yield Step(turn, part, at, anchor, message_ids(message), version=version)
        before = at


def event_ids(event: Event) -> set[str]:
    """Return all ids by which feedback names an event."""
    named = (event.payload.get(name) for name in ("message_id", "turn_id", "call_id", "id"))
    return {str(event.id), *(str(value) for value in named if value)}


def results_by_call(events: Sequence[Event]) -> dict[str, Event]:
    """The result of each call, by the call's id. A result whose call is not here is no call's."""
    calls = {str(event.payload.get("id")) for event in events if event.event_type == "tool.call"}
    found: dict[str, Event] = {}
    for event in events:
        if event.event_type == "tool.result" and (call := _call_id(event)) in calls:
            found.setdefault(call, event)
    return found


def _call_id(result: Event) -> str:
    return str(result.payload.get("call_id") or result.payload.get("id") or "")


def _result_of(event: Event, results: Mapping[str, Event]) -> Event | None:
    return results.get(str(event.payload.get("id"))) if event.event_type == "tool.call" else None


def _part(event: Event, results: Mapping[str, Event]) -> Part | None:
    payload, kind = event.payload, event.event_type
    if kind in {"user.message", "agent.message"}:
        return Part("say", str(payload.get("text", payload.get("content", ""))), event=str(event.id))
    if kind == "tool.call":
        return _tool(event, _result_of(event, results))
    if kind == "tool.result":
        return None if _call_id(event) in results else _orphan(event)
    if kind in {"entity.created", "entity.updated"}:
        return _change(kind, payload)
    if kind == "context.loaded":
        return Part("loaded", _loaded(payload))
    if kind == "response.submitted":
        return Part("change", name="Response", changes=_values(payload.get("values")))
    if kind == "session.failed":
        return Part("line", str(payload.get("error") or payload.get("reason") or ""), name="failed", failed=True)
    if kind in {"knowledge.changed", "feedback.reviewed", "agent.updated"}:
        return Part("tool", name=kind, args=payload or None, result="noted")
    return None


def _tool(event: Event, result: Event | None) -> Part:
    payload = event.payload
    return Part(
        "tool",
        name=str(payload.get("name") or "tool"),
        args=payload.get("arguments"),
        result=parse_output(result.payload.get("output")) if result else "no result recorded",
        ms=_took(event, result) if result else None,
        failed=result is None or bool(result.payload.get("is_error")),
        event=str(event.id),
        answer=str(result.id) if result else "",
    )


def _took(event: Event, result: Event) -> float | None:
    """How long a call took, as its agent says or by the times; under a millisecond the recording has no times."""
    for ms in (result.payload.get("duration_ms"), event.payload.get("duration_ms")):
        if isinstance(ms, int | float) and not isinstance(ms, bool) and ms >= 0:
            return ms
    between = (result.occurred_at - event.occurred_at).total_seconds() * 1000
    return between if between >= 1 else None


def _orphan(event: Event) -> Part:
    """A result without its call."""
    name, output = str(event.payload.get("name") or "tool"), parse_output(event.payload.get("output"))
    return Part("tool", name=name, result=output, failed=bool(event.payload.get("is_error")), answer=str(event.id))


def parse_output(output: Any) -> Any:
    """Tools often answer with JSON in a text: shown as what it is."""
    if not isinstance(output, str) or output[:1] not in ("{", "["):
        return output
    try:
        return json.loads(output)
    except (ValueError, RecursionError):
        return output


def _change(kind: str, payload: Mapping[str, Any]) -> Part:
    record = str(payload.get("entity_id") or "")
    name = str(payload.get("name") or f"{payload.get('entity_type') or 'record'} {short_id(record)}".strip())
    if kind == "entity.created":
        return Part("change", "new", name=name, record=record, changes=_values(payload.get("fields")))
    return Part("change", name=name, record=record, changes=_values(payload.get("changes"), "to"))


def _values(values: Any, key: str = "value") -> list[tuple[str, Any, Any]]:
    """What was filled in or changed: name, before and after, without source and confidence."""
    if not isinstance(values, Mapping):
        return []
    found = []
    for name, given in values.items():
        value = given if isinstance(given, Mapping) and key in given else {key: given}
        found.append((str(name), value.get("from") if key == "to" else None, value[key]))
    return found


def _loaded(payload: Mapping[str, Any]) -> str:
    rows, tokens = payload.get("row_ids"), payload.get("token_count")
    number = f"{len(rows)} row{'' if len(rows) == 1 else 's'}" if isinstance(rows, list) else "knowledge"
    return f"{number}, {tokens:,} tokens" if isinstance(tokens, int) else number


def message_ids(message: Message) -> set[str]:
    side = "user" if message.role == "user" else "agent"
    found = {str(message.id), f"{message.turn_id}:{side}", f"#{message.message_index}"}
    return found | ({message.external_id} if message.external_id else set())


def _spoken(message: Message) -> Part:
    if message.role != "tool":
        return Part("say", message.content)
    name, arguments = str(message.details.get("name") or "tool"), message.details.get("arguments")
    failed = bool(message.details.get("is_error"))
    return Part("tool", name=name, args=arguments, result=message.content, failed=failed)


def _work_between(events: Sequence[Event], after: datetime | None, until: datetime) -> list[Part]:
    results = results_by_call(events)
    inside = [event for event in events if (after is None or event.occurred_at >= after) and event.occurred_at <= until]
    return [part for event in inside if (part := _part(event, results)) and part.kind not in {"say", "line"}]


def add_message_ids(turns: Sequence[Turn], messages: Sequence[Message]) -> None:
    """Add the ids of the chat messages that a session's turns became, when there are as many of both."""
    answers = [message for message in messages if message.role == "agent"]
    spoken = [turn for turn in turns if turn.agent and turn.text]
    if len(answers) == len(spoken):
        for turn, message in zip(spoken, answers, strict=True):
            turn.ids |= message_ids(message)


def find_turn(turns: Sequence[Turn], ids: Iterable[str]) -> Turn | None:
    """Return the turn that the first of these ids names."""
    by_id = {name: turn for turn in reversed(turns) for name in turn.ids}
    return next((by_id[name] for name in ids if name in by_id), None)


def turns_around(turns: Sequence[Turn], target: Turn | None, before: int = 1) -> list[Turn]:
    """The target and what led to it: as much as a panel shows."""
    if target is None:
        return list(turns[-2:])
    at = next(index for index, turn in enumerate(turns) if turn is target)
    return list(turns[max(0, at - before) : at + 1])
