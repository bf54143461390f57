"""Criteria sets: what goldens are judged by, as a form with a row for each dimension, and what they were before."""

import re
from typing import Any
from uuid import UUID, uuid4

from flask import g, request, url_for

from app.db import transaction
from app.errors import Invalid, Refused, Stale
from app.formats.criteria import read_dimensions
from app.security.access import access
from app.services.entities import criteria as criteria_store
from app.services.evals.judging import attached, labels
from app.views.evals import bp
from app.views.evals.criteria_form import LABELS, CriteriaForm, empty_form
from app.views.forms import parse_count
from app.views.htmx import Toast, leave, page


@bp.get("/criteria")
@access("admin")
def list_criteria() -> Any:
    """The criteria sets, how many goldens each judges, and how far its judges can be trusted."""
    judges: dict[UUID, list[Any]] = {}
    for one in labels.list_judges(actor=g.actor):
        judges.setdefault(one.criteria_set_id, []).append(one)
    return page(
        "evals/criteria_list.html",
        "evals/criteria_list.html",
        rows=criteria_store.list_criteria_sets(actor=g.actor),
        used=attached.count_attached(actor=g.actor),
        judges=judges,
    )


@bp.get("/criteria/new")
@access("admin")
def new_criteria() -> Any:
    return _form_page(empty_form())


@bp.post("/criteria")
@access("admin")
def create_criteria() -> Any:
    """Make a criteria set, or give the form back after one of its buttons."""
    form = CriteriaForm.from_request(request.form)
    if button := request.form.get("do"):
        return _form_page(form.pressed(button))
    try:
        with transaction():
            made = criteria_store.create_criteria_set(
                slug=_slug_of(form.name), name=form.name, dimensions=form.dimensions(), actor=g.actor
            )
    except Invalid as refusal:
        return _form_page(form, status=422, errors=form.place_errors(refusal))
    return leave(url_for(".show_criteria", criteria_set_id=made.id), Toast(f"Created {made.name}."))


def _slug_of(name: str) -> str:
    """A slug that nobody has. Programs name a set by it; people never see it."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:50].strip("-")
    return f"{words or 'criteria'}-{uuid4().hex[:6]}"


@bp.get("/criteria/<uuid:criteria_set_id>")
@access("admin")
def show_criteria(criteria_set_id: UUID) -> Any:
    row = criteria_store.get_criteria_set(criteria_set_id, actor=g.actor)
    return _form_page(CriteriaForm.from_stored(row.name, row.dimensions), row)


def _form_page(form: CriteriaForm, row: Any = None, status: int = 200, **more: Any) -> Any:
    about: dict[str, Any] = {}
    if row is not None:
        about = {
            "history": criteria_store.list_versions(row.id, actor=g.actor),
            "sets": attached.list_attached(row.id, actor=g.actor),
            "judges": labels.list_judges(actor=g.actor, criteria_set_id=row.id),
        }
    return page(
        "evals/criteria.html",
        "evals/_criteria_form.html",
        status=status,
        form=form,
        row=row,
        kinds=LABELS,
        **{"errors": {}, "stale": "", "version": row.version if row is not None else 1, **about, **more},
    )


@bp.post("/criteria/<uuid:criteria_set_id>")
@access("admin")
def save_criteria(criteria_set_id: UUID) -> Any:
    """Write a version, or give the form back after one of its buttons."""
    row = criteria_store.get_criteria_set(criteria_set_id, actor=g.actor)
    form, version = CriteriaForm.from_request(request.form), parse_count(request.form.get("version")) or 0
    if button := request.form.get("do"):
        return _form_page(form.pressed(button), row, version=version)
    before = row.version
    try:
        with transaction():
            after = criteria_store.change_criteria_set(
                criteria_set_id, version=version, name=form.name, dimensions=form.dimensions(), actor=g.actor
            ).version
    except Invalid as refusal:
        return _form_page(form, row, 422, errors=form.place_errors(refusal), version=version)
    except Stale as refusal:
        return _form_page(form, row, 409, stale=refusal.detail, version=refusal.current)
    text = "Nothing changed." if after == before else f"Saved version {after}."
    return leave(url_for(".show_criteria", criteria_set_id=criteria_set_id), Toast(text))


@bp.post("/criteria/<uuid:criteria_set_id>/attach")
@access("admin")
def attach_criteria(criteria_set_id: UUID) -> Any:
    """Judge all goldens of a set by these criteria."""
    row = criteria_store.get_criteria_set(criteria_set_id, actor=g.actor)
    here = url_for(".show_criteria", criteria_set_id=row.id)
    try:
        with transaction():
            number = attached.attach_criteria(row.id, request.form.get("set", ""), actor=g.actor)
    except (Invalid, Refused) as refusal:
        return leave(here, Toast(refusal.detail.removeprefix("set: "), "error"))
    return leave(here, Toast(f"Attached to {number:,} golden{'' if number == 1 else 's'}."))


@bp.get("/criteria/<uuid:criteria_set_id>/past")
@access("admin")
def show_criteria_version(criteria_set_id: UUID) -> Any:
    """A criteria set as it was in `version`, for reading."""
    row = criteria_store.get_criteria_set(criteria_set_id, actor=g.actor)
    version = parse_count(request.args.get("version")) or 0
    past = criteria_store.get_version(criteria_set_id, version, actor=g.actor)
    rules = read_dimensions(past.dimensions)
    return page(
        "evals/criteria_version.html", "evals/criteria_version.html", row=row, past=past, rules=rules, kinds=LABELS
    )
