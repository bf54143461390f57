"""Proofs on the Knowledge tab: started for a row or for all proposed ones, followed, cancelled and read."""

from typing import Any
from uuid import UUID

from flask import g, redirect, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Invalid
from app.security.access import access
from app.services.evals.proof import report as proof_report
from app.services.evals.proof import start as proof_start
from app.services.knowledge import lists as knowledge_lists
from app.services.knowledge import proofs as knowledge_proofs
from app.views.forms import parse_count
from app.views.htmx import Toast, leave, page, wants_fragment
from app.views.knowledge import bp
from app.views.knowledge.pages import detail_context, list_pills, show_card, shows_refusal


@bp.get("/<uuid:row_id>/prove")
@access("admin")
def ask_proof(row_id: UUID) -> Response:
    """What a proof would replay and take, before it is started."""
    return _ask(row_id)


def _ask(row_id: UUID, error: str = "", status: int = 200) -> Response:
    row = knowledge_lists.get_row(row_id, actor=g.actor).row
    asked = request.values.get("trials", "")
    plan, estimate = proof_start.estimate_proof(row_id, actor=g.actor, trials=parse_count(asked))
    place = "panel-" if request.values.get("place") == "panel" else ""
    return page(
        "knowledge/prove.html", "knowledge/_prove.html", status=status, row=row, plan=plan, estimate=estimate,
        trials=asked or plan.usual_trials, place=place, error=error,
    )  # fmt: skip


@bp.post("/<uuid:row_id>/prove")
@access("admin")
@shows_refusal
def start_proof(row_id: UUID) -> Any:
    """Start the proof of a row. Its card follows it."""
    try:
        with transaction():
            proof = proof_start.start_proof(row_id, actor=g.actor, trials=_read_trials())
            done = proof.status == "done"
    except Invalid as refusal:
        if "trials" not in refusal.fields:
            raise
        return _ask(row_id, refusal.fields["trials"], 422)
    return show_card(row_id, Toast("No goldens to replay." if done else "Started the proof."))


def _read_trials() -> int | None:
    """What was typed; what is no number is as wrong as 0."""
    typed = request.form.get("trials", "").strip()
    return (parse_count(typed) or 0) if typed else None


@bp.get("/<uuid:row_id>/proof")
@access("admin")
def follow_proof(row_id: UUID) -> Any:
    """How far the proof of a row is, for its card; the whole card when it is done."""
    row = knowledge_lists.get_row(row_id, actor=g.actor).row
    if not wants_fragment():
        return redirect(url_for(".detail", row_id=row.id, _anchor=f"proof-{row.id}"), 303)
    if knowledge_proofs.proofs_of_row(row_id, actor=g.actor).running is not None:
        progress = proof_start.progress_of(actor=g.actor, row_id=row_id)
        return page(
            "knowledge/_proof_progress.html", "knowledge/_proof_progress.html", row_id=row_id, progress=progress
        )
    context = {"pills": list_pills(), **detail_context(row_id)}
    return page("knowledge/_proved.html", "knowledge/_proved.html", **context)


@bp.post("/<uuid:row_id>/prove/cancel")
@access("admin")
@shows_refusal
def cancel_proof(row_id: UUID) -> Any:
    """Cancel the proof of a row. A run that other proofs need goes on."""
    with transaction():
        cancelled = proof_start.cancel_proofs(actor=g.actor, row_id=row_id)
    return show_card(row_id, Toast("Cancelled the proof." if cancelled else "The proof had already finished.", "info"))


@bp.get("/<uuid:row_id>/suggestions")
@access("admin")
def suggest_goldens(row_id: UUID) -> Response:
    """What could become a golden that exercises a row."""
    row = knowledge_lists.get_row(row_id, actor=g.actor).row
    found = proof_report.suggest_goldens(row_id, actor=g.actor)
    return page("knowledge/suggestions.html", "knowledge/_suggestions.html", row=row, suggested=found)


@bp.get("/prove")
@access("admin")
def ask_proofs() -> Response:
    """What proving all proposed rows would take."""
    plans, estimate = proof_start.estimate_proofs(actor=g.actor)
    waiting = len(proof_start.unproved_rows(actor=g.actor))
    return page(
        "knowledge/prove_all.html", "knowledge/_prove_all.html", plans=plans, estimate=estimate, waiting=waiting
    )


@bp.post("/prove")
@access("admin")
def start_proofs() -> Any:
    """Prove all proposed rows as one job."""
    with transaction():
        started = proof_start.start_proofs(actor=g.actor)
    rows = f"{len(started)} row{'' if len(started) == 1 else 's'}"
    return leave(url_for(".index", state="proposed"), Toast(f"Started proofs of {rows}."))


@bp.get("/proving")
@access("admin")
def follow_proofs() -> Any:
    """How far all proofs under way are; follows itself until none is."""
    if not wants_fragment():
        return redirect(url_for(".index", state="proposed"), 303)
    progress = proof_start.progress_of(actor=g.actor)
    return page("knowledge/_proving.html", "knowledge/_proving.html", progress=progress, ended=progress is None)


@bp.post("/proving/cancel")
@access("admin")
def cancel_proofs() -> Any:
    """Cancel all proofs under way."""
    with transaction():
        number = proof_start.cancel_proofs(actor=g.actor)
    text = f"Cancelled {number} proof{'' if number == 1 else 's'}." if number else "The proofs had already finished."
    return leave(url_for(".index", state="proposed"), Toast(text, "info"))
