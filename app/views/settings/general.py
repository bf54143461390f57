"""Settings, General: the name of the workspace and what its admins decided."""

from collections.abc import Mapping
from typing import Any

from flask import Response, g, request, url_for

from app.db import transaction
from app.errors import Invalid
from app.formats.workspace_settings import WorkspaceSettings, timezones
from app.security.access import access
from app.services.workspaces import store as workspace_store
from app.views.forms import parse_count
from app.views.htmx import leave, render
from app.views.settings import bp


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
                raise Invalid.of(errors)
    except Invalid:
        return _page(name, WorkspaceSettings().model_dump() | changes, errors, 422)
    return leave(url_for("settings.index"), "The settings are saved.")


def _read_form(form: Mapping[str, str]) -> dict[str, Any]:
    """The settings of this page in their own types; what is no number stays a text, and is refused as such. The other
    settings are changed over the API and come to this page with what they decide."""
    number = form.get("context_top_n", "").strip()
    count = parse_count(number)
    return {
        "author_private": form.get("author_private") == "1",
        "timezone": form.get("timezone", "").strip(),
        "context_top_n": (number or None) if count is None else count,
        "feedback_origins": form.get("feedback_origins", "").split(),
    }
