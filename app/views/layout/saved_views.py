"""Saved views: the menu that each tab has, and the page where they are renamed, shared and deleted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from flask import Response, flash, g, make_response, redirect, render_template, request, url_for

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
from app.views.htmx import wants_fragment
from app.views.layout import bp

FILTERS: dict[str, type[Filters]] = {
    "conversations": ChatFilters,
    "sessions": SessionFilters,
    "feedback": FeedbackFilters,
    "knowledge": KnowledgeFilters,
}


@dataclass(frozen=True)
class TabViews:
    """The views of one tab, as its menu shows them. `swapped`: only a part of the page is wanted, and the menu with
    it."""

    tab: str
    url: str
    rows: list[ViewRow]
    swapped: bool

    @property
    def mine(self) -> list[ViewRow]:
        return [row for row in self.rows if row.mine]

    @property
    def shared(self) -> list[ViewRow]:
        return [row for row in self.rows if not row.mine]

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
    """The views of a tab. One query."""
    rows = saved_views.list_views(tab, actor=g.actor)
    found = TabViews(tab, url_for(f"{tab}.index"), rows, wants_fragment())
    g.tab_opens_with_view = found.default is not None
    return found


@bp.get("/admin/agent-review/views")
@access("admin")
def list_views() -> Any:
    return _page()


def _page(errors: dict[str, str] | None = None, changed: UUID | None = None, status: int = 200) -> Response:
    """All views. With `errors` what was sent stands in its form again: `changed` names it, or it is a new one."""
    rows = saved_views.list_views(actor=g.actor)
    groups = [
        (tab, url_for(f"{tab}.index"), [row for row in rows if row.tab == tab])
        for tab in FILTERS
        if any(row.tab == tab for row in rows)
    ]
    html = render_template(
        "layout/saved_views.html", groups=groups, errors=errors or {}, changed=changed, form=request.form
    )
    return make_response(html, status)


@bp.post("/admin/agent-review/views")
@access("admin")
def save_view() -> Any:
    """Keep a list under a name, and go on with it."""
    form = request.form
    try:
        with transaction():
            view = saved_views.save_view(
                form.get("tab", ""),
                form.get("name", ""),
                form.get("query", "").removeprefix("?"),
                filters=FILTERS,
                actor=g.actor,
                shared=bool(form.get("shared")),
                is_default=bool(form.get("default")),
            )
    except (Invalid, Refused) as wrong:
        return _page(_fields(wrong), status=409 if isinstance(wrong, Refused) else 422)
    flash(f"Saved as {view.name}.", "success")
    return redirect(_address(view), 303)


@bp.post("/admin/agent-review/views/<uuid:view_id>")
@access("admin")
def change_view(view_id: UUID) -> Any:
    form = request.form
    try:
        with transaction():
            view = saved_views.change_view(
                view_id,
                actor=g.actor,
                name=form.get("name", ""),
                shared=bool(form.get("shared")),
                is_default=bool(form.get("default")),
            )
    except (Invalid, Refused) as wrong:
        return _page(_fields(wrong), view_id, status=409 if isinstance(wrong, Refused) else 422)
    flash(f"Changed {view.name}.", "success")
    return redirect(url_for(".list_views"), 303)


@bp.post("/admin/agent-review/views/<uuid:view_id>/delete")
@access("admin")
def delete_view(view_id: UUID) -> Any:
    with transaction():
        view = saved_views.delete_view(view_id, actor=g.actor)
    flash(f"Deleted the view {view.name}.", "success")
    return redirect(url_for(".list_views"), 303)


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
        flash(wrong.detail, "error")
        return redirect(url_for(".list_views"), 303)
    flash(f"{view.tab.capitalize()} opens with {view.name} now.", "success")
    return redirect(url_for(".list_views"), 303)


def _address(view: Any) -> str:
    url = url_for(f"{view.tab}.index")
    return f"{url}?{view.query or 'view=all'}"


def _fields(wrong: Invalid | Refused) -> dict[str, str]:
    """Under which field the sentence belongs. A form shows the name alone, so that everything else stands there too."""
    fields = wrong.fields if isinstance(wrong, Invalid) else {}
    return fields if "name" in fields else {"name": next(iter(fields.values()), wrong.detail)}
