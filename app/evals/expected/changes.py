"""Expected changes as a form holds them: one row each, with the record and the fields that it names."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.evals.compare import builtin_tools
from app.evals.compare.effects import CREATED, RESPONSE, UPDATED, change_of_call
from app.evals.expected.pairs import Pair, read_pairs, write_pairs, write_value
from app.evals.trace import Call, Tool
from app.text.values import Reader

UPDATE, CREATE, SUBMIT, TOOL = "update", "create", "submit", "tool"
KINDS = (UPDATE, CREATE, SUBMIT, TOOL)


@dataclass(frozen=True)
class Change:
    """A row. `of` is the kind of record to create, the criteria to submit under or the tool to use; `record` what is
    updated, what the response is about or what the tool changes. An expected call is a row of kind `tool`."""

    kind: str
    of: str = ""
    record: str = ""
    values: tuple[Pair, ...] = ()

    def with_record(self, record: str) -> "Change":
        return replace(self, record=record)


@dataclass(frozen=True)
class Known:
    """The schemas that tell values apart: of kinds of records by slug, of criteria by id, and the tools by name."""

    kinds: Mapping[str, Mapping[str, Any]]
    criteria: Mapping[str, Mapping[str, Any]]
    tools: Mapping[str, Tool]

    def schema_of_tool(self, name: str) -> Mapping[str, Any]:
        tool = self.tools.get(name)
        return (tool.schema if tool else None) or builtin_tools.schema_of(name) or {}

    def schema_of(self, change: Change, of_record: str | None = None) -> Mapping[str, Any]:
        """What the values of a change may be. `of_record` is the kind of the record that it updates."""
        if change.kind == TOOL:
            return self.schema_of_tool(change.of)
        if change.kind == SUBMIT:
            return self.criteria.get(change.of, {})
        return self.kinds.get(change.of if change.kind == CREATE else of_record or "", {})


def change_of(effect: Mapping[str, Any], known: Known, of_record: str | None = None) -> Change:
    """The row for an effect. Its record is named by its id."""
    kind, of, fields = effect["kind"], effect["type"], effect.get("fields") or {}
    target = None if effect.get("target") is None else str(effect["target"])
    if kind == RESPONSE and of in known.criteria:
        made = Change(SUBMIT, of, target or "")
    elif kind == RESPONSE:
        whole = {"criteriaSetId": of or None, "entityId": target, "values": fields}
        made, fields = Change(TOOL, "submitResponse"), {name: held for name, held in whole.items() if held is not None}
    elif kind == CREATED and of in known.kinds:
        made = Change(CREATE, of)
    elif (kind, of) == (UPDATED, "entity"):
        made = Change(UPDATE, record=target or "")
    else:
        # A tool that is not built in makes changes of its own name.
        made = Change(TOOL, builtin_tools.tools_that_make(kind, of)[0], target or "")
    pairs = write_pairs(fields, known.schema_of(made, of_record), nested=made.kind == TOOL)
    return replace(made, values=tuple(pairs))


def effect_of(change: Change, known: Known, of_record: str | None = None) -> dict[str, Any]:
    """The effect that a row describes, as `expected.effects` has it; its record is named by its id already. ValueError
    where two of its values cannot be read together."""
    fields = read_pairs(change.values, known.schema_of(change, of_record), nested=change.kind == TOOL)
    if change.kind == UPDATE:
        return {"kind": UPDATED, "type": "entity", "target": change.record, "fields": fields}
    # What is left empty where nothing was before is not given at all.
    given = {name: value for name, value in fields.items() if value is not None}
    if change.kind == CREATE:
        return {"kind": CREATED, "type": change.of, "target": None, "fields": given}
    if change.kind == SUBMIT:
        return {"kind": RESPONSE, "type": change.of, "target": change.record or None, "fields": fields}
    if change.record and change.of not in builtin_tools.WRITES:
        return {"kind": UPDATED, "type": change.of, "target": change.record, "fields": given}
    arguments = {"id": change.record, **given} if change.record else given
    tool = known.tools.get(change.of) or Tool(change.of)
    read = Reader().arguments(arguments, tool.schema)
    found = change_of_call(Call("", tool.name, read, None, False, True, 0, tool))
    return {"kind": found.kind, "type": found.type, "target": found.target, "fields": found.fields}


def describe_effect(effect: Mapping[str, Any], kinds: Collection[str], names: Mapping[str, str]) -> str:
    """An effect in a few words: `update Halden: stage = won`. `names` are those of records and criteria, by id."""
    kind, of, fields = effect["kind"], effect["type"], effect.get("fields") or {}
    target = None if effect.get("target") is None else str(effect["target"])
    about = names.get(target or "", target)
    if kind == RESPONSE:
        words = f"submit {names.get(of, of)}".strip() + (f" for {about}" if about else "")
    elif kind == CREATED and of in kinds:
        words = f"create {of}"
    elif (kind, of) == (UPDATED, "entity"):
        words = f"update {about}"
    else:
        words = builtin_tools.tools_that_make(kind, of)[0] + (f" {about}" if about else "")
    values = ", ".join(f"{name} = {write_value(value) or 'empty'}" for name, value in fields.items())
    return f"{words}: {values}" if values else words


def describe_call(call: Mapping[str, Any]) -> str:
    """An expected call in a few words: `searchEntities: entityType = deal`."""
    values = ", ".join(f"{name} = {text}" for name, text in write_pairs(call.get("arguments") or {}, nested=True))
    return f"{call['name']}: {values}" if values else str(call["name"])
