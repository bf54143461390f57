"""What a session changed. Failed calls and calls that only read change nothing; the last write counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from app.evals.compare import builtin_tools
from app.evals.trace import Call, Event, Run
from app.text.values import TRUNCATED, Leaves, Reader, equal, from_json, leaves, shorten
from app.text.words import split_name

CREATED, UPDATED, RESPONSE = "created", "updated", "response"
# Ids at least this long are replaced everywhere; a shorter one could be any number or word.
MIN_ID_CHARS = 4


@dataclass(frozen=True)
class Effect:
    """One change: `fields` in canonical form. `source` and confidence of a submitted value are not part of it, and
    neither is `name`, which is what people call the target."""

    kind: str
    type: str
    target: Any
    fields: Any
    sequence: int = 0
    call_id: str | None = None
    returned: Any = None
    name: str | None = None

    @cached_property
    def print(self) -> str:
        """Equal for effects that are the same to the letter; others may be equal too."""
        return repr((self.target, self.fields))

    @cached_property
    def leaves(self) -> Leaves:
        """What is compared: the target and every leaf of the fields. An effect without fields has only its target."""
        found: Leaves = {} if self.fields == {} else leaves(self.fields, ("fields",))
        if self.target is not None:
            found[("target",)] = self.target
        return found

    def as_json(self) -> dict[str, Any]:
        """The effect as a page or a file shows it."""
        short = {"target": shorten(self.target), "fields": shorten(self.fields, 4000)}
        return {"kind": self.kind, "type": self.type, **short, "sequence": self.sequence}

    @property
    def words(self) -> str:
        """The effect in a few words, such as `update_reservation_flights 1N99U6` or `entity Project Quarry`."""
        return f"{self.type} {shorten(self.name or self.target, 60)}" if self.target is not None else self.type


def effects_of(run: Run, calls: Sequence[Call], reader: Reader) -> tuple[list[Effect], dict[Any, str]]:
    """What the session changed, in order; and the ids that its own creations returned, which are `$1`, `$2`… in it."""
    return final_effects(changes_of(run, calls, reader))


def changes_of(run: Run, calls: Sequence[Call], reader: Reader) -> list[Effect]:
    """Every change by itself, in order and under the ids that were used."""
    made = [change_of_call(call) for call in calls if call.writes and not call.failed]
    made += _event_effects(run.events, made, reader)
    return sorted(made, key=lambda effect: effect.sequence)


def final_effects(made: list[Effect]) -> tuple[list[Effect], dict[Any, str]]:
    """What is left of changes in the end, and shared names for the ids that creations returned."""
    created = [each.returned for each in made if each.kind != UPDATED and isinstance(each.returned, str | int)]
    names = {found: f"${number}" for number, found in enumerate(dict.fromkeys(created), 1)}
    return merge_updates(rename_effects(made, names)), names


def change_of_call(call: Call) -> Effect:
    """What a call of a tool that writes changed."""
    if not isinstance(call.arguments, dict):
        return Effect(CREATED, call.name, None, TRUNCATED, call.sequence, call.id)
    ours = builtin_tools.change_of(call.name, call.arguments)
    if ours is not None:
        kind, of, target, fields = ours
        fields = plain_values(fields) if kind == RESPONSE else fields
        if kind == UPDATED:
            return Effect(kind, of, target, fields, call.sequence, call.id, name=_returned_name(call))
        return Effect(kind, of, target, fields, call.sequence, call.id, _returned_id(call))
    name = target_of(call)
    if name is None:
        return Effect(CREATED, call.name, None, call.arguments, call.sequence, call.id, _returned_id(call))
    fields = {key: value for key, value in call.arguments.items() if key != name}
    return Effect(UPDATED, call.name, call.arguments[name], fields, call.sequence, call.id)


def target_of(call: Call) -> str | None:
    """The argument that names what is changed: as the definition says, else `id`, else `<noun>_id` of the name."""
    given: Mapping[str, Any] = call.arguments
    if call.tool.target is not None and call.tool.target in given:
        return call.tool.target
    if "id" in given:
        return "id"
    return next((key for key in given if _is_id_of(key, call.name)), None)


@lru_cache(4096)
def _is_id_of(key: str, tool: str) -> bool:
    """Whether an argument names the thing in the tool's name: `reservation_id` of `update_reservation_flights`."""
    words = split_name(key)
    return len(words) > 1 and words[-1] == "id" and set(words[:-1]) <= set(split_name(tool))


def _returned_id(call: Call) -> Any:
    """The id of what a call created, as its result says."""
    output = from_json(call.output)
    if not isinstance(output, dict):
        return None
    found = output.get("id")
    if found is None:
        found = next((output[key] for key in output if isinstance(key, str) and _is_id_of(key, call.name)), None)
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None


def _returned_name(call: Call) -> str | None:
    """What a record is called, as the result of a call says."""
    output = from_json(call.output)
    name = output.get("name") if isinstance(output, dict) else None
    return name if isinstance(name, str) and name else None


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Submitted values without where they were read and how sure the agent was."""
    return {
        name: given["value"] if isinstance(given, dict) and "value" in given else given
        for name, given in values.items()
    }


def _event_effects(events: Sequence[Event], called: Sequence[Effect], reader: Reader) -> list[Effect]:
    """Changes that are recorded by events and not explained by a call."""
    by_id = {effect.call_id for effect in called}
    known = {_identity(effect) for effect in called}
    found: list[Effect] = []
    updates: dict[str, list[Event]] = {}
    for event in events:
        if event.event_type not in _EVENTS or (event.payload.get("call_id") or "") in by_id:
            continue
        if event.event_type == "entity.updated":
            updates.setdefault(str(event.payload.get("entity_id")), []).append(event)
            continue
        effect = _event_effect(event, reader)
        if _identity(effect)[1] is None or _identity(effect) not in known:
            found.append(effect)
    updated = (_update_effect(same, reader) for target, same in updates.items() if (UPDATED, target) not in known)
    return found + [effect for effect in updated if effect is not None]


def _identity(effect: Effect) -> tuple[str, Any]:
    """What was created or changed. A target may be an object or a list, which is compared by its repr."""
    named = effect.target if effect.kind == UPDATED else effect.returned
    return effect.kind, repr(named) if isinstance(named, dict | list) else named


_RECORDS = {
    "knowledge.changed": ("knowledge", ("id", "row_id", "knowledge_id")),
    "feedback.reviewed": ("feedback", ("feedback_id", "id")),
    "agent.updated": ("agent", ("agent_id", "id")),
}
_EVENTS = {"entity.created", "entity.updated", "response.submitted", *_RECORDS}
_NOT_COMPARED = frozenset({"call_id", "notes", "reason", "outcome", "version"})


def _event_effect(event: Event, reader: Reader) -> Effect:
    payload = event.payload
    if event.event_type == "entity.created":
        fields = _object(payload.get("fields"))
        named = {"name": payload["name"], **fields} if "name" in payload else fields
        kind = str(payload.get("entity_type"))
        return Effect(CREATED, kind, None, reader.value(named), event.sequence, returned=payload.get("entity_id"))
    if event.event_type == "response.submitted":
        values = plain_values(_object(payload.get("values")))
        target, criteria = payload.get("entity_id"), str(payload.get("criteria_set_id") or "")
        returned = payload.get("response_id")
        return Effect(RESPONSE, criteria, target, reader.value(values), event.sequence, returned=returned)
    kind, keys = _RECORDS[event.event_type]
    target = next((payload[key] for key in keys if payload.get(key) is not None), None)
    rest = {name: value for name, value in payload.items() if name not in keys and name not in _NOT_COMPARED}
    return Effect(UPDATED, kind, target, reader.value(rest), event.sequence)


def _object(given: Any) -> dict[str, Any]:
    return given if isinstance(given, dict) else {}


def _update_effect(events: Sequence[Event], reader: Reader) -> Effect | None:
    """All updates of one record together. A field that ends as it began is no change; None when nothing is left."""
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for event in events:
        for name, change in _object(event.payload.get("changes")).items():
            pair = change if isinstance(change, dict) and "to" in change else {"to": change}
            before.setdefault(name, reader.member(name, pair["from"]) if "from" in pair else TRUNCATED)
            after[name] = reader.member(name, pair["to"])
    fields = {
        name: value for name, value in after.items() if before[name] is TRUNCATED or not equal(value, before[name])
    }
    last = events[-1]
    return Effect(UPDATED, "entity", last.payload.get("entity_id"), fields, last.sequence) if fields else None


def rename_effects(effects: list[Effect], names: Mapping[Any, str]) -> list[Effect]:
    """The changes with the ids of things that the session made under the names of both sessions."""
    if not names:
        return effects
    # An id is replaced wherever it is a target, however short it is.
    return [
        replace(
            one,
            target=one.target if isinstance(one.target, dict | list) else rename_ids(one.target, names, "id"),
            fields=rename_ids(one.fields, names),
        )
        for one in effects
    ]


def rename_ids(value: Any, names: Mapping[Any, str], key: str = "") -> Any:
    """A canonical value in which the ids of things that the session made have the names of both sessions."""
    if isinstance(value, dict):
        return {name: rename_ids(held, names, name) for name, held in value.items()}
    if isinstance(value, list):
        return type(value)(rename_ids(held, names, key) for held in value)
    long = isinstance(value, str) and len(value) >= MIN_ID_CHARS
    if long or (isinstance(value, str | int) and not isinstance(value, bool) and split_name(key)[-1:] == ["id"]):
        return names.get(value, value)
    return value


def merge_updates(effects: list[Effect]) -> list[Effect]:
    """The last write of each target: later leaves win, lists are replaced whole. Creations are never merged."""
    kept: list[Effect] = []
    place: dict[tuple[str, str], int] = {}
    for effect in effects:
        key = (effect.type, str(effect.target))
        if effect.kind != UPDATED or effect.target is None:
            kept.append(effect)
        elif key in place:
            earlier = kept[place[key]]
            kept[place[key]] = replace(effect, fields=overlay(earlier.fields, effect.fields))
        else:
            place[key] = len(kept)
            kept.append(effect)
    return kept


def overlay(earlier: Any, later: Any) -> Any:
    """A value with another written over it: leaf by leaf where both are objects, else whole."""
    if not isinstance(earlier, dict) or not isinstance(later, dict):
        return later
    over = {name: overlay(earlier[name], held) if name in earlier else held for name, held in later.items()}
    return {**earlier, **over}
