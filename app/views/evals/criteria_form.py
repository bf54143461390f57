"""The form of a criteria set: a row for each dimension, with the fields of its kind as they were typed."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from app.errors import Invalid
from app.formats.criteria import MAX_DIMENSIONS, RATINGS, read_dimensions

LABELS = {
    "rating": "Rating 1–5", "text": "Text", "numeric": "Number", "select": "Choice", "relation-rank": "Ranking",
}  # fmt: skip
COMMON = ("name", "label", "description", "weight", "importance")
ANCHORS = tuple(f"anchor-{step}" for step in RATINGS)
OWN = {
    "rating": (*ANCHORS, "passes_from"),
    "text": ("match", "keywords", "threshold"),
    "numeric": ("absolute_tolerance", "relative_tolerance"),
    "select": ("options",),
    "relation-rank": (),
}
USUAL = {"weight": "1", "importance": "normal", "match": "semantic", "passes_from": "3"}
NUMBERS = ("weight", "threshold", "absolute_tolerance", "relative_tolerance")
BUTTON = re.compile(r"(add|remove|up|down)-([a-z-]+|\d+)")


@dataclass(frozen=True)
class DimensionRow:
    """One dimension as it was typed."""

    kind: str
    values: Mapping[str, str]

    def get(self, name: str) -> str:
        return self.values.get(name, "")

    def rule(self) -> dict[str, Any]:
        """What is sent to be checked. A number that is none stays a text, and is refused as such."""
        rule: dict[str, Any] = {"kind": self.kind, "importance": self.get("importance")}
        rule |= {name: self.get(name) for name in ("label", "description") if self.get(name)}
        own = OWN[self.kind]
        rule |= {name: _number(self.get(name)) for name in NUMBERS if name in (*COMMON, *own) and self.get(name)}
        if "match" in own:
            rule |= {"match": self.get("match"), "keywords": _lines(self.get("keywords"))}
        if "options" in own:
            rule["options"] = [_option(line) for line in _lines(self.get("options"))]
        if "passes_from" in own:
            rule["anchors"] = {str(step): text for step in RATINGS if (text := self.get(f"anchor-{step}"))}
            rule["passes_from"] = _number(self.get("passes_from"))
        return rule


@dataclass(frozen=True)
class CriteriaForm:
    """A criteria set as it was typed. `fresh` is the row that was just added."""

    name: str = ""
    rows: Sequence[DimensionRow] = ()
    fresh: int | None = None

    @classmethod
    def from_stored(cls, name: str, dimensions: Mapping[str, Any]) -> "CriteriaForm":
        rules = read_dimensions(dimensions)
        return cls(name, [DimensionRow(rule.kind, _texts(each, rule)) for each, rule in rules.items()])

    @classmethod
    def from_request(cls, form: Mapping[str, str]) -> "CriteriaForm":
        places = [place for place in range(MAX_DIMENSIONS) if form.get(f"d-{place}-kind") in LABELS]
        return cls(form.get("name", "").strip(), [_row(form, place) for place in places])

    def pressed(self, button: str) -> "CriteriaForm":
        """The form after one of its buttons."""
        found = BUTTON.fullmatch(button)
        if found is None:
            return self
        action, about = found.groups()
        rows = list(self.rows)
        if action == "add" and about in LABELS and len(rows) < MAX_DIMENSIONS:
            return replace(self, rows=[*rows, DimensionRow(about, USUAL)], fresh=len(rows))
        place = int(about) if about.isdigit() else len(rows)
        if place >= len(rows):
            return self
        row = rows.pop(place)
        if action != "remove":
            rows.insert(max(place - 1, 0) if action == "up" else place + 1, row)
        return replace(self, rows=rows)

    def dimensions(self) -> dict[str, Any]:
        """The dimensions in their order. Raise Invalid for a name that is missing or there twice."""
        wrong, found = {}, {}
        for place, row in enumerate(self.rows):
            name = row.get("name")
            if not name or name in found:
                wrong[f"d-{place}-name"] = "Use each name once." if name else "Enter a name."
            found[name] = {**row.rule(), "position": place}
        if wrong:
            raise Invalid.of(wrong)
        return found

    def place_errors(self, refusal: Invalid) -> dict[str, str]:
        """The sentences of a refusal by the form's fields, from top to bottom."""
        found = dict(refusal.fields)
        for place, row in enumerate(self.rows):
            at = f"dimensions.{row.get('name')[:60]}"
            for name in [one for one in found if one == at or one.startswith(f"{at}.")]:
                found[f"d-{place}-{_field_of(name.removeprefix(at).strip('.'))}"] = found.pop(name)
        return found


def _row(form: Mapping[str, str], place: int) -> DimensionRow:
    kind = form[f"d-{place}-kind"]
    names = (*COMMON, *OWN[kind])
    return DimensionRow(
        kind, {name: form.get(f"d-{place}-{name}", "").replace("\r\n", "\n").strip() for name in names}
    )  # fmt: skip


def _texts(name: str, rule: Any) -> dict[str, str]:
    """A stored dimension as the form shows it."""
    told = rule.model_dump()
    texts = {each: _text(told[each]) for each in (*COMMON[1:], *OWN[rule.kind]) if each in told}
    if rule.kind == "select":
        texts["options"] = "\n".join(map(_option_text, rule.options))
    if rule.kind == "text":
        texts["keywords"] = "\n".join(rule.keywords)
    if rule.kind == "rating":
        texts |= {f"anchor-{step}": text for step, text in rule.anchors.items()}
    return {"name": name, **texts}


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def _number(text: str) -> Any:
    """A number, with a comma or a point, or the text where it is none."""
    try:
        number = float(text.replace(",", "."))
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _option(line: str) -> Any:
    """A line as an option: numbers, true and false are meant as such, unless they are in quotes."""
    try:
        value = json.loads(line)
    except ValueError:
        return line
    return value if isinstance(value, str | int) or (isinstance(value, float) and isfinite(value)) else line


def _option_text(option: Any) -> str:
    plain = str(option) if isinstance(option, str) else json.dumps(option)
    return json.dumps(option, ensure_ascii=False) if isinstance(option, str) and _option(plain) != option else plain


def _field_of(path: str) -> str:
    """The field of a row for a place in its rule."""
    head, _, rest = path.partition(".")
    if head == "anchors":
        return f"anchor-{rest if rest in set('12345') else 1}"
    return head or "name"


def empty_form() -> CriteriaForm:
    return CriteriaForm(rows=[DimensionRow("rating", USUAL)], fresh=None)
