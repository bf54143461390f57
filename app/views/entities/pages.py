"""Entities: the records that agents work on, and what was submitted about them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from flask import g, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Invalid, NotFound, Refused
from app.formats.ids import parse_id
from app.formats.response_values import MAX_SOURCE, MAX_TEXT, NUMERIC, RANKED, wrap_value
from app.models import CriteriaSet, EntityType
from app.security.access import access
from app.services.entities import criteria as criteria_store
from app.services.entities import responses as entity_responses
from app.services.entities import store as entity_store
from app.services.entities.responses import NewResponse
from app.services.entities.store import EntityFilters, EntityRow
from app.services.feedback import own as feedback_own
from app.views import lists as listing
from app.views.entities import bp
from app.views.feedback.flag_form import FLAGGED, FlagForm
from app.views.feedback.own import describe_own
from app.views.format import field_words, readable
from app.views.forms import form_text
from app.views.htmx import Toast, page, swap, wants_fragment

COLUMNS = 4
NUMBER = re.compile(r"-?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?", re.ASCII)
DECIDED = {"accepted": "Accepted.", "rejected": "Rejected. The reason is in Feedback."}


@dataclass(frozen=True)
class Rejection:
    """The form with which a response is rejected; open where `at` is the response's id."""

    at: UUID | None = None
    field_name: str = ""
    reason: str = ""
    errors: dict[str, str] = field(default_factory=dict)


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

    def parse(self) -> Any:
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
        return {one.name: {"value": one.parse(), **({"source": one.source} if one.source else {})} for one in filled}

    def with_errors(self, refusal: Invalid) -> ResponseForm:
        """The same form with a sentence under each field that is wrong; errors without a field go under the first."""
        known = {f"value.{one.name}" for one in self.inputs}
        named = {name.replace("values.", "value.", 1): sentence for name, sentence in refusal.fields.items()}
        errors = {name: sentence for name, sentence in named.items() if name in known}
        if not errors and self.inputs:
            errors = {f"value.{self.inputs[0].name}": "Fill in at least one field."}
        return replace(self, errors=errors)


@bp.get("")
@access("member")
def index() -> Any:
    """The records of the workspace, the last changed first."""
    asked = listing.read_listing(EntityFilters)
    types = entity_store.list_types(actor=g.actor)
    found = entity_store.list_entities(asked.filters, asked.page, actor=g.actor)
    chosen = next((row for row in types if row.slug == asked.filters.entity_type), None)
    return page(
        "entities/index.html",
        "entities/_list.html",
        rows=found.items,
        found=found,
        asked=asked,
        types=types,
        type_names={row.id: row.name for row in types},
        columns=_columns(chosen, found.items),
        shown=_shown_fields(found.items),
        waiting=entity_responses.count_waiting([row.id for row in found.items], actor=g.actor),
        **listing.pager_links(found),
    )


def _columns(chosen: Any, rows: list[EntityRow]) -> list[tuple[str, str, bool]]:
    """Of one type's fields, those that most of the shown records have: name, title, whether it is a number."""
    if chosen is None:
        return []
    filled = {name: sum(row.fields.get(name) is not None for row in rows) for name in chosen.fields}
    most = sorted(filled, key=lambda name: -filled[name])[:COLUMNS]
    return [
        (name, field_title(name, schema), isinstance(schema, Mapping) and schema.get("type") in ("number", "integer"))
        for name, schema in chosen.fields.items()
        if name in most
    ]


def _shown_fields(rows: list[EntityRow]) -> dict[UUID, str]:
    """The first few values of each record in one line, for lists of several types."""
    return {
        row.id: " · ".join(f"{field_words(name)} {readable(value)}" for name, value in list(row.fields.items())[:3])
        for row in rows
    }


@bp.get("/<uuid:entity_id>")
@access("member")
def detail(entity_id: UUID) -> Any:
    """One record: as a page, as the panel of the list, or only one response with a form open in it."""
    flag = FlagForm.from_query(".detail", ".flag", entity_id=entity_id)
    reject = Rejection(at=parse_id(request.args.get("reject", "")))
    return _show_detail(entity_id, reject, flag)


def _show_detail(
    entity_id: UUID, reject: Rejection, flag: FlagForm, status: int = 200, respond: ResponseForm | None = None
) -> Response:
    read = _detail_context(entity_id) | {"reject": reject, "flag": flag}
    if respond is None and (wanted := request.args.get("respond")):
        sets = criteria_store.list_criteria_sets(actor=g.actor)
        respond = blank_form(sets, parse_id(wanted), read["entity_type"])
    read["respond"] = respond or ResponseForm()
    in_panel = request.args.get("panel") == "1"
    template = "entities/detail.html"
    fragment = "entities/_panel.html" if in_panel else template
    if wants_fragment() and (respond or "respond" in request.args):
        template = fragment = "entities/_responses.html"
    elif wants_fragment() and not in_panel:
        only = reject.at or parse_id(flag.at) or parse_id(request.args.get("response", ""))
        if only:
            template = fragment = "entities/_response.html"
            read["response"] = _find_response(read, only)
    return page(template, fragment, status=status, **read)


def _find_response(read: dict[str, Any], response_id: UUID) -> Any:
    response = next((row for row in read["responses"] if row.id == response_id), None)
    if response is None:
        raise NotFound("This record has no response with that ID.")
    return response


def _detail_context(entity_id: UUID) -> dict[str, Any]:
    """What the page, the panel and a single response show."""
    found = entity_store.get_entity(entity_id, actor=g.actor)
    rows = feedback_own.rows_about(entity_id, actor=g.actor)
    learned = feedback_own.learned_from(rows, actor=g.actor)
    retries = feedback_own.retries_of(rows, actor=g.actor)
    own: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        mine = own.setdefault(str(row.context.get("response_id") or ""), [])
        mine.append(describe_own(row, learned, retries=retries))
    return {
        "entity": found.entity,
        "entity_type": found.entity_type,
        "fields": _fields(found.entity.fields, found.entity_type.fields),
        "responses": found.responses,
        "values": {row.id: _values(row, found.entity_type.fields) for row in found.responses},
        "own": own,
        "work": entity_store.list_work(entity_id, actor=g.actor),
    }


def _fields(values: Mapping[str, Any], schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The record's values in the order of its type; what the type no longer has comes last."""
    names = [*schema, *(name for name in values if name not in schema)]
    return [(field_title(name, schema.get(name)), readable(values.get(name))) for name in names]


def _values(row: Any, schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The values of a response: what, found where, how surely."""
    found = []
    for name, given in row.values.items():
        value = wrap_value(given)
        sure = value.get("confidence")
        number = float(sure) if isinstance(sure, int | float) and not isinstance(sure, bool) else None
        about = {"value": readable(value["value"]), "source": readable(value.get("source")), "confidence": number}
        found.append({"name": field_title(name, schema.get(name)), **about})
    return found


@bp.post("/<uuid:entity_id>/responses")
@access("member")
def respond(entity_id: UUID) -> Any:
    """Submit a person's own values about the record."""
    kind = entity_store.get_entity(entity_id, actor=g.actor).entity_type
    sets = criteria_store.list_criteria_sets(actor=g.actor)
    form = posted_form(sets, parse_id(form_text("criteria_set_id")), kind)
    criteria = form.chosen.id if form.chosen else None
    new = NewResponse(entity_id=entity_id, criteria_set_id=criteria, values=form.values())
    try:
        with transaction():
            made = entity_responses.submit_response(new, actor=g.actor).id
    except Invalid as refusal:
        return _show_detail(entity_id, Rejection(), _no_flag(entity_id), 422, form.with_errors(refusal))
    read = {**_changed_context(entity_id), "respond": ResponseForm()} if wants_fragment() else {}
    back = url_for(".detail", entity_id=entity_id) + f"#response-{made}"
    return swap("entities/_responses.html", fallback=back, toasts=[Toast("Added the response.")], **read)


@bp.post("/<uuid:entity_id>/responses/<uuid:response_id>")
@access("member")
def decide(entity_id: UUID, response_id: UUID) -> Any:
    """Accept what was submitted, or reject it and say why."""
    status = request.form.get("status", "")
    form = Rejection(response_id, form_text("field_name"), form_text("reason"))
    entity_responses.get_response(entity_id, response_id, actor=g.actor)
    code, toast = 200, Toast(DECIDED.get(status, ""))
    try:
        with transaction():
            entity_responses.decide_response(
                response_id, status, actor=g.actor, reason=form.reason, field_name=form.field_name or None
            )
    except Invalid as refusal:
        names = {"rejection_reason": "reason", "comment": "reason"}
        errors = {names.get(name, name): sentence for name, sentence in refusal.fields.items()}
        wrong = Rejection(response_id, form.field_name, form.reason, errors or {"reason": refusal.detail})
        return _show_detail(entity_id, wrong, FlagForm.from_query(".detail", ".flag", entity_id=entity_id), 422)
    except Refused as refusal:
        code, toast = 409, Toast(refusal.detail, "error")
    return _show_changed(entity_id, response_id, toast, code)


@bp.post("/<uuid:entity_id>/flag")
@access("admin")
def flag(entity_id: UUID) -> Any:
    """An admin's own observation of a response."""
    form = FlagForm.from_post(".detail", ".flag", entity_id=entity_id)
    response_id = parse_id(form.at)
    if response_id is None:
        raise Invalid("Choose the response this is about.")
    response = entity_responses.get_response(entity_id, response_id, actor=g.actor)
    about = {"session_id": response.session_id, "entity_id": entity_id, "agent_id": response.agent_id}
    try:
        form.record(**about, context={"response_id": str(response_id)})
    except Invalid as refusal:
        return _show_detail(entity_id, Rejection(), form.with_errors(refusal), 422)
    return _show_changed(entity_id, response_id, Toast(FLAGGED))


def _show_changed(entity_id: UUID, response_id: UUID, toast: Toast, status: int = 200) -> Response:
    """The response as it is now; without a script, its place on the page."""
    back = url_for(".detail", entity_id=entity_id) + f"#response-{response_id}"
    read = _changed_context(entity_id) if wants_fragment() else {}
    if read:
        read["response"] = _find_response(read, response_id)
    return swap("entities/_response.html", fallback=back, status=status, toasts=[toast], **read)


def _changed_context(entity_id: UUID) -> dict[str, Any]:
    """The record with no form open."""
    return _detail_context(entity_id) | {"reject": Rejection(), "flag": _no_flag(entity_id)}


def _no_flag(entity_id: UUID) -> FlagForm:
    return FlagForm(url_for(".detail", entity_id=entity_id), url_for(".flag", entity_id=entity_id))


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
