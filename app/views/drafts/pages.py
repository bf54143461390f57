"""Drafts: what an agent would change of an agent or an entity type, what the goldens say, and the decision."""

from typing import Any
from uuid import UUID

from flask import g, redirect, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Invalid, Refused
from app.formats.agent_diff import Change, diff_versions
from app.formats.type_diff import diff_types
from app.models.agents import DRAFT_STATUSES
from app.security.access import access
from app.services.review import drafts
from app.services.review.drafts import DraftFilters, DraftRow
from app.text.diff import Part, text_diff
from app.views import lists as listing
from app.views.drafts import bp
from app.views.htmx import Toast, page, swap, wants_fragment

PAGE_SIZE = 25
MAX_NOTE = 2000
DONE = {
    "approved": "Approved.",
    "rejected": "Rejected the draft. Nothing changed.",
    "open": "Reopened the draft.",
}


@bp.get("")
@access("admin")
def index() -> Response:
    """Drafts, the open ones unless others are asked for."""
    given = {name: value for name, value in request.args.items() if name != "status" or value in DRAFT_STATUSES}
    asked = listing.read_listing(DraftFilters, {"status": "open", **given}, rows=PAGE_SIZE, local_days=False)
    found = drafts.list_drafts(asked.filters, asked.page, actor=g.actor)
    return page(
        "drafts/index.html",
        "drafts/_list.html",
        asked=asked,
        rows=found.items,
        count=found.count_text,
        statuses=DRAFT_STATUSES,
        **_shown(found.items),
        **listing.pager_links(found),
    )


def _shown(rows: list[DraftRow]) -> dict[str, Any]:
    return {
        "changes": {row.id: _diff(row) for row in rows},
        "trials": drafts.trials_of(rows, actor=g.actor),
        "evidence": drafts.evidence_of(rows, actor=g.actor),
    }


def _diff(row: DraftRow) -> list[tuple[Change, list[Part]]]:
    """What the draft changes, with the words of each text compared."""
    found = (diff_versions if row.agent_id else diff_types)(row.before, row.after)
    return [(one, text_diff(one.before, one.after) if one.shape == "text" else []) for one in found]


@bp.get("/<uuid:draft_id>")
@access("admin")
def detail(draft_id: UUID) -> Response:
    """One draft, as a page or beside the list."""
    return page("drafts/detail.html", "drafts/_panel.html", **_context(draft_id))


def _context(draft_id: UUID) -> dict[str, Any]:
    row = drafts.get_draft(draft_id, actor=g.actor)
    return {"row": row, **_shown([row])}


@bp.post("/<uuid:draft_id>/decide")
@access("admin")
def decide(draft_id: UUID) -> Any:
    """Approve or reject a draft, or take a rejection back."""
    wanted, note = request.form.get("status", ""), request.form.get("note", "").strip() or None
    try:
        with transaction():
            reversible = _decide(draft_id, wanted, note)
    except (Invalid, Refused) as refusal:
        return _answer(draft_id, Toast(refusal.detail, "error"), 422 if isinstance(refusal, Invalid) else 409)
    return _answer(draft_id, _decision_toast(draft_id, wanted, reversible))


def _decide(draft_id: UUID, wanted: str, note: str | None) -> bool:
    """Decide, and say whether that can be taken back here. An approved agent has versions for it."""
    if len(note or "") > MAX_NOTE:
        raise Invalid.of({"note": f"At most {MAX_NOTE:,} characters."})
    if wanted == "approved":
        return drafts.approve_draft(draft_id, actor=g.actor, note=note).entity_type_id is not None
    if wanted == "rejected":
        drafts.reject_draft(draft_id, actor=g.actor, note=note)
    elif wanted == "open":
        drafts.reopen_draft(draft_id, actor=g.actor)
    else:
        raise Invalid("Approve or reject it.")
    return wanted == "rejected"


def _decision_toast(draft_id: UUID, wanted: str, reversible: bool) -> Toast:
    if not reversible:
        return Toast(DONE[wanted])
    fields = (("status", "open"),)
    undo = url_for(".decide", draft_id=draft_id)
    return Toast(DONE[wanted], undo=undo, target="#toasts", row=f"draft-{draft_id}", fields=fields)


@bp.post("/<uuid:draft_id>/trial")
@access("admin")
def start_trial(draft_id: UUID) -> Any:
    """Replay the agent's goldens with the draft. Its card follows the runs."""
    try:
        with transaction():
            number = len(drafts.start_trial(draft_id, actor=g.actor))
    except Refused as refusal:
        return _answer(draft_id, Toast(refusal.detail, "error"), 409)
    return _answer(draft_id, Toast(f"Started {number} trial run{'' if number == 1 else 's'}."))


@bp.get("/<uuid:draft_id>/trial")
@access("admin")
def follow_trial(draft_id: UUID) -> Any:
    """What the goldens say so far. Once the runs have ended, the whole card shows what can be done now."""
    context = _context(draft_id)
    if not wants_fragment():
        return redirect(url_for(".detail", draft_id=draft_id), 303)
    if any(one.run.open for one in context["trials"][draft_id]):
        return page("drafts/_goldens.html", "drafts/_goldens.html", **context)
    return page("drafts/_changed.html", "drafts/_changed.html", **context)


def _answer(draft_id: UUID, toast: Toast, status: int = 200) -> Response:
    """The draft wherever it is shown; without a script, its page."""
    back = url_for(".detail", draft_id=draft_id)
    return swap("drafts/_changed.html", fallback=back, status=status, toasts=[toast], **_context(draft_id))
