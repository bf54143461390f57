"""What should have happened, as a form: parts that are ticked, chips, and rows that are added and removed without a
script too. Fields are named by their place: `change-0-record`, `change-0-field-1`, `change-0-value-1`. What a button
adds or removes is its value: `add-call`, `add-value-change-0`, `remove-change-0-value-1`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from werkzeug.datastructures import MultiDict

from app.errors import Invalid
from app.evals.expected.changes import KINDS, TOOL, UPDATE, Change
from app.evals.expected.expectations import MAX_CALLS
from app.services.evals.drafts import Draft, Material, draft_of

MENTION, CALL, KEPT, CHANGE, ANSWER, RIGHT = "mention", "call", "kept", "change", "answer", "right"
PARTS = (MENTION, CALL, KEPT, CHANGE, ANSWER, RIGHT)
# Chips: the field of those that are there, and of the one that is typed.
CHIPS = {"mentions": "mention", "must_not": "must-not", "no_calls": "no-call"}
MAX_ROWS = 60
MAX_VALUES = 60
_ROW = re.compile(r"(call|change)-(\d{1,2})-(?:kind|tool)")
_VALUE = re.compile(r"(call|change)-(\d{1,2})-(?:field|name)-(\d{1,2})")
_ROW_PLACE = re.compile(r"(?:expected\.)?(calls|changes|effects)(?:\.(\d+))?(?:\.(of|record|values)(?:\.(\d+))?)?")
# The fields from top to bottom: the first that is wrong gets the focus.
_SECTIONS = ("should", "mention-new", "must-not-new", "call", "no-call-new", "change", "nothing", "answer")
# The field for each part of what a draft comes to.
_PLACES = {
    "expected.mentions": "mention-new",
    "expected.must_not_mention": "must-not-new",
    "expected.no_calls": "no-call-new",
    "expected.answer": "answer",
    "recorded_is_right": "should",
    "kept": "should",
}


@dataclass(frozen=True)
class ExpectationForm:
    """`should` lists the ticked parts; only those count. `nothing` counts regardless of `changes`. `fresh` is the field
    of the row that was just added."""

    should: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    no_calls: tuple[str, ...] = ()
    # What is typed and not a chip yet counts all the same.
    typed: Mapping[str, str] = field(default_factory=dict)
    calls: tuple[Change, ...] = ()
    changes: tuple[Change, ...] = ()
    nothing: bool = False
    answer: str = ""
    fresh: str = ""

    @classmethod
    def from_session(cls, material: Material, preferred: str | None) -> ExpectationForm:
        """Start from a better answer in the feedback, if there is one. Facts of a wrong answer are not ticked."""
        wrong = material.complained or preferred
        return cls(
            should=(ANSWER,) if material.complained and preferred else (),
            mentions=() if wrong else tuple(material.facts),
            changes=_offered(material),
            answer=preferred or "",
        )

    @classmethod
    def from_golden(cls, golden: Mapping[str, Any], material: Material, *, actor: Any) -> ExpectationForm:
        """Start from what the golden is held to."""
        draft = draft_of(golden.get("expected") or {}, material.choices, actor=actor)
        held = {
            MENTION: draft.mentions or draft.must_not_mention,
            CALL: draft.calls or draft.no_calls,
            CHANGE: draft.changes is not None,
            ANSWER: draft.answer,
            RIGHT: golden.get("recorded_is_right"),
        }
        return cls(
            should=tuple(part for part in PARTS if held.get(part)),
            mentions=draft.mentions,
            must_not=draft.must_not_mention,
            no_calls=draft.no_calls,
            calls=draft.calls,
            changes=draft.changes or _offered(material),
            nothing=draft.changes == (),
            answer=draft.answer,
        )

    @classmethod
    def from_request(cls, form: MultiDict[str, str]) -> ExpectationForm:
        chips: dict[str, Any] = {
            name: tuple(dict.fromkeys(filter(None, form.getlist(place)))) for name, place in CHIPS.items()
        }
        return cls(
            **chips,
            should=tuple(part for part in form.getlist("should") if part in PARTS),
            typed={place: form.get(f"{place}-new", "").strip() for place in CHIPS.values()},
            calls=_read_rows(form, "call", lambda at: Change(TOOL, of=form.get(f"{at}-tool", "").strip())),
            changes=_read_rows(form, "change", lambda at: _read_change(form, at)),
            nothing=form.get("nothing") == "1",
            answer=form.get("answer", "").strip(),
        )

    def with_part(self, part: str) -> ExpectationForm:
        return replace(self, should=(*self.should, part))

    def draft(self) -> Draft:
        """What the ticked parts say, or Invalid with the sentences that belong under their fields."""
        self._check_parts()
        mention, call = MENTION in self.should, CALL in self.should
        draft = Draft(
            mentions=self._chips("mentions") if mention else (),
            must_not_mention=self._chips("must_not") if mention else (),
            calls=self.calls if call else (),
            no_calls=self._chips("no_calls") if call else (),
            changes=(() if self.nothing else self.changes) if CHANGE in self.should else None,
            answer=self.answer if ANSWER in self.should else "",
        )
        if mention and not draft.mentions and not draft.must_not_mention:
            raise _wrong("mention-new", "Add a fact, or untick this part.")
        if call and not draft.calls and not draft.no_calls:
            raise _wrong("call-0-tool", "Pick a tool, or untick this part.")
        if draft.changes == () and not self.nothing:
            raise _wrong("nothing", "Add a change, tick that nothing may change, or untick this part.")
        if len(draft.changes or ()) > MAX_CALLS:
            raise _wrong("nothing", f"At most {MAX_CALLS} changes.")
        if ANSWER in self.should and not self.answer:
            raise _wrong("answer", "Write the answer, or untick this part.")
        return draft

    def _check_parts(self) -> None:
        if RIGHT in self.should and len(self.should) > 1:
            raise _wrong("should", "Choose what should have happened, or that the recording is right. Not both.")
        if self.should == (KEPT,):
            raise _wrong("should", "Add what it should have answered or called, or choose that the recording is right.")
        if KEPT in self.should and CHANGE in self.should:
            raise _wrong("should", "Choose that its changes were right, or what it should have changed. Not both.")

    def _chips(self, name: str) -> tuple[str, ...]:
        typed = self.typed.get(CHIPS[name], "")
        return tuple(dict.fromkeys((*getattr(self, name), *((typed,) if typed else ()))))

    def without_blanks(self) -> ExpectationForm:
        """The form without the rows and values in which nothing was written, and with what was typed as chips."""
        return replace(
            self,
            mentions=self._chips("mentions"),
            must_not=self._chips("must_not"),
            no_calls=self._chips("no_calls"),
            calls=_filled(self.calls),
            changes=_filled(self.changes),
            typed={},
            fresh="",
        )

    def pressed(self, button: str) -> ExpectationForm:
        """The form after one of its buttons: with a chip or a row more, or a row less."""
        verb, _, what = button.partition("-")
        if verb == "add" and what in CHIPS.values():
            name = next(name for name, place in CHIPS.items() if place == what)
            typed = {**self.typed, what: ""}
            chips: dict[str, Any] = {name: self._chips(name)}
            return replace(self, **chips, typed=typed, fresh=f"{what}-new")
        if verb == "add" and what == "call" and len(self.calls) < MAX_ROWS:
            return replace(self, calls=(*self.calls, Change(TOOL)), fresh=f"call-{len(self.calls)}-tool")
        if verb == "add" and what in KINDS and len(self.changes) < MAX_ROWS:
            fresh = f"change-{len(self.changes)}-{'record' if what == UPDATE else 'of'}"
            return replace(self, changes=(*self.changes, Change(what)), fresh=fresh, nothing=False)
        return self._pressed_in_row(verb, what)

    def _pressed_in_row(self, verb: str, what: str) -> ExpectationForm:
        found = re.fullmatch(r"(value-)?(call|change)-(\d{1,2})(?:-value-(\d{1,2}))?", what)
        rows = list(getattr(self, f"{found[2]}s")) if found else []
        if found is None or int(found[3]) >= len(rows):
            return self
        of, place = found[2], int(found[3])
        row, fresh = rows[place], ""
        if verb == "add" and found[1] and len(row.values) < MAX_VALUES:
            # The row that a form shows where there is none yet becomes the first.
            values = (*(row.values or (("", ""),)), ("", ""))
            rows[place] = replace(row, values=values)
            fresh = f"{of}-{place}-{'name' if of == 'call' else 'field'}-{len(values) - 1}"
        elif verb == "remove" and found[4]:
            rows[place] = replace(row, values=tuple(one for at, one in enumerate(row.values) if at != int(found[4])))
        elif verb == "remove" and not found[1]:
            del rows[place]
        after: dict[str, Any] = {f"{of}s": tuple(rows)}
        return replace(self, **after, fresh=fresh)

    def place_of(self, name: str) -> str:
        """The form's field for a place in a draft or in what it comes to."""
        for part, place in _PLACES.items():
            if name == part or name.startswith(f"{part}."):
                return place
        within = re.fullmatch(
            r"(?:expected\.)?(calls|changes|effects)(?:\.(\d+))?(?:\.(of|record|values)(?:\.(\d+))?)?", name
        )
        if within is None:
            return name
        if within[1] == "calls":
            call = f"call-{within[2] or 0}"
            return f"{call}-value-{within[4]}" if within[3] == "values" else f"{call}-tool"
        if within[2] is None:
            return "nothing" if self.nothing or not self.changes else self._lead(0)
        row = int(within[2])
        if within[3] == "values":
            return f"change-{row}-value-{within[4]}"
        return f"change-{row}-{within[3]}" if within[3] else self._lead(row)

    def _lead(self, place: int) -> str:
        """The field of a change that says what is changed."""
        kind = self.changes[place].kind if place < len(self.changes) else UPDATE
        return f"change-{place}-{'record' if kind == UPDATE else 'of'}"


def order_of(name: str) -> tuple[int, ...]:
    """The position of a field in the form, to sort by."""
    row = re.fullmatch(r"(call|change)-(\d+)-([a-z]+)(?:-(\d+))?", name)
    section = row[1] if row else name
    place = _SECTIONS.index(section) if section in _SECTIONS else len(_SECTIONS)
    if row is None:
        return (place,)
    return (place, int(row[2]), int(row[4] or -1), row[3] == "value")


def _wrong(name: str, sentence: str) -> Invalid:
    return Invalid(sentence, {name: sentence})


def _offered(material: Material) -> tuple[Change, ...]:
    """What was recorded. More rows than the form takes are not offered; what was changed still counts as recorded."""
    return tuple(material.recorded) if len(material.recorded) <= MAX_CALLS else ()


def _read_rows(form: MultiDict[str, str], part: str, read: Callable[[str], Change]) -> tuple[Change, ...]:
    places = sorted({int(found[2]) for name in form if (found := _ROW.fullmatch(name)) and found[1] == part})
    values: dict[int, list[int]] = {}
    for name in form:
        found = _VALUE.fullmatch(name)
        if found and found[1] == part:
            values.setdefault(int(found[2]), []).append(int(found[3]))
    return tuple(
        replace(read(f"{part}-{place}"), values=_read_values(form, part, place, sorted(set(values.get(place, ())))))
        for place in places[:MAX_ROWS]
    )


def _read_values(form: MultiDict[str, str], part: str, row: int, places: Iterable[int]) -> tuple[tuple[str, str], ...]:
    name = "name" if part == "call" else "field"
    return tuple(
        (form.get(f"{part}-{row}-{name}-{place}", "").strip(), form.get(f"{part}-{row}-value-{place}", "").strip())
        for place in places
    )


def _read_change(form: MultiDict[str, str], at: str) -> Change:
    kind = form.get(f"{at}-kind", "")
    of, record = (form.get(f"{at}-{name}", "").strip() for name in ("of", "record"))
    return Change(kind if kind in KINDS else UPDATE, of, record)


def _filled(rows: Iterable[Change]) -> tuple[Change, ...]:
    named = (replace(row, values=tuple(pair for pair in row.values if any(pair))) for row in rows)
    return tuple(row for row in named if row.of or row.record or row.values)
