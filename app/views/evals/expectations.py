"""Edit what a golden is held to; and what every form of expectations asks while it is filled in."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from flask import g, request, url_for

from app.db import transaction
from app.errors import Invalid, Refused, Stale
from app.evals.expected.changes import CREATE
from app.evals.verdict import FAIL, PASS
from app.security.access import access
from app.services.evals import drafts, expected_changes, golden_lists, revisions
from app.services.evals import golden as eval_golden
from app.services.evals.drafts import Material
from app.services.evals.expected_changes import Choice
from app.services.evals.revisions import Revision
from app.views.evals import bp
from app.views.evals.expectation_form import MENTION, RIGHT, ExpectationForm, order_of
from app.views.evals.expectation_rows import show_calls, show_changes, tool_names
from app.views.forms import parse_count
from app.views.htmx import Toast, leave, page


def load_fields(form: ExpectationForm, material: Material, errors: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What the shared fields show, for a session that becomes golden and for one that is."""
    golden = material.session.meta.get("golden") or {}
    parts = SimpleNamespace(
        form=form,
        session_id=material.session.id,
        editing=bool(golden),
        complained=material.complained,
        offers_right=material.complained or "baseline_rejected" in golden or "recorded_is_right" in golden,
        facts=list(dict.fromkeys([*material.facts, *form.mentions])),
        recorded=material.recorded,
        calls=show_calls(form.calls, material.choices),
        changes=show_changes(form.changes, material.choices, actor=g.actor),
        tools=tool_names(material),
        records=[*_own_records(form), *material.choices.records],
        has_criteria=bool(material.choices.criteria),
        errors=errors or {},
    )
    return {"parts": parts}


def _own_records(form: ExpectationForm) -> list[Choice]:
    """The records that the session itself is to create; they have no name and no id yet."""
    made = [change for change in form.changes if change.kind == CREATE]
    return [Choice(f"${place}", f"the new {change.of or 'record'} above") for place, change in enumerate(made, 1)]


def place_errors(form: ExpectationForm, refusal: Invalid, places: Mapping[str, str]) -> dict[str, str]:
    """The sentences of a refusal under the form's fields, from top to bottom."""
    errors: dict[str, str] = {}
    for name, sentence in refusal.fields.items():
        place = places.get(name) or form.place_of(name)
        errors[place] = f"{errors[place]} {sentence}" if place in errors else sentence
    return errors


@bp.get("/<uuid:session_id>/expectations")
@access("admin")
def edit_expectations(session_id: UUID) -> Any:
    """The form with what the golden is held to. `add=mention` opens that part."""
    row = golden_lists.get_golden(session_id, actor=g.actor)
    material = drafts.load_material(session_id, actor=g.actor)
    golden = material.session.meta["golden"]
    form = ExpectationForm.from_golden(golden, material, actor=g.actor)
    return _edit_page(row, form, material, add=request.args.get("add") == MENTION)


def _edit_page(row: Any, form: ExpectationForm, material: Material, status: int = 200, **more: Any) -> Any:
    if more.pop("add", False) and MENTION not in form.should:
        form = form.with_part(MENTION)
    errors = more.pop("errors", {})
    more = {"reason": "", "revision": row.revision, "stale": "", "check": None, **more}
    return page(
        "evals/expectations.html",
        "evals/_edit_expectations.html",
        status=status,
        row=row,
        errors=errors,
        **more,
        **load_fields(form, material, errors),
    )


@bp.post("/<uuid:session_id>/expectations")
@access("admin")
def save_expectations(session_id: UUID) -> Any:
    """Write a revision, or give the form back after one of its buttons."""
    form = ExpectationForm.from_request(request.form)
    sent: dict[str, Any] = {
        "reason": request.form.get("reason", "").strip(),
        "revision": parse_count(request.form.get("revision")),
    }
    row = golden_lists.get_golden(session_id, actor=g.actor)
    button = request.form.get("do", "")
    if button:
        return _edit_page(
            row, form.pressed(button), _material(session_id), check=check_recording(session_id, form), **sent
        )
    form = form.without_blanks()
    try:
        draft = form.draft()
        given = Revision(draft=draft if draft.says_something else None, recorded_is_right=RIGHT in form.should, **sent)
        with transaction():
            after = revisions.revise_expectations(session_id, given, actor=g.actor)
    except Invalid as refusal:
        errors = dict(sorted(place_errors(form, refusal, {}).items(), key=lambda one: order_of(one[0])))
        return _edit_page(row, form, _material(session_id), 422, errors=errors, **sent)
    except Stale as refusal:
        # Saving once more is a decision: the form continues from what is stored now.
        more = {**sent, "revision": refusal.current, "stale": refusal.detail}
        return _edit_page(row, form, _material(session_id), 409, **more)
    except Refused as refusal:
        return _edit_page(row, form, _material(session_id), 409, **{**sent, "stale": refusal.detail})
    number = len(after.get("revisions", ()))
    text = "Nothing changed." if number == row.revision else f"Saved revision {number}."
    return leave(url_for(".show_golden", session_id=session_id), Toast(text))


def _material(session_id: UUID) -> Material:
    return drafts.load_material(session_id, actor=g.actor)


@bp.post("/<uuid:session_id>/expectations/draft")
@access("admin")
def draft_expectations(session_id: UUID) -> Any:
    """The fields after one of their buttons, or only what the recorded session would come to. Saves nothing."""
    button = request.form.get("do", "")
    form = ExpectationForm.from_request(request.form)
    check = check_recording(session_id, form)
    if button == "verdict":
        return page("evals/_recording_check.html", "evals/_recording_check.html", session_id=session_id, check=check)
    fields = load_fields(form.pressed(button), _material(session_id))
    return page("evals/_expectations.html", "evals/_expectations.html", check=check, **fields)


def check_recording(session_id: UUID, form: ExpectationForm) -> dict[str, Any]:
    """Whether the recorded session would pass, in a sentence."""
    form = form.without_blanks()
    set_name = request.form.get("set", "").strip() or eval_golden.DEFAULT_SET
    try:
        draft = form.draft()
        with transaction():
            check = drafts.load_check(session_id, draft, set_name, actor=g.actor)
    except Invalid as refusal:
        sentence = next(iter(refusal.fields.values()), refusal.detail)
        return {"state": "open", "text": f"Not complete yet. {sentence}"}
    result = check.compare()
    if result.verdict == PASS:
        return {"state": "pass", "text": "The recorded session would pass."}
    word = "fail" if result.verdict == FAIL else "not be judged"
    reason = expected_changes.name_records(result.reason, actor=g.actor).rstrip(".")
    return {"state": result.verdict, "text": f"The recorded session would {word}: {reason}."}


@bp.get("/<uuid:session_id>/expectations/records")
@access("admin")
def find_records(session_id: UUID) -> Any:
    """Records to pick, for what was typed into a field that names one."""
    query = next((text for text in request.args.values() if text), "")
    found = expected_changes.search_records(query[:200], session_id, actor=g.actor)
    return page("evals/_record_options.html", "evals/_record_options.html", records=found)
