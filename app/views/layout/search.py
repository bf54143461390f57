"""Search anything: pages and records in one list, as a dialog over any page and as a page of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any

from flask import current_app, g, render_template, request, url_for

from app.security import access
from app.security.access import access as open_to
from app.services.lists import global_search
from app.services.lists.global_search import Found
from app.views.htmx import vary_by_htmx
from app.views.layout import bp
from app.views.layout.navigation import TABS, navigation

PAGES_SHOWN = 6


# Pages that the side bar and the tabs do not name, each with further words it is looked for by.
MORE_PAGES = (
    ("settings.audit", "Audit trail", "history", "log who did what"),
    ("settings.list_members", "Members", "users", "people invite roles"),
    ("settings.list_keys", "API keys", "key", "tokens scopes"),
    ("settings.list_imports", "Imports", "file-import", "files undo"),
    ("layout.list_views", "Saved views", "bookmark", "filters default"),
    ("knowledge.new", "Add knowledge", "plus", "new rule"),
    ("feedback.list_own", "Your feedback", "thumb-up", "mine thumbs said"),
    ("feedback.list_own", "Your feedback", "thumb-up", "what became of it"),
    ("account.index", "Your account", "user", "password name sign-in"),
    ("layout.keys", "Keyboard", "keyboard", "keys shortcuts help"),
)
TAB_ICONS = {
    "conversations.index": "message-circle",
    "sessions.index": "activity",
    "feedback.index": "thumb-down",
    "knowledge.index": "book",
    "evals.index": "flask",
}
GROUPS = (
    ("session", "Sessions", "activity"),
    ("chat", "Conversations", "message-circle"),
    ("feedback", "Feedback", "thumb-down"),
    ("knowledge", "Knowledge", "book"),
    ("agent", "Agents", "robot"),
    ("entity", "Entities", "database"),
)
# Where each kind opens: for admins, and for members, who reach fewer.
ADMINS_OPEN = {
    "session": ("sessions.detail", "session_id"),
    "chat": ("conversations.detail", "chat_id"),
    "feedback": ("feedback.detail", "feedback_id"),
    "knowledge": ("knowledge.detail", "row_id"),
    "agent": ("agents.detail", "agent_id"),
    "entity": ("entities.detail", "entity_id"),
}
MEMBERS_OPEN = {
    "session": ("sessions.own_detail", "session_id"),
    "chat": ("chat.detail", "chat_id"),
    "entity": ("entities.detail", "entity_id"),
}


# Where it leads, icon, title, a few words beside it, and when.
Line = tuple[str, str, str, str, datetime | None]


@dataclass(frozen=True)
class Option:
    """One line of the answer; `mark` is its id on the page."""

    mark: str
    href: str
    icon: str
    title: str
    note: str
    at: datetime | None


@dataclass(frozen=True)
class Group:
    title: str
    options: list[Option]


@bp.get("/palette")
@open_to("signed_in")
def palette() -> Any:
    """Return the results of the dialog while the person types."""
    return vary_by_htmx(current_app.make_response(render_template("layout/_search_results.html", **_found())))


@bp.get("/search")
@open_to("signed_in")
def search() -> Any:
    """The same as a page, for those without a script and for those who want to keep the answer."""
    return render_template("layout/search.html", **_found())


def _found() -> dict[str, Any]:
    query = global_search.clean(request.args.get("q", ""))
    opens = _openable()
    records = global_search.search_workspace(query, actor=g.actor, kinds=opens)
    lines = {"This id": [_record(found, opens) for found in records if found.by_id], "Pages": _pages(query)}
    for kind, title, _ in GROUPS:
        lines[title] = [_record(found, opens) for found in records if found.kind == kind and not found.by_id]
    numbers = count(1)
    groups = [
        Group(title, [Option(f"option-{next(numbers)}", *line) for line in wanted])
        for title, wanted in lines.items()
        if wanted
    ]
    return {"query": query, "groups": groups}


def _pages(query: str) -> list[Line]:
    """The pages that have the words; all of them when there are none."""
    words = query.lower().split()
    found: list[Line] = [
        (url_for(endpoint), icon, title, "", None)
        for endpoint, title, icon, more in _all_pages()
        if all(word in f"{title} {more}".lower() for word in words)
    ]
    return found[:PAGES_SHOWN] if words else found


def _all_pages() -> Iterator[tuple[str, str, str, str]]:
    tabs = [(tab.endpoint, tab.title, TAB_ICONS.get(tab.endpoint, "checkup-list"), "agent review") for tab in TABS]
    sections = [
        (section.endpoint, section.title, section.icon, "")
        for group in navigation(g.actor, current_app.view_functions.keys())
        for section in group.sections
        if section.title != "Agent Review"
    ]
    for endpoint, title, icon, more in (*tabs, *sections, *MORE_PAGES):
        if _may_open(endpoint):
            yield endpoint, title, icon, more


def _may_open(endpoint: str) -> bool:
    declared = access.access_of(current_app, endpoint)
    if declared is None:
        return False
    return declared.level in ("public", "signed_in") or bool(g.actor.at_least(declared.level))


def _openable() -> dict[str, tuple[str, str]]:
    """The kinds that have a page which this person may open."""
    places = ADMINS_OPEN if g.actor.is_admin else MEMBERS_OPEN
    return {kind: place for kind, place in places.items() if _may_open(place[0])}


def _record(found: Found, opens: dict[str, tuple[str, str]]) -> Line:
    endpoint, argument = opens[found.kind]
    values: dict[str, Any] = {argument: found.id}
    icon = next(icon for kind, _, icon in GROUPS if kind == found.kind)
    return url_for(endpoint, **values), icon, " ".join(found.title.split()), found.note or "", found.at
