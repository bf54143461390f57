"""Settings, Imports: what was taken in from files, and undoing it."""

from typing import Any
from uuid import UUID

from flask import g, url_for

from app.db import transaction
from app.db.paging import Page
from app.errors import Refused
from app.security.access import access
from app.services.ingest import imports as ingest_imports
from app.views.htmx import Toast, leave, page
from app.views.lists import page_cursor, pager_links
from app.views.settings import bp


@bp.get("/imports")
@access("admin")
def list_imports() -> Any:
    found = ingest_imports.list_imports(Page(50, page_cursor()), actor=g.actor)
    return page("settings/imports.html", "settings/_imports.html", found=found, **pager_links(found))


@bp.post("/imports/<uuid:import_id>/undo")
@access("admin")
def undo_import(import_id: UUID) -> Any:
    try:
        with transaction():
            removed = ingest_imports.undo_import(import_id, actor=g.actor)
    except Refused as refusal:
        return leave(url_for("settings.list_imports"), Toast(refusal.detail, "error"))
    gone = "session is" if removed == 1 else "sessions are"
    return leave(url_for("settings.list_imports"), f"The import is undone: {removed:,} {gone} gone.")
