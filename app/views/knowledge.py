"""Knowledge: what the agents are told. Added, edited in place, approved and retired."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flask import Blueprint, Flask, g, request, url_for
from werkzeug.wrappers import Response

from app.access import access
from app.db import transaction
from app.errors import Invalid, Refused, Stale
from app.models.knowledge import KNOWLEDGE_STATES, KNOWLEDGE_TYPES
from app.services import agents, entities, knowledge
from app.services.filters import KnowledgeFilters
from app.views import filters as listing
from app.views import saved_views
from app.views.htmx import Toast, page, swap
from app.views.knowledge_forms import KnowledgeForm
from app.views.worddiff import word_diff

KINDS = {
    "correction": "Corrections",
    "lesson": "Lessons",
    "routing": "Routing",
    "insight": "Insights",
    "guideline": "Guidelines",
}
DONE = {"active": "Active from now on.", "inactive": "Deactivated.", "deleted": "Deleted."}
CARDS = 25

bp = Blueprint("knowledge", __name__, url_prefix="/admin/agent-review/knowledge")


@bp.get("")
@access("admin")
def index() -> Any:
    """The knowledge of the workspace, last changed first."""
    views = saved_views.of("knowledge")
    return views.opening or page("knowledge/index.html", "knowledge/_list.html", views=views, **_listed())


def _listed(given: dict[str, str] | None = None) -> dict[str, Any]:
    asked = listing.read(KnowledgeFilters, given, rows=CARDS, local_days=False)
    found = knowledge.list_rows(asked.filters, asked.page, actor=g.actor)
    scopes = knowledge.scope_slugs(actor=g.actor)
    fields = [
        listing.choices("state", KNOWLEDGE_STATES),
        listing.choices("type", KNOWLEDGE_TYPES, "kind"),
        listing.named("agent", [(slug, slug) for slug in scopes["agent"]]),
        listing.named("entity_type", [(slug, slug) for slug in scopes["entity_type"]], "entity type"),
    ]
    return {
        "rows": found.items,
        "found": found,
        "asked": asked,
        "fields": fields,
        "kinds": KINDS,
        "counts": knowledge.counts(g.actor),
        **listing.neighbours(found),
    }


def _scopes() -> dict[str, Any]:
    """Whom a row can be for."""
    return {"agents": agents.list_agents(actor=g.actor), "types": entities.list_types(actor=g.actor)}


@bp.get("/new")
@access("admin")
def new() -> Response:
    """An empty form, in place above the list or as a page."""
    kind = request.args.get("type", "")
    form = KnowledgeForm(type=kind if kind in KNOWLEDGE_TYPES else "correction")
    return page("knowledge/form.html", "knowledge/_form.html", form=form, row=None, **_scopes())


@bp.post("")
@access("admin")
def add() -> Any:
    """Write a rule. An admin's is active at once."""
    form = KnowledgeForm.read(request.form)
    try:
        with transaction():
            knowledge.add_row(form.as_new(), actor=g.actor)
    except (Invalid, Refused) as refusal:
        form = form.refused(refusal)
        return page("knowledge/form.html", "knowledge/_form.html", status=422, form=form, row=None, **_scopes())
    toast = Toast("Added. It is in the next prompt.")
    return swap("knowledge/_added.html", fallback=url_for(".index"), toasts=[toast], **_listed({}))


@bp.get("/<uuid:row_id>")
@access("admin")
def detail(row_id: UUID) -> Response:
    """One row with the feedback behind it and its history; or only its card, as it is when an edit is given up."""
    fragment = "knowledge/_card.html" if request.args.get("card") == "1" else "knowledge/_panel.html"
    return page("knowledge/detail.html", fragment, **_read(row_id))


def _read(row_id: UUID) -> dict[str, Any]:
    found = knowledge.get_row(row_id, actor=g.actor)
    steps = knowledge.history_of(row_id, actor=g.actor)
    return {
        "found": found,
        "row": found.row,
        "steps": [(step, _changed(step)) for step in steps],
        "form": None,
    }


def _changed(step: knowledge.HistoryRow) -> list[tuple[str, str]]:
    """How the text changed, when it did."""
    before, after = step.before.get("content"), step.after.get("content")
    if not before or not after or before == after:
        return []
    return word_diff(str(before), str(after))


@bp.get("/<uuid:row_id>/edit")
@access("admin")
def edit_form(row_id: UUID) -> Response:
    """The row as a form, where its card was."""
    return _form(row_id, KnowledgeForm.of(knowledge.get_row(row_id, actor=g.actor).row))


@bp.post("/<uuid:row_id>/edit")
@access("admin")
def edit(row_id: UUID) -> Any:
    """Save the form, unless somebody else was quicker: then both texts are shown."""
    form = KnowledgeForm.read(request.form)
    try:
        with transaction():
            knowledge.edit_row(row_id, form.as_changes(), form.version, actor=g.actor, reason=form.reason or None)
    except Stale as stale:
        current = knowledge.get_row(row_id, actor=g.actor).row
        return _form(row_id, form.overtaken(stale, current), 409)
    except (Invalid, Refused) as refusal:
        return _form(row_id, form.refused(refusal), 422)
    return _card(row_id, Toast("Saved. It is in the next prompt."))


def _form(row_id: UUID, form: KnowledgeForm, status: int = 200) -> Response:
    row = knowledge.get_row(row_id, actor=g.actor).row
    return page("knowledge/form.html", "knowledge/_form.html", status=status, form=form, row=row, **_scopes())


@bp.post("/<uuid:row_id>/state")
@access("admin")
def state(row_id: UUID) -> Any:
    """Approve, retire, bring back or delete a row."""
    wanted = request.form.get("state", "")
    reason = request.form.get("reason", "").strip() or None
    before = knowledge.get_row(row_id, actor=g.actor).row.state
    try:
        with transaction():
            knowledge.set_state(row_id, wanted, actor=g.actor, reason=reason)
    except (Invalid, Refused) as refusal:
        sentence = refusal.fields.get("reason", refusal.detail) if isinstance(refusal, Invalid) else refusal.detail
        return _card(row_id, Toast(sentence, "error"), 422 if isinstance(refusal, Invalid) else 409)
    return _card(row_id, _undoable(row_id, before, wanted))


def _undoable(row_id: UUID, before: str, after: str) -> Toast:
    text = DONE.get(after, "Done.")
    if (before, after) not in {("active", "inactive"), ("inactive", "active")}:
        return Toast(text)
    fields = (("state", before), ("reason", "Undone."))
    return Toast(text, undo=url_for(".state", row_id=row_id), target=f"#knowledge-{row_id}", fields=fields)


def _card(row_id: UUID, toast: Toast, status: int = 200) -> Response:
    back = url_for(".detail", row_id=row_id)
    return swap("knowledge/_changed.html", fallback=back, status=status, toasts=[toast], **_read(row_id))


def register(app: Flask) -> None:
    app.register_blueprint(bp)
