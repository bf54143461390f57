"""What was said and done, as turns to read. Pure: events, messages and notes in, turns out.

A turn is what one side did before the other spoke. Payloads come from other people's agents, so nothing in them is
taken for granted: what is missing is left out, what has another shape is shown as it is.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from app.formats.truncation import is_truncated
from app.views.format import duration, short_id


class Event(Protocol):
    """A session event, as much of it as is read here."""

    @property
    def id(self) -> UUID: ...
    @property
    def event_type(self) -> str: ...
    @property
    def payload(self) -> dict[str, Any]: ...
    @property
    def occurred_at(self) -> datetime: ...


class ChatMessage(Protocol):
    """A chat message, as much of it as is read here."""

    @property
    def id(self) -> UUID: ...
    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def turn_id(self) -> str: ...
    @property
    def message_index(self) -> int: ...
    @property
    def details(self) -> dict[str, Any]: ...
    @property
    def session_id(self) -> UUID | None: ...
    @property
    def external_id(self) -> str | None: ...


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
    """What one side did before the other spoke. `anchor` is its place on the page, `key` the id of the event or the
    index of the message that a flag on it names, `ids` all ids by which feedback names it."""

    name: str
    agent: bool
    at: datetime
    anchor: str = ""
    key: str = ""
    detail: str = ""
    parts: list[Part] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    notes: list[Any] = field(default_factory=list)
    target: bool = False
    until: datetime | None = None
    cut_off: bool = False

    @property
    def text(self) -> str:
        return "\n\n".join(part.text for part in self.parts if part.kind == "say")

    @property
    def milliseconds(self) -> float:
        return max(0.0, ((self.until or self.at) - self.at).total_seconds() * 1000)


WRITES = {"entity.created", "entity.updated", "response.submitted", "knowledge.changed"}


def build_turns(
    events: Sequence[Event], *, person: str, agent: str, version: str = "", answers: Sequence[Event] = ()
) -> list[Turn]:
    """The turns of a session, in the order in which things happened. `answers` are results that come after the last of
    these events."""
    results = _results([*events, *answers])
    turns: list[Turn] = []
    waiting: list[Part] = []
    asked: datetime | None = None
    for event in events:
        if event.event_type == "user.message":
            turns.append(_said_by_user(event, person))
            asked = event.occurred_at
            continue
        part = _part(event, results)
        if part is None:
            continue
        if part.kind == "loaded" and not turns:
            # What is loaded before anybody spoke belongs to the first answer.
            waiting.append(part)
            continue
        if not turns or not turns[-1].agent:
            turns.append(Turn(agent, True, asked or event.occurred_at, anchor=f"e-{short_id(event.id)}", parts=waiting))
            waiting = []
        turn = turns[-1]
        turn.parts.append(part)
        turn.ids.update(event_ids(event))
        turn.key = str(event.id)
        turn.cut_off = turn.cut_off or is_truncated(event.event_type, event.payload)
        turn.until = max(turn.until or event.occurred_at, _ended(event, results))
    for turn in turns:
        if turn.agent:
            took = duration(turn.milliseconds) if turn.milliseconds >= 1 else ""
            turn.detail = " · ".join(word for word in (version, took, "cut off" if turn.cut_off else "") if word)
    return turns


def _said_by_user(event: Event, person: str) -> Turn:
    text = _text(event.payload)
    turn = Turn(person, False, event.occurred_at, anchor=f"e-{short_id(event.id)}", until=event.occurred_at)
    turn.key = str(event.id)
    turn.parts.append(Part("say", text, event=turn.key))
    turn.ids.update(event_ids(event))
    return turn


def event_ids(event: Event) -> set[str]:
    """Return all ids by which feedback names an event."""
    named = (event.payload.get(name) for name in ("message_id", "turn_id", "call_id", "id"))
    return {str(event.id), *(str(value) for value in named if value)}


def _text(payload: Mapping[str, Any]) -> str:
    text = payload.get("text", payload.get("content", ""))
    return text if isinstance(text, str) else str(text)


def _results(events: Sequence[Event]) -> dict[str, Event]:
    """The result of each call, by the call's id. A result whose call is not here is no call's."""
    calls = {str(event.payload.get("id")) for event in events if event.event_type == "tool.call"}
    found: dict[str, Event] = {}
    for event in events:
        if event.event_type == "tool.result":
            call = event.payload.get("call_id") or event.payload.get("id")
            if call and str(call) in calls:
                found.setdefault(str(call), event)
    return found


def _ended(event: Event, results: Mapping[str, Event]) -> datetime:
    result = results.get(str(event.payload.get("id"))) if event.event_type == "tool.call" else None
    return max(event.occurred_at, result.occurred_at) if result else event.occurred_at


def _part(event: Event, results: Mapping[str, Event]) -> Part | None:
    payload = event.payload
    kind = event.event_type
    if kind == "agent.message":
        return Part("say", _text(payload), event=str(event.id))
    if kind == "tool.call":
        return _tool(event, results)
    if kind == "tool.result":
        call = str(payload.get("call_id") or payload.get("id") or "")
        return None if call in results else _orphan(event)
    if kind in {"entity.created", "entity.updated"}:
        return _change(kind, payload)
    if kind == "context.loaded":
        return Part("loaded", _loaded(payload))
    if kind == "response.submitted":
        values = payload.get("values")
        return Part("change", name="Response", changes=_values(values))
    if kind == "session.failed":
        return Part("line", str(payload.get("error") or payload.get("reason") or ""), name="failed", failed=True)
    if kind in {"knowledge.changed", "feedback.reviewed", "agent.updated"}:
        return Part("tool", name=kind, args=payload or None, result="noted")
    return None


def _tool(event: Event, results: Mapping[str, Event]) -> Part:
    payload = event.payload
    result = results.get(str(payload.get("id")))
    answer: Mapping[str, Any] = result.payload if result else {}
    return Part(
        "tool",
        name=str(payload.get("name") or "tool"),
        args=payload.get("arguments"),
        result=parse_output(answer.get("output")) if result else "no result recorded",
        ms=_took(event, result),
        failed=result is None or bool(answer.get("is_error")),
        event=str(event.id),
        answer=str(result.id) if result else "",
    )


def _took(event: Event, result: Event | None) -> float | None:
    """How long a call took, as its agent says or as the times tell. Recordings without times have their events a hair's
    breadth apart, which tells nothing."""
    told = [one.payload.get("duration_ms") for one in (result, event) if one is not None]
    said = next((ms for ms in told if isinstance(ms, int | float) and not isinstance(ms, bool) and ms >= 0), None)
    if said is not None or result is None:
        return said
    between = (result.occurred_at - event.occurred_at).total_seconds() * 1000
    return between if between >= 1 else None


def _orphan(event: Event) -> Part:
    payload = event.payload
    failed = bool(payload.get("is_error"))
    name = str(payload.get("name") or "tool")
    return Part("tool", name=name, result=parse_output(payload.get("output")), failed=failed, answer=str(event.id))


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
    name = payload.get("name") or f"{payload.get('entity_type') or 'record'} {short_id(record)}".strip()
    if kind == "entity.created":
        return Part("change", "new", name=str(name), record=record, changes=_values(payload.get("fields")))
    changes = payload.get("changes")
    pairs = changes.items() if isinstance(changes, Mapping) else ()
    found = [(str(key), *_from_to(value)) for key, value in pairs]
    return Part("change", name=str(name), record=record, changes=found)


def _from_to(value: Any) -> tuple[Any, Any]:
    if isinstance(value, Mapping) and "to" in value:
        return value.get("from"), value["to"]
    return None, value


def _values(values: Any) -> list[tuple[str, Any, Any]]:
    """What was filled in. A value may come with its source and confidence; only the value itself is shown."""
    if not isinstance(values, Mapping):
        return []
    plain = {
        key: value["value"] if isinstance(value, Mapping) and "value" in value else value
        for key, value in values.items()
    }
    return [(str(key), None, value) for key, value in plain.items()]


def _loaded(payload: Mapping[str, Any]) -> str:
    rows = payload.get("row_ids")
    said = f"{len(rows)} row{'' if len(rows) == 1 else 's'}" if isinstance(rows, list) else "knowledge"
    tokens = payload.get("token_count")
    return f"{said}, {tokens:,} tokens" if isinstance(tokens, int) else said


def build_chat_turns(
    messages: Sequence[ChatMessage],
    *,
    person: str,
    agent: str,
    versions: Mapping[UUID, str] | None = None,
    work: Mapping[UUID, Sequence[Event]] | None = None,
) -> list[Turn]:
    """The turns of a chat. `versions` and `work` are of the sessions behind it: what an agent did stands before what
    it said, between the message before and its own."""
    turns: list[Turn] = []
    before: datetime | None = None
    for message in messages:
        agentic = message.role != "user"
        turn = Turn(agent if agentic else person, agentic, message.created_at, anchor=f"m-{message.message_index}")
        turn.key = str(message.message_index)
        if message.role == "system":
            turn.name = "system"
        if message.role == "agent" and message.session_id:
            turn.detail = (versions or {}).get(message.session_id, "")
        turn.ids = message_ids(message)
        turn.parts = [] if message.role != "agent" else _work_before(message, before, work or {})
        turn.parts.append(_spoken(message))
        turns.append(turn)
        before = message.created_at
    return turns


def message_ids(message: ChatMessage) -> set[str]:
    side = "user" if message.role == "user" else "agent"
    found = {str(message.id), f"{message.turn_id}:{side}", f"#{message.message_index}"}
    return found | ({message.external_id} if message.external_id else set())


def _spoken(message: ChatMessage) -> Part:
    if message.role != "tool":
        return Part("say", message.content)
    details = message.details
    name = str(details.get("name") or "tool")
    failed = bool(details.get("is_error"))
    return Part("tool", name=name, args=details.get("arguments"), result=message.content, failed=failed)


def _work_before(message: ChatMessage, before: datetime | None, work: Mapping[UUID, Sequence[Event]]) -> list[Part]:
    events = work.get(message.session_id, ()) if message.session_id else ()
    results = _results(events)
    since = [e for e in events if (before is None or e.occurred_at >= before) and e.occurred_at <= message.created_at]
    parts = (_part(event, results) for event in since if event.event_type not in {"agent.message", "session.failed"})
    return [part for part in parts if part is not None]


def records_in(turns: Iterable[Turn]) -> set[str]:
    """The ids of the records that were changed."""
    return {part.record for turn in turns for part in turn.parts if part.record}


def name_records(turns: Iterable[Turn], names: Mapping[str, str]) -> None:
    """Call the changed records by their names, as far as they are known; only those can be opened."""
    for turn in turns:
        for part in turn.parts:
            part.known = part.record in names
            part.name = names.get(part.record, part.name)


def add_message_ids(turns: Sequence[Turn], messages: Sequence[ChatMessage]) -> None:
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
