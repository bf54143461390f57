"""Promote one session with what should have happened, or several at once: the form and its routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from flask import g, request, url_for

from app.db import transaction
from app.errors import Invalid, Problem, Refused, Unprocessable
from app.formats.ids import parse_id
from app.security.access import access
from app.services.entities import criteria as criteria_store
from app.services.evals import candidates, promotion
from app.services.evals import golden as eval_golden
from app.services.evals.golden import DEFAULT_SET
from app.services.evals.promotion import Incomplete, Promotion
from app.services.feedback import lists as feedback_lists
from app.views.evals import bp
from app.views.evals.expectation_form import KEPT, RIGHT, ExpectationForm, order_of
from app.views.evals.expectations import check_recording, load_fields, place_errors
from app.views.feedback.context import load_context, load_sidebar
from app.views.feedback.pages import row_links
from app.views.forms import selected_ids
from app.views.htmx import Toast, page, swap, toast_only, wants_fragment
from app.views.layout.shell import own_path

# The fields around what should have happened, from top to bottom: the first that is wrong gets the focus.
BEFORE, AFTER = ("confirm_incomplete", "set", "note"), ("criteria",)
PLACES = {"criteriaSetId": "criteria"}
# So many applied rows are drawn anew in the list behind the form.
MAX_APPLIED = 20


@dataclass(frozen=True)
class PromoteForm:
    """`check` says what the recorded session would come to, where someone asked."""

    set_name: str = DEFAULT_SET
    note: str = ""
    criteria: str = ""
    expect: ExpectationForm = field(default_factory=ExpectationForm)
    confirm_incomplete: bool = False
    errors: Mapping[str, str] = field(default_factory=dict)
    check: Mapping[str, str] | None = None

    @classmethod
    def from_offer(cls, offer: Mapping[str, Any], set_name: str) -> PromoteForm:
        return cls(set_name=set_name, expect=ExpectationForm.from_session(offer["material"], offer["preferred"]))

    @classmethod
    def from_request(cls) -> PromoteForm:
        form = request.form
        return cls(
            set_name=form.get("set", "").strip(),
            note=form.get("note", "").strip(),
            criteria=form.get("criteria", "").strip(),
            expect=ExpectationForm.from_request(form),
            confirm_incomplete=form.get("confirm_incomplete") == "1",
        )

    def promotion(self) -> Promotion:
        """What was sent, or Invalid with the sentences that belong under its fields."""
        draft = self.expect.draft()
        criteria = parse_id(self.criteria) if self.criteria else None
        if self.criteria and criteria is None:
            raise Invalid.of({"criteria": "Choose one from the list."})
        return Promotion(
            set_name=self.set_name,
            note=self.note,
            criteria_set_id=criteria,
            draft=draft,
            kept=KEPT in self.expect.should,
            recorded_is_right=RIGHT in self.expect.should,
            confirm_incomplete=self.confirm_incomplete,
        )

    def without_blanks(self) -> PromoteForm:
        return replace(self, expect=self.expect.without_blanks())

    def pressed(self, button: str, session_id: UUID) -> PromoteForm:
        """The form after one of the buttons that do not promote."""
        check = check_recording(session_id, self.expect)
        return replace(self, expect=self.expect.pressed(button), check=check)

    def with_errors(self, refusal: Problem) -> PromoteForm:
        wrong = Invalid(
            refusal.detail, {"confirm_incomplete" if isinstance(refusal, Incomplete) else "set": refusal.detail}
        )
        if isinstance(refusal, Invalid) and refusal.fields:
            wrong = refusal
        errors = place_errors(self.expect, wrong, PLACES)
        return replace(self, errors=dict(sorted(errors.items(), key=lambda one: _order(one[0]))))


def _order(name: str) -> tuple[int, ...]:
    if name in BEFORE:
        return (-1, BEFORE.index(name))
    return (1000,) if name in AFTER else order_of(name)


def load_promote_form(session_id: UUID, form: PromoteForm | None = None) -> dict[str, Any]:
    """What an open form needs: what would be frozen, the sets and the criteria that can be chosen."""
    offer = promotion.load_offer(session_id, actor=g.actor)
    sets = [one.name for one in eval_golden.list_sets(actor=g.actor)]
    form = form or PromoteForm.from_offer(offer, eval_golden.usual_set([offer["agent_id"]], actor=g.actor))
    return {
        "offer": offer,
        "form": form,
        "set_names": sets,
        "criteria_sets": criteria_store.list_criteria_sets(actor=g.actor),
        "check": form.check,
        **load_fields(form.expect, offer["material"], form.errors),
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
    button = request.form.get("do", "")
    if button:
        return _form(session_id, form.pressed(button, session_id))
    form = form.without_blanks()
    signals = candidates.signals_of(session_id, actor=g.actor)[:MAX_APPLIED] if wants_fragment() else []
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
    rows = [feedback_lists.get_feedback(one, actor=g.actor) for one in signals]
    applied = [{**load_context(row), **load_sidebar(row)} for row in rows]
    shown = {"session_id": session_id, "set_name": set_name, "applied": applied, "only": row_links()}
    return swap("evals/_promoted.html", fallback=back, toasts=[toast], **shown)


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
            return toast_only(Toast(f"No session was promoted. {refusal.detail}", "error"), status=refusal.status)
        raise
    toast = Toast(f"{len(ids):,} golden{'' if len(ids) == 1 else 's'} in {given.set_name or DEFAULT_SET}.")
    return swap("evals/_promoted_many.html", fallback=_list_address(), toasts=[toast], ids=ids)


def _list_address() -> str:
    back = own_path()
    return back if back.startswith(url_for("sessions.index")) else url_for("sessions.index")


def _selected_ids() -> list[UUID]:
    return selected_ids(f"Select 1 to {eval_golden.MAX_SESSIONS} sessions first.", eval_golden.MAX_SESSIONS)
