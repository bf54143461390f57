"""Settings, General and Audit: what the admins decided, and who did what."""

from collections.abc import Mapping
from typing import Any

from flask import Response, g, request, url_for

from app.db import transaction
from app.db.paging import Page
from app.errors import Invalid
from app.formats.workspace_settings import WorkspaceSettings, timezones
from app.security.access import access
from app.services import audit as services_audit
from app.services.workspaces import store as workspace_store
from app.views.htmx import leave, page, render
from app.views.settings import bp
from app.views.settings.audit import details_line, sentence

# The settings that do something. The others are kept over the API and come to this page with what they decide.
CHECKS = ("author_private",)
NUMBERS = ("context_top_n",)
TEXTS = ("timezone",)


@bp.get("")
@access("admin")
def index() -> Any:
    tenant = workspace_store.get_workspace(actor=g.actor)
    return _page(tenant.name, workspace_store.get_settings(g.actor).model_dump(), {})


def _page(name: str, values: Mapping[str, Any], errors: dict[str, str], status: int = 200) -> Response:
    zones = sorted(timezones())
    return render("settings/index.html", status=status, name=name, form=values, errors=errors, timezones=zones)


@bp.post("")
@access("admin")
def save() -> Any:
    """All or nothing: the name and the settings are one form."""
    name, changes = request.form.get("name", ""), _read_form(request.form)
    errors: dict[str, str] = {}
    try:
        with transaction():
            for change in (
                lambda: workspace_store.rename_workspace(name, actor=g.actor),
                lambda: workspace_store.change_settings(changes, actor=g.actor),
            ):
                try:
                    change()
                except Invalid as wrong:
                    errors |= wrong.fields
            if errors:
                raise Invalid("These settings do not fit.", errors)
    except Invalid:
        return _page(name, WorkspaceSettings().model_dump() | changes, errors, 422)
    return leave(url_for("settings.index"), "The settings are saved.")


def _read_form(form: Mapping[str, str]) -> dict[str, Any]:
    """The form's texts in the settings' own types; what is no number stays a text, and is refused as such."""
    changes: dict[str, Any] = {name: form.get(name) == "1" for name in CHECKS}
    changes |= {name: form.get(name, "").strip() for name in TEXTS}
    for name in NUMBERS:
        text = form.get(name, "").strip()
        changes[name] = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text or None
    changes["feedback_origins"] = form.get("feedback_origins", "").split()
    return changes


@bp.get("/audit")
@access("admin")
def audit_trail() -> Any:
    cursor = request.args.get("after") or request.args.get("before")
    found = services_audit.list_entries(Page(50, cursor), actor=g.actor)
    return page(
        "settings/audit.html",
        "settings/_audit.html",
        found=found,
        newer=found.prev_cursor,
        older=found.next_cursor,
        sentence=sentence,
        details_line=details_line,
    )
