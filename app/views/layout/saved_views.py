"""Saved views: the menu that each tab has, and the page where they are renamed, shared and deleted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from flask import Response, g, redirect, request, url_for

from app.db import transaction
from app.errors import Invalid, Refused
from app.security.access import access
from app.services.chats.lists import ChatFilters
from app.services.feedback.lists import FeedbackFilters
from app.services.knowledge.lists import KnowledgeFilters
from app.services.lists import saved_views
from app.services.lists.filters import Filters
from app.services.lists.saved_views import ViewRow
from app.services.sessions.lists import SessionFilters
from app.views.format import query
from app.views.htmx import Toast, leave, render, wants_fragment
from app.views.layout import bp

FILTERS: dict[str, type[Filters]] = {
    "conversations": ChatFilters,
    "sessions": SessionFilters,
    "feedback": FeedbackFilters,
    "knowledge": KnowledgeFilters,
}


@dataclass(frozen=True)
class TabViews:
    """The views of one tab, as its menu shows them. `swapped`: htmx wants a part of the page, and the menu with it."""

    tab: str
    url: str
    rows: list[ViewRow]
    swapped: bool

    @property
    def default(self) -> ViewRow | None:
        return next((row for row in self.rows if row.is_default), None)

    def current(self, args: Mapping[str, str]) -> ViewRow | None:
        """The view that the address shows."""
        return next((row for row in self.rows if row.args == args), None) if args else None

    def href(self, view: ViewRow) -> str:
        return query(self.url, view.args) if view.query else f"{self.url}?view=all"

    @property
    def opening(self) -> Any:
        """Where a tab that was asked for without a query leads; None when it shows what was asked for. A link that
        takes the last filter off says `view=all`, or it would lead back here."""
        if request.query_string or self.swapped or self.default is None or not self.default.query:
            return None
        return redirect(self.href(self.default), 303)


def load_views(tab: str) -> TabViews:
    """The views of a tab. One query, which reads the columns of its list along."""
    rows, choice = saved_views.load_tab(tab, actor=g.actor)
    g.column_choices = {tab: choice}
    found = TabViews(tab, url_for(f"{tab}.index"), rows, wants_fragment())
    g.tab_opens_with_view = found.default is not None
    return found


@bp.get("/admin/agent-review/views")
@access("admin")
def list_views() -> Any:
    return _page()


def _page(errors: dict[str, str] | None = None, changed: UUID | None = None, status: int = 200) -> Response:
    """All views. With `errors` the form shows what was sent: `changed` names it, or it is a new one."""
    rows = saved_views.list_views(actor=g.actor)
    by_tab = {tab: [row for row in rows if row.tab == tab] for tab in FILTERS}
    groups = [(tab, url_for(f"{tab}.index"), found) for tab, found in by_tab.items() if found]
    shown = {"groups": groups, "errors": errors or {}, "changed": changed, "form": request.form}
    return render("layout/saved_views.html", status=status, **shown)


def _refuse(wrong: Invalid | Refused, changed: UUID | None = None) -> Response:
    """The page again. A form shows its name alone, so everything that is wrong is under the name."""
    fields = wrong.fields if isinstance(wrong, Invalid) else {}
    sentence = fields.get("name") or next(iter(fields.values()), wrong.detail)
    return _page({"name": sentence}, changed, status=422 if isinstance(wrong, Invalid) else 409)


def _flags() -> dict[str, bool]:
    return {"shared": bool(request.form.get("shared")), "is_default": bool(request.form.get("default"))}


@bp.post("/admin/agent-review/views")
@access("admin")
def save_view() -> Any:
    """Save a list under a name and return to it."""
    tab, name, query = (request.form.get(field, "") for field in ("tab", "name", "query"))
    try:
        with transaction():
            view = saved_views.save_view(tab, name, query.removeprefix("?"), filters=FILTERS, actor=g.actor, **_flags())
    except (Invalid, Refused) as wrong:
        return _refuse(wrong)
    return leave(f"{url_for(f'{view.tab}.index')}?{view.query or 'view=all'}", f"Saved as {view.name}.")


@bp.post("/admin/agent-review/views/<uuid:view_id>")
@access("admin")
def change_view(view_id: UUID) -> Any:
    try:
        with transaction():
            view = saved_views.change_view(view_id, actor=g.actor, name=request.form.get("name", ""), **_flags())
    except (Invalid, Refused) as wrong:
        return _refuse(wrong, view_id)
    return leave(url_for(".list_views"), f"Saved {view.name}.")


@bp.post("/admin/agent-review/views/<uuid:view_id>/delete")
@access("admin")
def delete_view(view_id: UUID) -> Any:
    with transaction():
        view = saved_views.delete_view(view_id, actor=g.actor)
    return leave(url_for(".list_views"), f"Deleted {view.name}.")


@bp.post("/admin/agent-review/views/<uuid:view_id>/copy")
@access("admin")
def copy_view(view_id: UUID) -> Any:
    """Copy a shared view and make it the default of its tab."""
    shared = saved_views.get_view(view_id, actor=g.actor)
    try:
        with transaction():
            view = saved_views.save_view(
                shared.tab, shared.name, shared.query, filters=FILTERS, actor=g.actor, is_default=True
            )
    except (Invalid, Refused) as wrong:
        return leave(url_for(".list_views"), Toast(wrong.detail, "error"))
    return leave(url_for(".list_views"), f"Made {view.name} the default of {view.tab.capitalize()}.")
