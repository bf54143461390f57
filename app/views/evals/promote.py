"""Promote one session with what should have happened, or several at once: the form and its routes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from flask import g, request, url_for

from app.db import transaction
from app.errors import Invalid, Problem, Refused, Unprocessable
from app.evals.expected.expectations import MAX_CALLS
from app.formats.ids import parse_id
from app.security.access import access
from app.services.entities import store as entity_store
from app.services.evals import candidates, promotion
from app.services.evals import golden as eval_golden
from app.services.evals.golden import DEFAULT_SET
from app.services.evals.promotion import Incomplete, Promotion
from app.views.evals import bp
from app.views.forms import selected_ids
from app.views.htmx import Toast, page, swap, toast_only, wants_fragment
from app.views.layout.shell import own_path

PARTS = ("mention", "call", "kept", "change", "answer", "right")
# The fields from top to bottom: the first that is wrong gets the focus.
ORDER = (
    "confirm_incomplete", "set", "note", "should", "more_facts", "must_not", "calls", "no_calls", "changes", "answer",
    "criteria",
)  # fmt: skip
# The form field for each field of a promotion.
PLACES = {
    "expected.mentions": "more_facts",
    "expected.must_not_mention": "must_not",
    "expected.calls": "calls",
    "expected.no_calls": "no_calls",
    "expected.effects": "changes",
    "expected.answer": "answer",
    "criteriaSetId": "criteria",
    "recorded_is_right": "should",
    "kept": "should",
}


@dataclass(frozen=True)
class PromoteForm:
    """`should` lists the ticked parts of “What should have happened?”. `nothing` counts regardless of `changes`."""

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
    def from_offer(cls, offer: Mapping[str, Any], set_name: str) -> PromoteForm:
        """Start from a better answer in the feedback, if there is one. Facts of a wrong answer are not ticked."""
        complained, preferred, changes = offer["complained"], offer["preferred"], offer["changes"]
        return cls(
            set_name=set_name,
            should=("answer",) if complained and preferred else (),
            facts=() if complained or preferred else tuple(offer["facts"]),
            # More lines than the form takes are not offered; what was changed still counts as recorded.
            changes="\n".join(changes) if len(changes) <= MAX_CALLS else "",
            answer=preferred or "",
        )

    @classmethod
    def from_request(cls) -> PromoteForm:
        form = request.form
        names = ("note", "criteria", "answer", "more_facts", "must_not", "calls", "no_calls", "changes")
        texts: dict[str, Any] = {name: form.get(name, "").strip() for name in names}
        return cls(
            **texts,
            set_name=form.get("set", "").strip(),
            should=tuple(part for part in form.getlist("should") if part in PARTS),
            facts=tuple(dict.fromkeys(form.getlist("facts"))),
            nothing=form.get("nothing") == "1",
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
            raise _wrong("should", "Either its changes were right, or it should have changed something else; not both.")
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
        lines = [] if self.nothing else _lines(self.changes)
        if not lines and not self.nothing:
            raise _wrong("changes", "Write what should have changed, tick that nothing may, or untick “change”.")
        if len(lines) > MAX_CALLS:
            raise _wrong("changes", f"At most {MAX_CALLS} changes.")
        return lines

    def with_errors(self, refusal: Problem) -> PromoteForm:
        said = {"confirm_incomplete" if isinstance(refusal, Incomplete) else "set": refusal.detail}
        if isinstance(refusal, Invalid):
            said = refusal.fields or said
        errors: dict[str, str] = {}
        for name, sentence in said.items():
            within = (place for part, place in PLACES.items() if name == part or name.startswith(f"{part}."))
            place = next(within, name)
            errors[place] = f"{errors[place]} {sentence}" if place in errors else sentence
        order = {name: place for place, name in enumerate(ORDER)}
        return replace(self, errors=dict(sorted(errors.items(), key=lambda one: order.get(one[0], len(ORDER)))))


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


def load_promote_form(session_id: UUID, form: PromoteForm | None = None) -> dict[str, Any]:
    """What an open form needs: what would be frozen, the sets and the criteria that can be chosen."""
    offer = promotion.load_offer(session_id, actor=g.actor)
    sets = [one.name for one in eval_golden.list_sets(actor=g.actor)]
    return {
        "offer": offer,
        "form": form or PromoteForm.from_offer(offer, eval_golden.usual_set([offer["agent_id"]], actor=g.actor)),
        "set_names": sets,
        "criteria_sets": entity_store.list_criteria_sets(actor=g.actor),
    }


@bp.get("/promote/<uuid:session_id>")
@access("admin")
def ask_promotion(session_id: UUID) -> Any:
    """The form, on the session's page or in its panel; a page of its own without a script."""
    if wants_fragment() and request.args.get("put") == "away":
        return page("evals/_promote_place.html", "evals/_promote_place.html", session_id=session_id)
    return _form(session_id)


def _form(session_id: UUID, form: PromoteForm | None = None, status: int = 200) -> Any:
    resolves = len(candidates.signals_of(session_id, actor=g.actor))
    shown = {**load_promote_form(session_id, form), "resolves": resolves}
    return page("evals/promote.html", "evals/_promote_place.html", status=status, session_id=session_id, **shown)


@bp.post("/promote/<uuid:session_id>")
@access("admin")
def promote_session(session_id: UUID) -> Any:
    """Make one session golden. What is pending about its request is applied with it, as for a candidate."""
    form = PromoteForm.from_request()
    try:
        with transaction():
            given = replace(form.promotion(), feedback_ids=None)
            done = promotion.promote_session(session_id, given, actor=g.actor)
            set_name = done.golden["set"]
    except (Invalid, Unprocessable, Incomplete) as refusal:
        return _form(session_id, form.with_errors(refusal), 409 if isinstance(refusal, Incomplete) else 422)
    except Refused as refusal:
        if wants_fragment():
            return toast_only(Toast(refusal.detail, "error"), status=refusal.status)
        raise
    back = url_for("sessions.detail", session_id=session_id)
    toast = Toast(f"Golden in {set_name}.")
    return swap("evals/_promoted.html", fallback=back, toasts=[toast], session_id=session_id, set_name=set_name)


@bp.post("/promote")
@access("admin")
def ask_promotions() -> Any:
    """Which of the ticked sessions can be golden as they are, and into which set. Changes nothing."""
    return _many_form()


def _many_form(status: int = 200, errors: dict[str, str] | None = None) -> Any:
    found = promotion.list_choices(_selected_ids(), actor=g.actor)
    return page(
        "evals/promote_many.html",
        "evals/_promote_many.html",
        status=status,
        fit=[row for row, refusal in found if refusal is None],
        unfit=[(row, refusal) for row, refusal in found if refusal is not None],
        back=_list_address(),
        set_names=[one.name for one in eval_golden.list_sets(actor=g.actor)],
        usual=eval_golden.usual_set({row.agent_id for row, _ in found}, actor=g.actor),
        errors=errors or {},
        in_place=wants_fragment(),
    )


@bp.post("/promote/confirmed")
@access("admin")
def promote_sessions() -> Any:
    """Make them golden, all or none."""
    given = Promotion(set_name=request.form.get("set", "").strip(), note=request.form.get("note"))
    ids = _selected_ids()
    try:
        with transaction():
            promotion.promote_sessions(ids, given, actor=g.actor)
    except Invalid as refusal:
        return _many_form(422, refusal.fields or {"set": refusal.detail})
    except Problem as refusal:
        if wants_fragment():
            return toast_only(Toast(f"Nothing was promoted. {refusal.detail}", "error"), status=refusal.status)
        raise
    toast = Toast(f"{len(ids):,} golden{'' if len(ids) == 1 else 's'} in {given.set_name or DEFAULT_SET}.")
    return swap("evals/_promoted_many.html", fallback=_list_address(), toasts=[toast], ids=ids)


def _list_address() -> str:
    back = own_path()
    return back if back.startswith(url_for("sessions.index")) else url_for("sessions.index")


def _selected_ids() -> list[UUID]:
    return selected_ids(f"Select 1 to {eval_golden.MAX_SESSIONS} sessions first.", eval_golden.MAX_SESSIONS)
