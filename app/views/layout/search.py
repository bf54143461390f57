"""Search anything: pages and records in one list, as a dialog over any page and as a page of its own."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from flask import current_app, g, render_template, request, url_for

from app.security.access import access, access_of
from app.services.lists import global_search
from app.views.htmx import render, vary_by_htmx
from app.views.layout import bp
from app.views.layout.shell import TABS, navigation

PAGES_SHOWN = 6
# Pages that the side bar and the tabs do not name, each with further words it is looked for by.
MORE_PAGES = (
    ("settings.audit_trail", "Audit trail", "history", "log who did what"),
    ("settings.list_members", "Members", "users", "people invite roles"),
    ("settings.list_keys", "API keys", "key", "tokens scopes"),
    ("settings.list_imports", "Imports", "file-import", "files undo"),
    ("layout.list_views", "Saved views", "bookmark", "filters default"),
    ("knowledge.new", "Add knowledge", "plus", "new rule"),
    ("feedback.list_own", "Your feedback", "thumb-up", "mine thumbs said outcome"),
    ("account.index", "Your account", "user", "password name sign-in"),
    ("layout.keys", "Keyboard", "keyboard", "keys shortcuts help"),
)
# Title and icon of each kind, where it opens for admins and for members, who reach fewer, and the argument of both.
KINDS = {
    "session": ("Sessions", "activity", "sessions.detail", "sessions.own_detail", "session_id"),
    "chat": ("Conversations", "message-circle", "conversations.detail", "chat.detail", "chat_id"),
    "feedback": ("Feedback", "thumb-down", "feedback.detail", None, "feedback_id"),
    "knowledge": ("Knowledge", "book", "knowledge.detail", None, "row_id"),
    "agent": ("Agents", "robot", "agents.detail", None, "agent_id"),
    "entity": ("Entities", "database", "entities.detail", "entities.detail", "entity_id"),
}
# One line of the answer: href, icon, title, note, at and mark, its id on the page.
Option = dict[str, Any]


@bp.get("/palette")
@access("signed_in")
def palette() -> Any:
    """Return the results of the dialog while the person types."""
    return vary_by_htmx(render("layout/_search_results.html", **_found()))


@bp.get("/search")
@access("signed_in")
def search() -> Any:
    """The same as a page, for those without a script and for those who want to keep the answer."""
    return render_template("layout/search.html", **_found())


def _found() -> dict[str, Any]:
    query = global_search.clean(request.args.get("q", ""))
    kinds = [kind for kind in KINDS if _place_of(kind)]
    records = global_search.search_workspace(query, actor=g.actor, kinds=kinds)
    options = {"ID": [_record(found) for found in records if found.by_id], "Pages": _pages(query)}
    for kind in kinds:
        options[KINDS[kind][0]] = [_record(found) for found in records if found.kind == kind and not found.by_id]
    for number, option in enumerate(chain.from_iterable(options.values()), 1):
        option["mark"] = f"option-{number}"
    groups = [{"title": title, "options": found} for title, found in options.items() if found]
    return {"query": query, "groups": groups}


def _pages(query: str) -> list[Option]:
    """The pages that have the words; all of them when there are none."""
    words = query.lower().split()
    found = [
        {"href": url_for(endpoint), "icon": icon, "title": title}
        for endpoint, title, icon, more in _all_pages()
        if _may_open(endpoint) and all(word in f"{title} {more}".lower() for word in words)
    ]
    return found[:PAGES_SHOWN] if words else found


def _all_pages() -> Iterator[tuple[str, str, str, str]]:
    yield from ((tab.endpoint, tab.title, tab.icon, "agent review") for tab in TABS)
    for section in chain.from_iterable(group.sections for group in navigation(g.actor)):
        if section.title != "Agent Review":
            yield section.endpoint, section.title, section.icon, ""
    yield from MORE_PAGES


def _may_open(endpoint: str) -> bool:
    declared = access_of(current_app, endpoint)
    return declared is not None and (
        declared.level in ("public", "signed_in") or bool(g.actor.at_least(declared.level))
    )


def _place_of(kind: str) -> str | None:
    """The page on which this person opens a record of the kind, if they may."""
    _, _, for_admins, for_members, _ = KINDS[kind]
    endpoint = for_admins if g.actor.is_admin else for_members
    return endpoint if endpoint and _may_open(endpoint) else None


def _record(found: Any) -> Option:
    _, icon, _, _, argument = KINDS[found.kind]
    values: dict[str, Any] = {argument: found.id}
    href = url_for(_place_of(found.kind) or "", **values)
    return {"href": href, "icon": icon, "title": " ".join(found.title.split()), "note": found.note, "at": found.at}
