"""Edits of a session that must not change its verdict, and edits that must."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.evals.compare.effects import UPDATED, effects_of
from app.evals.trace import Run, calls_of, make_run
from app.formats.tool_results import with_error_mark
from app.ingest.messages import read_line
from app.text.values import Reader

DATA = Path(__file__).parents[1] / "data" / "evals" / "sessions.ndjson"
Session = dict[str, Any]
Pick = Callable[[int], int]


def sessions() -> dict[str, Session]:
    """The hand-made sessions as the import stores them."""
    read = [read_line(line) for line in DATA.read_bytes().splitlines()]
    return {one.fields["external_id"]: _stored(one) for one in read}


def _stored(one: Any) -> Session:
    events = [{"event_type": event.event_type, "payload": event.payload} for event in one.events]
    for event in events:
        if event["event_type"] == "tool.result":
            event["payload"] = with_error_mark(event["payload"])
    tools = one.fields["metadata"].get("tools", [])
    return {"session_type": one.fields["session_type"], "events": events, "tools": tools}


def run_of(session: Session) -> Run:
    return make_run(session["events"], session_type=session["session_type"], tools=session["tools"])


def writes(session: Session) -> list[tuple[int, Any]]:
    """Where the successful writing calls stand, with the effect of each."""
    run = run_of(session)
    reader = Reader()
    calls = calls_of(run, run.tools, reader)
    good = [call for call in calls if call.writes and not call.failed]
    places = [place for place, event in enumerate(session["events"]) if event["event_type"] == "tool.call"]
    found = []
    for place, call in zip(places, calls, strict=True):
        if call in good:
            single = Run(events=(run.events[place], *_results(run, call.id)), tools=run.tools)
            effects, _ = effects_of(single, calls_of(single, run.tools, reader), reader)
            found.append((place, effects[0]))
    return found


def _results(run: Run, call_id: str) -> list[Any]:
    return [e for e in run.events if e.event_type == "tool.result" and e.payload.get("call_id") == call_id]


def last_writes(session: Session) -> list[tuple[int, Any]]:
    """The writes that no later one overwrites."""
    found = writes(session)
    return [
        (place, effect)
        for place, effect in found
        if effect.kind != UPDATED
        or not any(later > place and (o.type, o.target) == (effect.type, effect.target) for later, o in found)
    ]


def arguments_at(session: Session, place: int) -> dict[str, Any]:
    found: dict[str, Any] = session["events"][place]["payload"]["arguments"]
    return found


def scalar_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [found for key, held in value.items() for found in scalar_paths(held, (*path, key))]
    if isinstance(value, list):
        return [found for place, held in enumerate(value) for found in scalar_paths(held, (*path, place))]
    return [path]


def get(value: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        value = value[part]
    return value


def put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    get(value, path[:-1])[path[-1]] = new


def other(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + max(1, abs(value))
    return f"{value}x" if isinstance(value, str) else "x"


def call(session: Session, name: str, arguments: Any, output: Any, is_error: bool = False) -> list[dict[str, Any]]:
    call_id = f"new-{len(session['events'])}-{name}"
    return [
        {"event_type": "tool.call", "payload": {"id": call_id, "name": name, "arguments": arguments}},
        {
            "event_type": "tool.result",
            "payload": {"call_id": call_id, "name": name, "output": output, "is_error": is_error},
        },
    ]


def _each_argument(session: Session, change: Callable[[Any], Any]) -> Session:
    for event in session["events"]:
        if event["event_type"] == "tool.call":
            event["payload"]["arguments"] = change(event["payload"]["arguments"])
    return session


def reverse_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reverse_keys(value[key]) for key in reversed(value)}
    return [reverse_keys(held) for held in value] if isinstance(value, list) else value


def deep(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def apply(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: apply(held) for key, held in value.items()}
        return [apply(held) for held in value] if isinstance(value, list) else change(value)

    return apply


def key_order(session: Session, pick: Pick) -> Session:
    return _each_argument(session, reverse_keys)


def spaces(session: Session, pick: Pick) -> Session:
    return _each_argument(
        session, deep(lambda v: f"  {v.replace(' ', '   ')}\n" if isinstance(v, str) and v.strip() else v)
    )


def id_order(session: Session, pick: Pick) -> Session:
    """Every list of ids begins elsewhere; lists of one call move together."""

    def turned(value: Any, by: int) -> Any:
        if isinstance(value, dict):
            return {
                key: [*held[by % len(held) :], *held[: by % len(held)]]
                if key.endswith(("_ids", "Ids")) and isinstance(held, list) and held
                else turned(held, by)
                for key, held in value.items()
            }
        return [turned(held, by) for held in value] if isinstance(value, list) else value

    return _each_argument(session, lambda arguments: turned(arguments, 1 + pick(3)))


def as_float(session: Session, pick: Pick) -> Session:
    return _each_argument(session, deep(lambda v: float(v) if isinstance(v, int) and not isinstance(v, bool) else v))


def as_text(session: Session, pick: Pick) -> Session:
    return _each_argument(session, json.dumps)


def extra_read(session: Session, pick: Pick) -> Session:
    names = [t["name"] for t in session["tools"] if t.get("annotations", {}).get("readOnlyHint")] or ["getEntity"]
    place = _between(session, pick)
    session["events"][place:place] = call(session, names[pick(len(names))], {"look": pick(9)}, {"items": []})
    return session


def failed_call(session: Session, pick: Pick) -> Session:
    found = writes(session)
    place, _ = found[pick(len(found))]
    event = session["events"][place]["payload"]
    tried = copy.deepcopy(event["arguments"])
    paths = scalar_paths(tried)
    if paths:
        path = paths[pick(len(paths))]
        put(tried, path, other(get(tried, path)))
    session["events"][place:place] = call(session, event["name"], tried, "Error: not possible", is_error=True)
    return session


def update_twice(session: Session, pick: Pick) -> Session:
    found = [(place, effect) for place, effect in writes(session) if effect.kind == UPDATED]
    if found:
        place, _ = found[pick(len(found))]
        event = session["events"][place]["payload"]
        session["events"][place:place] = call(session, event["name"], copy.deepcopy(event["arguments"]), {"ok": True})
    return session


def overwritten_update(session: Session, pick: Pick) -> Session:
    found = [(place, effect) for place, effect in writes(session) if effect.kind == UPDATED and effect.fields]
    if not found:
        return session
    place, effect = found[pick(len(found))]
    event = session["events"][place]["payload"]
    earlier = copy.deepcopy(event["arguments"])
    kept = (None, effect.target)
    named = [path for path in scalar_paths(earlier) if Reader().value(get(earlier, path)) not in kept]
    if named:
        path = named[pick(len(named))]
        put(earlier, path, other(get(earlier, path)))
        session["events"][place:place] = call(session, event["name"], earlier, {"ok": True})
    return session


def other_words(session: Session, pick: Pick) -> Session:
    for event in session["events"]:
        if event["event_type"] == "agent.message":
            event["payload"] = {"text": "All of it is finished now, exactly the way it was wanted."}
    return session


def _between(session: Session, pick: Pick) -> int:
    """A place that does not separate a call from its result."""
    places = [p for p, e in enumerate(session["events"]) if e["event_type"] != "tool.result"]
    return places[pick(len(places))]


def change_leaf(session: Session, pick: Pick) -> Session:
    found = [place for place, _ in last_writes(session) if scalar_paths(arguments_at(session, place))]
    arguments = arguments_at(session, found[pick(len(found))])
    paths = scalar_paths(arguments)
    path = paths[pick(len(paths))]
    put(arguments, path, other(get(arguments, path)))
    return session


def _all_of(session: Session, place: int, effect: Any) -> set[str]:
    """The ids of all calls that made an effect: of an update every one of its target."""
    places = {place}
    if effect.kind == UPDATED:
        places |= {p for p, o in writes(session) if (o.type, o.target) == (effect.type, effect.target)}
    return {session["events"][p]["payload"]["id"] for p in places}


def cross_ids(session: Session, pick: Pick) -> Session:
    """One of two lists of ids that belong together begins elsewhere, so that others are paired."""
    for place, _ in last_writes(session):
        arguments = arguments_at(session, place)
        new, old = ([str(one) for one in arguments.get(name, ())] for name in ("new_part_ids", "part_ids"))
        if new[1:] + new[:1] != new and len(set(old)) == len(new):
            arguments["new_part_ids"] = new[1:] + new[:1]
            return session
    return change_leaf(session, pick)


def drop_effect(session: Session, pick: Pick) -> Session:
    found = last_writes(session)
    place, effect = found[pick(len(found))]
    same = [
        p for p, o in writes(session) if effect.kind == UPDATED and (o.type, o.target) == (effect.type, effect.target)
    ]
    gone = {session["events"][p]["payload"]["id"] for p in {place, *same}}
    session["events"] = [
        event
        for event in session["events"]
        if event["payload"].get("id") not in gone and event["payload"].get("call_id") not in gone
    ]
    return session


def add_effect(session: Session, pick: Pick) -> Session:
    place = _between(session, pick)
    new = call(session, "delete_everything", {"scope": "all"}, {"ok": True})
    session["events"][place:place] = new
    return session


def double_creation(session: Session, pick: Pick) -> Session:
    found = [place for place, effect in writes(session) if effect.kind != UPDATED]
    if not found:
        return add_effect(session, pick)
    place = found[pick(len(found))]
    event = session["events"][place]["payload"]
    twin = call(session, event["name"], copy.deepcopy(event["arguments"]), {"id": "another-one"})
    session["events"] += twin
    return session


def swap_target(session: Session, pick: Pick) -> Session:
    found = [(place, effect) for place, effect in last_writes(session) if effect.kind == UPDATED]
    if not found:
        return drop_effect(session, pick)
    place, effect = found[pick(len(found))]
    arguments = arguments_at(session, place)
    path = next(path for path in scalar_paths(arguments) if get(arguments, path) == effect.target)
    put(arguments, path, "someone-else")
    return session


def turn_into_error(session: Session, pick: Pick) -> Session:
    found = last_writes(session)
    place, effect = found[pick(len(found))]
    same = [
        p for p, o in writes(session) if effect.kind == UPDATED and (o.type, o.target) == (effect.type, effect.target)
    ]
    ids = {session["events"][p]["payload"]["id"] for p in {place, *same}}
    for event in session["events"]:
        if event["payload"].get("call_id") in ids:
            event["payload"] = {**event["payload"], "output": "Error: refused", "is_error": True}
    return session


NEUTRAL = (
    key_order, spaces, as_float, as_text, extra_read, failed_call, update_twice, overwritten_update, id_order,
    other_words,
)  # fmt: skip
BREAKING = (change_leaf, cross_ids, drop_effect, add_effect, double_creation, swap_target, turn_into_error)
