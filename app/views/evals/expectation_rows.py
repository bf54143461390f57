"""The rows of expected calls and changes as a form shows them: what can be picked, and how each value is typed."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.evals.expected.changes import CREATE, SUBMIT, TOOL, UPDATE, Change
from app.evals.expected.pairs import member_schema, types_of
from app.services.evals.drafts import Material
from app.services.evals.expected_changes import Choices, kinds_of

WORDS = {UPDATE: "Update", CREATE: "Create", SUBMIT: "Submit", TOOL: "Use"}
MAX_NAMES = 80
LONG = 60
Option = tuple[str, str]
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class ValueField:
    """One pair of a row. `widget` is text, number, date, area or select; a select has its `options`."""

    name: str
    text: str
    widget: str
    options: Sequence[Option]


@dataclass(frozen=True)
class RowField:
    """A row. `names` are the fields that can be picked, none where any name can be written. `picks` are the kinds of
    records, criteria or tools that it may be about; `empties` says that an empty value means an empty field."""

    change: Change
    word: str
    names: Sequence[Option]
    picks: Sequence[Option]
    values: Sequence[ValueField]
    empties: bool


def show_changes(changes: Sequence[Change], choices: Choices, *, actor: Any) -> list[RowField]:
    """The rows of changes. One query."""
    kinds = kinds_of(changes, actor=actor)
    return [_show(row, choices, of_record) for row, of_record in zip(changes, kinds, strict=True)]


def show_calls(calls: Sequence[Change], choices: Choices) -> list[RowField]:
    """The rows of calls, with an empty one where there is none."""
    return [_show(row, choices, None) for row in calls or (Change(TOOL),)]


def _show(row: Change, choices: Choices, of_record: str | None) -> RowField:
    schema = choices.known.schema_of(row, of_record)
    names = _tool_names(schema, choices) if row.kind == TOOL else _field_names(schema)
    if row.kind == UPDATE:
        # The name of a record is not one of its fields.
        names = [one for one in names if one[0] != "name" or "name" in _own_fields(of_record, choices)]
    # A name that is not among them is kept, to be seen and put right.
    more = [(name, name) for name, _ in row.values if name and name not in dict(names)] if names else []
    pairs = row.values or (("", ""),)
    return RowField(
        change=row,
        word=WORDS[row.kind],
        names=[*names, *dict.fromkeys(more)],
        picks=_picks(row, choices),
        values=[_value_field(name, text, _schema_at(schema, name, row.kind == TOOL)) for name, text in pairs],
        empties=row.kind in (UPDATE, SUBMIT),
    )


def _own_fields(slug: str | None, choices: Choices) -> Mapping[str, Any]:
    kind = choices.kinds.get(slug or "")
    return kind.fields if kind else {}


def _picks(row: Change, choices: Choices) -> list[Option]:
    found: list[Option] = []
    if row.kind == CREATE:
        found = [(slug, kind.name) for slug, kind in choices.kinds.items() if kind.archived_at is None]
    if row.kind == SUBMIT:
        found = [(criteria_id, one.name) for criteria_id, one in choices.criteria.items()]
    return found if not found or row.of in ("", *dict(found)) else [*found, (row.of, row.of)]


def _field_names(schema: Mapping[str, Any]) -> list[Option]:
    properties = schema.get("properties") or {}
    return [(name, _label(name, about)) for name, about in list(properties.items())[:MAX_NAMES]]


def _label(name: str, about: Any) -> str:
    title = about.get("title") if isinstance(about, Mapping) else None
    return title if isinstance(title, str) and title else name


# Objects that our own tools take: their members are those of records and criteria.
_OF_RECORDS, _OF_CRITERIA = ("changes", "fields"), ("values",)


def _tool_names(schema: Mapping[str, Any], choices: Choices) -> list[Option]:
    properties = schema.get("properties") or {}
    found: list[str] = []
    for name, about in properties.items():
        members: Iterable[str] = ()
        if types_of(about if isinstance(about, Mapping) else {}) == ["object"]:
            members = about.get("properties") or _members_of(name, choices)
        found += [f"{name}.{member}" for member in members] or [name]
    return [(name, name) for name in dict.fromkeys(found)][:MAX_NAMES]


def _members_of(name: str, choices: Choices) -> list[str]:
    if name in _OF_RECORDS:
        return [field for kind in choices.kinds.values() for field in kind.fields]
    return [each for one in choices.criteria.values() for each in one.dimensions] if name in _OF_CRITERIA else []


def _schema_at(schema: Mapping[str, Any], name: str, nested: bool) -> Mapping[str, Any]:
    whole = not nested or name in (schema.get("properties") or {})
    for part in [name] if whole else name.split("."):
        schema = member_schema(schema, part)
    return schema


def _value_field(name: str, text: str, schema: Mapping[str, Any]) -> ValueField:
    kinds = types_of(schema)
    options = [str(one) for one in schema["enum"] if one is not None] if isinstance(schema.get("enum"), list) else []
    if kinds == ["boolean"]:
        options = ["true", "false"]
    if options:
        return ValueField(
            name, text, "select", [(one, one) for one in dict.fromkeys([*options, *([text] if text else [])])]
        )
    if kinds and set(kinds) <= {"number", "integer"}:
        return ValueField(name, text, "number", ())
    if schema.get("format") == "date" and (not text or _DAY.fullmatch(text)):
        return ValueField(name, text, "date", ())
    long = "\n" in text or len(text) > LONG or {"array", "object"} & set(kinds)
    return ValueField(name, text, "area" if long else "text", ())


def tool_names(material: Material) -> list[str]:
    """The tools that can be named: first those that the session called, then those that it was offered, then ours."""
    called = {str(event.payload.get("name")) for event in material.run.events if event.event_type == "tool.call"}
    offered = material.run.tools
    names = material.choices.tools.named
    return sorted(names, key=lambda name: (name not in called, name not in offered, name))
