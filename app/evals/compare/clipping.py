"""Clip the events of large sessions: long values are kept by their beginning and hash, so that two clipped sessions can
still be compared. Both sides of a comparison are clipped, or neither."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import Any

from app.evals.trace import COMPLETED, Event, Run, make_run
from app.text.values import Clipped, canonical, from_json

# A session up to this size is compared as it is.
WHOLE_BYTES = 4_000_000
# What is kept of a session. Beyond that it is cut: then it is shown in part, and gets no verdict.
MAX_BYTES = 4_000_000
# Objects, lists and their members, which take far more memory than their text does.
MAX_NODES = 150_000
# How much of one value is kept, in characters of JSON. Results are mostly shown; only their ids are compared.
MESSAGE_ROOM = 16_000
VALUE_ROOM = 4000
RESULT_ROOM = 1000
# The contents of a prompt decide which knowledge and which tools a run had.
LOADED_ROOM = 64_000
ROOMS = {
    "tool.result": RESULT_ROOM, "user.message": MESSAGE_ROOM, "agent.message": MESSAGE_ROOM,
    "context.loaded": LOADED_ROOM,
}  # fmt: skip
# A value with more members than this is not looked into.
MAX_MEMBERS = 2000
SHORT_CHARS = 200
MAX_SHORT_MEMBERS = 50


class TooDense(Exception):
    """A session of few bytes has too many values to be read whole."""


@dataclass(frozen=True)
class LoadedEvents:
    """The events of one session that fit; `cut` says that events at the end are left out."""

    events: tuple[Event, ...]
    clipped: bool
    cut: bool = False

    def as_run(self, session_type: str, output_type: str | None, tools: Iterable[Any], status: str = COMPLETED) -> Run:
        """The session as the comparer takes it."""
        found = make_run(self.events, session_type=session_type, status=status, output_type=output_type, tools=tools)
        return replace(found, clipped=self.clipped, cut=self.cut)


def read_events(events: Iterable[tuple[str, str, int]], *, clip: bool) -> LoadedEvents:
    """As many events as fit, each given with the JSON text of its payload. TooDense if they should be clipped."""
    found: list[Event] = []
    size = nodes = 0
    for event_type, text, sequence in events:
        if not clip:
            nodes += count_members(text)
            if nodes > MAX_NODES:
                raise TooDense
            found.append(Event(event_type, json.loads(text), sequence))
            continue
        event = clip_event(Event(event_type, json.loads(text), sequence))
        held = text if len(text) <= RESULT_ROOM else _json(event.payload)
        size, nodes = size + len(held), nodes + count_members(held)
        if size > MAX_BYTES or nodes > MAX_NODES:
            return LoadedEvents(tuple(found), clipped=True, cut=True)
        found.append(event)
    return LoadedEvents(tuple(found), clipped=clip)


def clip_run(run: Run) -> Run:
    """A run that was read whole, clipped like the run that it is compared with."""
    if run.clipped:
        return run
    found = read_events(((one.event_type, _json(one.payload), one.sequence) for one in run.events), clip=True)
    return replace(run, events=found.events, clipped=True, cut=found.cut)


def count_members(text: str) -> int:
    """At least how many values a JSON text holds."""
    return text.count(",") + text.count("[") + text.count("{") + 1


def clip_event(event: Event) -> Event:
    """The event with the long parts of its payload clipped. What names it and its call stays."""
    room = ROOMS.get(event.event_type, VALUE_ROOM)
    clipped = {
        name: clip_value(value, VALUE_ROOM if name == "arguments" else room) for name, value in event.payload.items()
    }
    return Event(event.event_type, clipped, event.sequence)


def clip_value(value: Any, room: int, *, outermost: bool = True) -> Any:
    """A value of at most about so many characters. Its short members stay; a long one becomes its hash."""
    value = from_json(value) if isinstance(value, str) and len(value) > room else value
    if isinstance(value, str):
        if len(value) <= room:
            return value
        same = canonical(value)
        return Clipped(f"{same[: room // 2]}… ({len(same):,} characters, sha256 {_hash(same)})")
    if not isinstance(value, dict | list):
        return value
    text = _json(value)
    if len(text) <= room:
        return value
    if count_members(text) <= MAX_MEMBERS:
        inner = max(room // 2, SHORT_CHARS)
        if isinstance(value, dict):
            held: Any = {name: clip_value(one, inner, outermost=False) for name, one in value.items()}
        else:
            held = [clip_value(one, inner, outermost=False) for one in value]
        if len(_json(held)) <= 2 * room:
            return held
    mark = Clipped(f"… ({len(text):,} characters of JSON, sha256 {_hash(text)})")
    return {**_short_members(value), "…": mark} if outermost and isinstance(value, dict) else mark


def _short_members(value: Mapping[str, Any]) -> dict[str, Any]:
    """The ids, names and numbers of an object that is not kept."""
    short = (
        (name, one)
        for name, one in value.items()
        if len(name) <= SHORT_CHARS and not isinstance(one, dict | list) and len(str(one)) <= SHORT_CHARS
    )
    return dict(islice(short, MAX_SHORT_MEMBERS))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
