"""Clip the events of large sessions so that they can be compared: long values are kept by their beginning and hash.

Equal values are clipped alike and different values differently, so two clipped sessions can still be compared. Both
sides of a comparison are clipped, or neither.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from app.evals.trace import Event, Run
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


@dataclass
class EventReader:
    """Takes the events of one session in order, each with the JSON text of its payload, and keeps what fits."""

    clip: bool
    events: list[Event] = field(default_factory=list)
    cut: bool = False
    _bytes: int = 0
    _nodes: int = 0

    def add(self, event_type: str, text: str, sequence: int) -> bool:
        """Take one event; false when there is no room for more."""
        if not self.clip:
            self._count(text)
            if self._nodes > MAX_NODES:
                raise TooDense
            self.events.append(Event(event_type, json.loads(text), sequence))
            return True
        event = clip_event(Event(event_type, json.loads(text), sequence))
        self._count(text if len(text) <= RESULT_ROOM else _json(event.payload))
        if self._bytes > MAX_BYTES or self._nodes > MAX_NODES:
            self.cut = True
            return False
        self.events.append(event)
        return True

    def _count(self, text: str) -> None:
        self._bytes += len(text)
        self._nodes += count_members(text)


def read_events(events: Iterable[tuple[str, str, int]], *, clip: bool) -> EventReader:
    """As many of the events as fit. Raises TooDense where they are not clipped and should be."""
    reader = EventReader(clip)
    for event_type, text, sequence in events:
        if not reader.add(event_type, text, sequence):
            break
    return reader


def clip_run(run: Run) -> Run:
    """A run that was read whole, clipped like the run that it is compared with."""
    if run.clipped:
        return run
    reader = read_events(((one.event_type, _json(one.payload), one.sequence) for one in run.events), clip=True)
    return replace(run, events=tuple(reader.events), clipped=True, cut=reader.cut)


def count_members(text: str) -> int:
    """At least how many values a JSON text holds."""
    return text.count(",") + text.count("[") + text.count("{") + 1


def clip_event(event: Event) -> Event:
    """The event with the long parts of its payload clipped. What names it and its call stays."""
    return Event(event.event_type, _clip_payload(event.event_type, event.payload), event.sequence)


def _clip_payload(event_type: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    room = ROOMS.get(event_type, VALUE_ROOM)
    return {
        name: clip_arguments(value) if name == "arguments" else clip_value(value, room)
        for name, value in payload.items()
    }


def clip_arguments(given: Any) -> Any:
    """The arguments of a call, as those of a clipped recording are kept."""
    return clip_value(given, VALUE_ROOM)


def clip_value(value: Any, room: int, *, outermost: bool = True) -> Any:
    """A value of at most about so many characters. Its short members stay; a long one becomes its hash."""
    value = from_json(value) if isinstance(value, str) and len(value) > room else value
    if isinstance(value, str):
        return value if len(value) <= room else _clip_text(value, room)
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
    found: dict[str, Any] = {}
    for name, one in value.items():
        if len(found) == MAX_SHORT_MEMBERS:
            break
        if len(name) <= SHORT_CHARS and not isinstance(one, dict | list) and len(str(one)) <= SHORT_CHARS:
            found[name] = one
    return found


def _clip_text(text: str, room: int) -> Clipped:
    same = canonical(text)
    return Clipped(f"{same[: room // 2]}… ({len(same):,} characters, sha256 {_hash(same)})")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
