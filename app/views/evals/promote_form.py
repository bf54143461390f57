"""The form that promotes a session: as it opens, and as it was sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flask import request

from app.errors import Invalid, Problem
from app.evals.expected.expectations import MAX_CALLS
from app.formats.ids import parse_id
from app.services.evals.golden import DEFAULT_SET
from app.services.evals.promotion import Incomplete, Offer, Promotion

PARTS = ("mention", "call", "kept", "change", "answer", "right")
# The fields from top to bottom: the first that is wrong gets the focus.
ORDER = (
    "confirm_incomplete",
    "set",
    "note",
    "should",
    "more_facts",
    "must_not",
    "calls",
    "no_calls",
    "changes",
    "answer",
    "criteria",
)
# The form field for each field of a promotion.
PLACES = {
    "expected.mentions": "more_facts",
    "expected.must_not_mention": "must_not",
    "expected.no_calls": "no_calls",
    "expected.answer": "answer",
    "criteriaSetId": "criteria",
    "recorded_is_right": "should",
    "kept": "should",
}


@dataclass(frozen=True)
class PromoteForm:
    """`should` lists the ticked parts of "What should have happened?"; `facts` are those of the answer. `nothing` says
    that nothing may change, regardless of the lines in `changes`."""

    set_name: str = DEFAULT_SET
    note: str = ""
    criteria: str = ""
    should: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    more_facts: str = ""
    must_not: str = ""
    calls: str = ""
    no_calls: str = ""
    changes: str = ""
    nothing: bool = False
    answer: str = ""
    confirm_incomplete: bool = False
    errors: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_offer(cls, offer: Offer, set_name: str) -> PromoteForm:
        """Start from a better answer in the feedback, if there is one. Facts of an answer with a complaint are not
        suggested; those of any other are ticked but only count once “mention” is."""
        return cls(
            set_name=set_name,
            should=("answer",) if offer.complained and offer.preferred else (),
            facts=() if offer.complained or offer.preferred else tuple(offer.facts),
            # More lines than the form takes are not offered; what was changed still counts as recorded.
            changes="\n".join(offer.changes) if len(offer.changes) <= MAX_CALLS else "",
            answer=offer.preferred or "",
        )

    @classmethod
    def from_request(cls) -> PromoteForm:
        form = request.form
        return cls(
            set_name=form.get("set", "").strip(),
            note=form.get("note", "").strip(),
            criteria=form.get("criteria", ""),
            should=tuple(part for part in form.getlist("should") if part in PARTS),
            facts=tuple(dict.fromkeys(form.getlist("facts"))),
            more_facts=form.get("more_facts", ""),
            must_not=form.get("must_not", ""),
            calls=form.get("calls", ""),
            no_calls=form.get("no_calls", ""),
            changes=form.get("changes", ""),
            nothing=form.get("nothing") == "1",
            answer=form.get("answer", "").strip(),
            confirm_incomplete=form.get("confirm_incomplete") == "1",
        )

    def promotion(self) -> Promotion:
        """What was sent, or Invalid with the sentences that belong under its fields."""
        right = "right" in self.should
        if right and len(self.should) > 1:
            raise _wrong("should", "Either something else should have happened, or the recording is right; not both.")
        if self.should == ("kept",):
            raise _wrong("should", "Say also what it should have said or called, or that the recording is right.")
        if "kept" in self.should and "change" in self.should:
            raise _wrong(
                "should", "Either what it changed was right, or it should have changed something else; not both."
            )
        criteria = parse_id(self.criteria) if self.criteria else None
        if self.criteria and criteria is None:
            raise _wrong("criteria", "Choose one of the list.")
        return Promotion(
            set_name=self.set_name,
            note=self.note,
            criteria_set_id=criteria,
            expected=self._expected() or None,
            changes=self._changes(),
            kept="kept" in self.should,
            recorded_is_right=right,
            confirm_incomplete=self.confirm_incomplete,
        )

    def _expected(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if "mention" in self.should:
            found |= _some(mentions=[*self.facts, *_lines(self.more_facts)], must_not_mention=_lines(self.must_not))
            if not found:
                raise _wrong("more_facts", "Tick or write a fact, or untick “mention”.")
        if "call" in self.should:
            asked = _some(calls=[_call(line) for line in _lines(self.calls)], no_calls=_lines(self.no_calls))
            if not asked:
                raise _wrong("calls", "Name a tool, or untick “call”.")
            found |= asked
        if "answer" in self.should:
            if not self.answer:
                raise _wrong("answer", "Write the answer, or untick it.")
            found["answer"] = self.answer
        return found

    def _changes(self) -> list[str] | None:
        """A line for each change; none where nothing may change."""
        if "change" not in self.should:
            return None
        lines = _lines(self.changes)
        if self.nothing:
            return []
        if not lines:
            raise _wrong("changes", "Write what should have changed, tick that nothing may, or untick “change”.")
        if len(lines) > MAX_CALLS:
            raise _wrong("changes", f"At most {MAX_CALLS} changes.")
        return lines

    def with_errors(self, refusal: Problem) -> PromoteForm:
        said = refusal.fields if isinstance(refusal, Invalid) else {}
        if isinstance(refusal, Incomplete):
            said = {"confirm_incomplete": refusal.detail}
        errors: dict[str, str] = {}
        for name, sentence in said.items():
            place = _place(name)
            errors[place] = f"{errors[place]} {sentence}" if place in errors else sentence
        in_order = dict(sorted(errors.items(), key=lambda one: ORDER.index(one[0]) if one[0] in ORDER else len(ORDER)))
        return replace(self, errors=in_order or {"set": refusal.detail})


def _place(name: str) -> str:
    for part, place in (("expected.calls", "calls"), ("expected.effects", "changes")):
        if name.startswith(part):
            return place
    return PLACES.get(name, name)


def _wrong(name: str, sentence: str) -> Invalid:
    return Invalid(sentence, {name: sentence})


def _some(**lists: list[Any]) -> dict[str, list[Any]]:
    return {name: found for name, found in lists.items() if found}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _call(line: str) -> dict[str, Any]:
    """`updateEntity {"stage": "won"}`: a tool, and the arguments that it must have been given."""
    name, _, rest = line.partition(" ")
    try:
        arguments = json.loads(rest) if rest.strip() else {}
    except (ValueError, RecursionError):
        raise _wrong("calls", f"The arguments of {name[:60]} are no JSON object.") from None
    return {"name": name, "arguments": arguments}
