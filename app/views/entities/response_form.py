"""The form with which a person submits a response about a record."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from app.errors import Invalid
from app.formats.response_values import MAX_SOURCE, MAX_TEXT, NUMERIC, RANKED
from app.models import CriteriaSet, EntityType
from app.views.format import field_words
from app.views.forms import form_text

NUMBER = re.compile(r"-?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?", re.ASCII)


@dataclass(frozen=True)
class ResponseInput:
    """One field of the criteria set: `kind` is number, list, choice or text; `value` and `source` are as typed."""

    name: str
    label: str
    kind: str
    options: tuple[str, ...] = ()
    value: str = ""
    source: str = ""

    @property
    def most(self) -> int:
        return 40 if self.kind == "number" else MAX_TEXT

    def read(self) -> Any:
        """The value that was typed, in the type that the criterion wants."""
        if self.kind == "list":
            return [line.strip() for line in self.value.split("\n") if line.strip()]
        if self.kind == "number" and NUMBER.fullmatch(self.value):
            text = self.value.replace(",", "")
            return float(text) if "." in text else int(text)
        return self.value


@dataclass(frozen=True)
class ResponseForm:
    """Open when `chosen` is set; it was `asked` for in vain where there is no criteria set."""

    sets: Sequence[CriteriaSet] = ()
    chosen: CriteriaSet | None = None
    inputs: Sequence[ResponseInput] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    asked: bool = False

    @property
    def longest_source(self) -> int:
        return MAX_SOURCE

    def values(self) -> dict[str, Any]:
        """What was filled in, each with its source."""
        filled = [one for one in self.inputs if one.value]
        return {one.name: {"value": one.read(), **({"source": one.source} if one.source else {})} for one in filled}

    def with_errors(self, refusal: Invalid) -> ResponseForm:
        """The same form with a sentence under each field that is wrong; the first field stands for the whole."""
        known = {f"value.{one.name}" for one in self.inputs}
        named = {name.replace("values.", "value.", 1): said for name, said in refusal.fields.items()}
        errors = {name: said for name, said in named.items() if name in known}
        if not errors and self.inputs:
            errors = {f"value.{self.inputs[0].name}": "Fill in at least one field."}
        return replace(self, errors=errors)


def blank_form(sets: Sequence[CriteriaSet], wanted: UUID | None, kind: EntityType) -> ResponseForm:
    """The form for the wanted criteria set, else for the one that has most fields with the record in common."""
    if not sets:
        return ResponseForm(asked=True)
    nearest = max(sets, key=lambda row: len(row.dimensions.keys() & kind.fields.keys()))
    chosen = next((row for row in sets if row.id == wanted), nearest)
    return ResponseForm(sets, chosen, [_input(name, rule, kind.fields) for name, rule in chosen.dimensions.items()])


def posted_form(sets: Sequence[CriteriaSet], wanted: UUID | None, kind: EntityType) -> ResponseForm:
    """The form as it was sent."""
    if not any(row.id == wanted for row in sets):
        raise Invalid("Choose a criteria set.")
    blank = blank_form(sets, wanted, kind)
    inputs = [
        replace(one, value=form_text(f"value.{one.name}"), source=form_text(f"source.{one.name}"))
        for one in blank.inputs
    ]
    return replace(blank, inputs=inputs)


def _input(name: str, rule: Any, fields: Mapping[str, Any]) -> ResponseInput:
    rule, schema = (given if isinstance(given, Mapping) else {} for given in (rule, fields.get(name)))
    label = field_title(name, schema)
    if rule.get("kind") in NUMERIC:
        return ResponseInput(name, label, "number")
    if rule.get("kind") in RANKED:
        return ResponseInput(name, label, "list")
    options = rule.get("options") or schema.get("enum")
    if isinstance(options, list) and options and all(isinstance(option, str) for option in options):
        return ResponseInput(name, label, "choice", tuple(options))
    return ResponseInput(name, label, "text")


def field_title(name: str, schema: Any) -> str:
    """What a field is called: its schema's title, else its name in words."""
    given = schema.get("title") if isinstance(schema, Mapping) else None
    return given if isinstance(given, str) and given else field_words(name).capitalize()
