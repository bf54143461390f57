"""The Knowledge tab: add, edit in place, approve and retire rows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any
from uuid import UUID

from flask import g, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Invalid, Refused, Stale
from app.learning.prompt import SECTIONS, PromptRow
from app.learning.ranking import rank
from app.models import SharedContext
from app.models.knowledge import KNOWLEDGE_TYPES
from app.security.access import access
from app.services.agents import versions
from app.services.entities import store as entity_store
from app.services.evals.proof import report as proof_report
from app.services.knowledge import attribution, decisions, hygiene
from app.services.knowledge import lists as knowledge_lists
from app.services.knowledge import prompt as knowledge_prompt
from app.services.knowledge import proofs as knowledge_proofs
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.hygiene import Unanswered, confirmation_of
from app.services.knowledge.lists import KnowledgeFilters
from app.services.knowledge.proofs import BreaksGoldens
from app.text.diff import SAME, Part, exact_diff, word_diff
from app.views import lists as listing
from app.views.forms import parse_count
from app.views.htmx import Toast, page, swap
from app.views.knowledge import bp
from app.views.knowledge.form import KnowledgeForm
from app.views.layout import saved_views

DONE = {
    "active": "Activated.",
    "inactive": "Deactivated.",
    "deleted": "Deleted.",
    "proposed": "Proposed again.",
}
DECIDED = {
    "active": "Approved. The next prompt includes it.",
    "inactive": "Rejected.",
    "superseded": "Merged. The other row now has its signals.",
}
STATE_WORDS = {"proposed": "Proposed", "inactive": "Inactive", "superseded": "Replaced"}
REVERSIBLE = {
    ("active", "inactive"), ("inactive", "active"), ("proposed", "active"), ("proposed", "inactive"),
    ("proposed", "superseded"),
}  # fmt: skip
PAGE_SIZE = 25
CHECKED_FIELDS = ("content", "context", "agent_id", "entity_type_id")
# States from which a row comes back without anybody having looked at its checks on the way.
UNCHECKED_STATES = ("inactive", "superseded")


def shows_refusal(view: Callable[[UUID], Any]) -> Callable[[UUID], Any]:
    """Answer a refused change with the row as it is, and why it was not changed."""

    @wraps(view)
    def changed(row_id: UUID) -> Any:
        try:
            return view(row_id)
        except (Invalid, Refused) as refusal:
            fields, status = (refusal.fields, 422) if isinstance(refusal, Invalid) else ({}, 409)
            return show_card(row_id, Toast(next(iter(fields.values()), refusal.detail), "error"), status)

    return changed


@bp.get("")
@access("admin")
def index() -> Any:
    """The knowledge of the workspace, last changed first."""
    views = saved_views.load_views("knowledge")
    return views.opening or page("knowledge/index.html", "knowledge/_list.html", views=views, **list_context())


def list_context(given: dict[str, str] | None = None) -> dict[str, Any]:
    """What the list shows. What the checks say of proposals comes in a second request: it can take a moment."""
    asked = listing.read_box(KnowledgeFilters, given, rows=PAGE_SIZE)
    found = knowledge_lists.list_rows(asked.filters, asked.page, actor=g.actor)
    proposed = [row.id for row in found.items if row.state == "proposed"]
    proofs = knowledge_proofs.proofs_of([row.id for row in found.items], actor=g.actor)
    return {
        "rows": found.items,
        "found": found,
        "asked": asked,
        "pills": list_pills(),
        "evidence": knowledge_lists.evidence_of(proposed, actor=g.actor),
        "unchecked": [row.id for row in found.items if row.state == "proposed" and row.kind != "retire"],
        **compare_targets(found.items),
        "findings": {},
        "proofs": proofs,
        "proving": any(one.running for one in proofs.values()),
        **listing.pager_links(found),
    }


def list_pills() -> list[dict[str, Any]]:
    """Links to parts of the list: what is in use by kind, and the rest by state."""
    counts = knowledge_lists.count_rows(g.actor)
    kinds = [("active", kind, word, counts.get(kind, 0)) for kind, word in SECTIONS.items()]
    states = [(state, None, word, counts.get(state, 0)) for state, word in STATE_WORDS.items()]
    pills = [(None, None, "All", sum(counts.values())), states[0], *kinds, *states[1:]]
    return [{"state": state, "type": kind, "word": word, "number": number} for state, kind, word, number in pills]


def scope_choices() -> dict[str, Any]:
    """Whom a row can be for."""
    return {"agents": versions.list_agents(actor=g.actor), "types": entity_store.list_types(actor=g.actor)}


@bp.get("/new")
@access("admin")
def new() -> Response:
    """An empty form, in place above the list or as a page."""
    kind = request.args.get("type", "")
    return _new_form(KnowledgeForm(type=kind if kind in KNOWLEDGE_TYPES else "correction"))


def _new_form(form: KnowledgeForm, status: int = 200, row: Any = None) -> Response:
    return page("knowledge/form.html", "knowledge/_form.html", status=status, form=form, row=row, **scope_choices())


@bp.post("")
@access("admin")
def add() -> Any:
    """Write a rule. An admin's is active at once, after a second look if it is vague or repeats another; the card shows
    what the checks found."""
    form = KnowledgeForm.read(request.form)
    try:
        with transaction():
            row_id = knowledge_rows.add_row(knowledge_rows.NewRow(**form.as_changes()), actor=g.actor).id
            hygiene.check_answered(row_id, form.confirm, actor=g.actor)
    except Unanswered as unanswered:
        return _new_form(form.asking(unanswered), 422)
    except (Invalid, Refused) as refusal:
        return _new_form(form.refused(refusal), 422)
    found = hygiene.check_rows([row_id], actor=g.actor)
    toast = Toast(f"Added. The next prompt includes it.{_findings_hint(found[row_id])}")
    back = url_for(".detail", row_id=row_id) if found[row_id] else url_for(".index")
    return swap("knowledge/_added.html", fallback=back, toasts=[toast], **{**list_context({}), "findings": found})


@bp.get("/<uuid:row_id>")
@access("admin")
def detail(row_id: UUID) -> Response:
    """One row with the feedback behind it and its history; or only its card, as it is when an edit is given up."""
    fragment = "knowledge/_card.html" if request.args.get("card") == "1" else "knowledge/_panel.html"
    return page("knowledge/detail.html", fragment, **detail_context(row_id))


def detail_context(row_id: UUID, *, checked: bool = False) -> dict[str, Any]:
    """A row as its card and its panel show it; with `checked`, what the checks say of it now."""
    found = knowledge_lists.get_row(row_id, actor=g.actor)
    proofs = knowledge_proofs.proofs_of([row_id], actor=g.actor)
    done = proofs[row_id].done if row_id in proofs else None
    return {
        "found": found,
        "row": found.row,
        "proofs": proofs,
        "report": proof_report.report_proof(done, actor=g.actor) if done else None,
        "steps": steps_of(knowledge_lists.history_of(row_id, actor=g.actor), scope_choices()),
        "evidence": {row_id: found.signals[:3]},
        "findings": hygiene.check_rows([row_id], actor=g.actor) if checked else {},
        "injected": _prompt_text(found.row) if found.row.state == "proposed" and found.row.kind != "retire" else "",
        **compare_targets([found.row]),
        "worse": attribution.negative_sessions(row_id, actor=g.actor) if found.row.is_harmful else [],
        "form": None,
    }


@dataclass(frozen=True)
class Difference:
    """How a proposal differs from the row that it is about. `stale` where that was changed since."""

    content: list[Part]
    context: list[Part]
    stale: bool


def compare_targets(rows: Sequence[knowledge_lists.KnowledgeRow]) -> dict[str, Any]:
    """What the rows say that proposals are about, and what would change. One query, none where nothing would."""
    about = {row.id: row for row in rows if row.state == "proposed" and row.target_id}
    targets = knowledge_lists.targets_of([row.target_id for row in about.values() if row.target_id], actor=g.actor)
    pairs = [(row, targets[row.target_id]) for row in about.values() if row.target_id in targets]
    return {"targets": targets, "differences": {row.id: _compare_texts(row, target) for row, target in pairs}}


def _compare_texts(row: knowledge_lists.KnowledgeRow, target: knowledge_lists.Target) -> Difference:
    stale = target.version != row.target_version
    if row.kind == "retire":
        return Difference([(SAME, target.content)], [(SAME, target.context or "")], stale)
    context = exact_diff(target.context or "", row.context or "")
    return Difference(exact_diff(target.content, row.content), context, stale)


def _prompt_text(row: knowledge_lists.KnowledgeRow) -> str:
    """The part of the prompt that the row would be, or nothing where it falls below the line."""
    shown = knowledge_prompt.preview_prompt(
        actor=g.actor, agent_id=row.agent_id, entity_type_id=row.entity_type_id, row=as_if_active(row)
    )
    return next((part for part, row_id in shown.prompt.parts if row_id == row.id), "")


def as_if_active(row: knowledge_lists.KnowledgeRow) -> PromptRow:
    """The row as prompts would read it right after it was brought into use."""
    fresh = rank(0, helpful=row.helpful, harmful=row.harmful, pinned=row.pinned)
    return PromptRow(row.id, row.type, row.content, row.context, row.scope, row.version, fresh)


@bp.get("/<uuid:row_id>/edit")
@access("admin")
def edit_form(row_id: UUID) -> Response:
    """The row as a form, where its card was."""
    return _form(row_id, KnowledgeForm.of(knowledge_lists.get_row(row_id, actor=g.actor).row))


@bp.post("/<uuid:row_id>/edit")
@access("admin")
def edit(row_id: UUID) -> Any:
    """Save the form, and approve the row if that was asked for; unless someone else was quicker: then both texts are
    shown."""
    form = KnowledgeForm.read(request.form)
    before = knowledge_lists.get_row(row_id, actor=g.actor).row
    # Confirming the findings of a proposal approves it, so a proposal that stays one asks nothing.
    approves = request.form.get("approve") == "1" or bool(form.confirm and before.state == "proposed")
    try:
        with transaction():
            version = (_approve_form if approves else _save_form)(form, before).version
    except Unanswered as unanswered:
        return _form(row_id, form.asking(unanswered), 422)
    except Stale as stale:
        return _form(row_id, form.overtaken(stale), 409)
    except (Invalid, Refused) as refusal:
        return _form(row_id, form.refused(refusal), 422)
    shown = detail_context(row_id, checked=True)
    advice = _findings_hint(shown["findings"].get(row_id, []))
    if approves:
        return show_card(row_id, decision_toast(row_id, "proposed", "active", advice), shown=shown)
    text = f"Saved. The next prompt includes it.{advice}" if shown["row"].active else f"Saved.{advice}"
    return show_card(row_id, edit_toast(row_id, form.version, version, text), shown=shown)


def _approve_form(form: KnowledgeForm, before: knowledge_lists.KnowledgeRow) -> SharedContext:
    return decisions.approve_proposal(
        before.id, actor=g.actor, version=form.version, changes=form.as_changes(), reason=form.reason or None,
        confirm=form.confirm,
    )  # fmt: skip


def _save_form(form: KnowledgeForm, before: knowledge_lists.KnowledgeRow) -> SharedContext:
    changes, reason = form.as_changes(), form.reason or None
    row = knowledge_rows.edit_row(before.id, changes, form.version, actor=g.actor, reason=reason)
    # Pinning a rule says nothing new.
    if row.active and any(getattr(before, name) != getattr(row, name) for name in CHECKED_FIELDS):
        hygiene.check_answered(row.id, form.confirm, actor=g.actor)
    return row


def _findings_hint(findings: list[Any]) -> str:
    number = len(findings)
    return f" The checks have {number} finding{'s' if number > 1 else ''}." if number else ""


def edit_toast(row_id: UUID, before: int, now: int, text: str) -> Toast:
    """Taking an edit back is going back to the version before."""
    if before == now:
        return Toast(text)
    fields = (("to", str(before)), ("version", str(now)))
    return Toast(text, undo=url_for(".roll_back", row_id=row_id), target="#toasts", fields=fields)


def _form(row_id: UUID, form: KnowledgeForm, status: int = 200) -> Response:
    return _new_form(form, status, knowledge_lists.get_row(row_id, actor=g.actor).row)


@bp.post("/<uuid:row_id>/state")
@access("admin")
@shows_refusal
def state(row_id: UUID) -> Any:
    """Approve, retire, bring back or delete a row, or take the decision about a proposal back."""
    wanted, reason = request.form.get("state", ""), request.form.get("reason", "").strip() or None
    row = knowledge_lists.get_row(row_id, actor=g.actor).row
    try:
        with transaction():
            move_row(row, wanted, reason, parse_count(request.form.get("version")))
            check_return([row_id] if wanted == "active" and row.state in UNCHECKED_STATES else [])
    except BreaksGoldens as refusal:
        return _show_blocked(row_id, refusal)
    except Unanswered as unanswered:
        return _ask_about(row_id, unanswered)
    return show_card(row_id, decision_toast(row_id, row.state, wanted, kind=row.kind))


def _ask_about(row_id: UUID, unanswered: Unanswered) -> Response:
    """What the checks found in a row that was to go live, where that was asked for."""
    row = knowledge_lists.get_row(row_id, actor=g.actor).row
    return page(
        "knowledge/activate.html",
        "knowledge/_activate_swap.html",
        status=422,
        row=row,
        asked=unanswered.findings,
        confirm=confirmation_of(unanswered.findings) if row.state == "proposed" else "1",
    )


def _show_blocked(row_id: UUID, refusal: BreaksGoldens) -> Response:
    """What a row breaks, where it was to be activated, and a field for the reason to do so anyway."""
    cases = proof_report.report_proof(refusal.proof, actor=g.actor).cases
    return page(
        "knowledge/blocked.html",
        "knowledge/_blocked_swap.html",
        status=409,
        row=knowledge_lists.get_row(row_id, actor=g.actor).row,
        blocked=[case for case in cases if case.golden_id in refusal.broken],
        error="Enter a reason." if "overriding" in request.form else "",
    )


def move_row(
    row: knowledge_lists.KnowledgeRow, wanted: str, reason: str | None, version: int | None = None
) -> SharedContext:
    """Make the move that a button asks for. Buttons of a proposal send the version that they were shown with, so that
    they decide nothing else."""
    override = request.form.get("override_reason", "").strip() or None
    if wanted == "proposed":
        return knowledge_rows.reopen_row(row.id, actor=g.actor)
    if wanted == "active" and (version or row.state == "proposed"):
        return decisions.approve_proposal(
            row.id, actor=g.actor, version=version or row.version, reason=reason, override_reason=override,
            confirm=request.form.get("confirm", ""),
        )  # fmt: skip
    if wanted == "inactive" and (version or row.state == "proposed"):
        return decisions.reject_proposal(row.id, actor=g.actor, version=version or row.version, reason=reason)
    return knowledge_rows.set_state(row.id, wanted, actor=g.actor, reason=reason, override_reason=override)


def check_return(row_ids: list[UUID]) -> None:
    """Let rows come back into the prompts only if nothing about them asks for a second look, or it was confirmed. An
    undo confirms by itself: the rows were in use a moment ago."""
    found = hygiene.findings_to_confirm(row_ids, actor=g.actor) if row_ids else {}
    if found and request.form.get("confirm") != "1":
        raise Unanswered([finding for findings in found.values() for finding in findings])


def decision_toast(row_id: UUID, before: str, after: str, advice: str = "", kind: str = "new") -> Toast:
    decided = DECIDED if before == "proposed" else {}
    if kind == "retire" and before == "proposed":
        decided = {**decided, "active": "Retired. It’s out of all prompts."}
    text = (decided.get(after) or DONE.get(after, "Done.")) + advice
    if (before, after) not in REVERSIBLE:
        return Toast(text)
    fields = (("state", before), ("reason", "Undone."), ("confirm", "1"))
    return Toast(
        text, undo=url_for(".state", row_id=row_id), target="#toasts", row=f"knowledge-{row_id}", fields=fields
    )


def show_card(row_id: UUID, toast: Toast, status: int = 200, shown: dict[str, Any] | None = None) -> Response:
    """The row wherever it is shown; without a script, its page or the page that the form names."""
    back = request.form.get("next", "")
    fallback = back if back.startswith(url_for(".index")) else url_for(".detail", row_id=row_id)
    context = {"pills": list_pills(), **(shown or detail_context(row_id))}
    return swap("knowledge/_changed.html", fallback=fallback, status=status, toasts=[toast], **context)


# The history of a row as it reads: what changed at each step, word by word.

STEP_WORDS = {
    "created": "Written",
    "edited": "Edited",
    "active": "Activated",
    "inactive": "Deactivated",
    "superseded": "Replaced",
    "merged": "Merged into another",
    "rolled_back": "Restored an earlier version",
    "reopened": "Decision undone",
    "approved": "Approved",
    "withdrawn": "Withdrawn",
    "deleted": "Deleted",
}
NAMED_FIELDS = {
    "type": "kind",
    "context": "when",
    "agent_id": "agent",
    "entity_type_id": "entity type",
    "pinned": "pinned",
}


@dataclass(frozen=True)
class Step:
    """One change: what happened, how the text changed, and what else did as `(name, before, after)`."""

    row: Any
    word: str
    diff: list[Part]
    changes: list[tuple[str, str, str]]


def steps_of(history: Iterable[Any], scopes: dict[str, Any]) -> list[Step]:
    """Every step, newest first. `scopes` is what the ids of agents and types are called."""
    names = {str(one.id): one.slug for one in (*scopes["agents"], *scopes["types"])} | {"True": "yes", "False": "no"}
    return [Step(row, _word(row.action, row.before), *_compare(row.before, row.after, names)) for row in history]


def _word(action: str, before: dict[str, Any]) -> str:
    if before.get("state") == "proposed" and action in ("active", "inactive"):
        return "Approved" if action == "active" else "Rejected"
    return STEP_WORDS.get(action, action)


def _compare(
    before: dict[str, Any], after: dict[str, Any], names: dict[str, str]
) -> tuple[list[Part], list[tuple[str, str, str]]]:
    if not before:
        return [], []
    texts = str(before.get("content", "")), str(after.get("content", ""))
    changes = [
        (word, _name_value(before.get(name), names), _name_value(after.get(name), names))
        for name, word in NAMED_FIELDS.items()
        if before.get(name) != after.get(name)
    ]
    return word_diff(*texts) if texts[0] != texts[1] else [], changes


def _name_value(value: Any, names: dict[str, str]) -> str:
    return "none" if value in (None, "") else names.get(str(value), str(value))
