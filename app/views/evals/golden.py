"""One golden: what was frozen, its replays, and the few things about it that may change."""

from typing import Any
from uuid import UUID

from flask import g, request, url_for

from app.db import transaction
from app.errors import Invalid
from app.formats.ids import parse_id
from app.security.access import access
from app.services.entities import store as entity_store
from app.services.evals import expected as eval_expected
from app.services.evals import golden as eval_golden
from app.services.evals import golden_lists
from app.views.evals import bp
from app.views.htmx import Toast, leave, page, wants_fragment


@bp.get("/<uuid:session_id>")
@access("admin")
def show_golden(session_id: UUID) -> Any:
    """A golden as a page, and beside its set."""
    return _golden_page(session_id)


def _golden_page(session_id: UUID, status: int = 200, **more: Any) -> Any:
    row = golden_lists.get_golden(session_id, actor=g.actor)
    return page(
        "evals/golden.html",
        "evals/_panel.html",
        status=status,
        row=row,
        changes=eval_expected.format_changes((row.expected or {}).get("effects") or (), actor=g.actor),
        frozen=golden_lists.count_frozen(session_id, actor=g.actor),
        replays=golden_lists.list_replays(session_id, actor=g.actor),
        marks=golden_lists.health_of(row.set_name, [session_id], actor=g.actor)[session_id],
        set_names=[one.name for one in eval_golden.list_sets(actor=g.actor)],
        criteria_sets=entity_store.list_criteria_sets(actor=g.actor),
        **{"errors": {}, "given": _form_values(row), **more},
    )


def _form_values(row: golden_lists.GoldenRow) -> dict[str, str]:
    return {"set": row.set_name, "note": row.note or "", "criteria": str(row.criteria_set_id or "")}


@bp.post("/<uuid:session_id>/edit")
@access("admin")
def edit_golden(session_id: UUID) -> Any:
    """Change a golden's set, note or criteria; nothing else about it ever changes."""
    given = {name: request.form.get(name, "").strip() for name in ("set", "note", "criteria")}
    try:
        criteria = parse_id(given["criteria"]) if given["criteria"] else None
        if given["criteria"] and criteria is None:
            raise Invalid("Choose one of the list.", {"criteriaSetId": "Choose one of the list."})
        with transaction():
            changes = {"set": given["set"], "note": given["note"], "criteriaSetId": criteria}
            after = eval_golden.edit_golden(session_id, changes, actor=g.actor)
    except Invalid as refusal:
        errors = {"criteria" if name == "criteriaSetId" else name: said for name, said in refusal.fields.items()}
        return _golden_page(session_id, 422, errors=errors, given=given)
    back = url_for(".show_set", name=after["set"]) + f"#golden-{session_id}"
    return leave(back, Toast("Saved."))


@bp.get("/<uuid:session_id>/revoke")
@access("admin")
def ask_revoke(session_id: UUID) -> Any:
    """Says what revoking means before it is done."""
    row = golden_lists.get_golden(session_id, actor=g.actor)
    return page("evals/revoke.html", "evals/_revoke.html", row=row, in_place=wants_fragment())


@bp.post("/<uuid:session_id>/revoke")
@access("admin")
def revoke_golden(session_id: UUID) -> Any:
    """Take the mark away. The session stays as it is; doing it twice is fine."""
    with transaction():
        was = eval_golden.revoke_golden(session_id, actor=g.actor)
    text = "Revoked. The session is an ordinary one again." if was else "It was revoked before."
    return leave(url_for("sessions.detail", session_id=session_id), Toast(text))
