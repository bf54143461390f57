"""The filter box of lists: what it suggests while someone types, and the same as a plain form."""

from dataclasses import asdict
from typing import Any

from flask import abort, g, jsonify, request, url_for

from app.security.access import access
from app.services.chats.lists import ChatFilters
from app.services.feedback.lists import FeedbackFilters
from app.services.knowledge.lists import KnowledgeFilters
from app.services.lists import phrases
from app.services.lists.filters import Filters
from app.services.review.pattern_figures import PatternFilters
from app.services.sessions.lists import SessionFilters
from app.views import lists as listing
from app.views.htmx import page
from app.views.layout import bp

# The lists that have a box, with their filters and their address.
LISTS: dict[str, tuple[type[Filters], str]] = {
    "conversations": (ChatFilters, "conversations.index"),
    "sessions": (SessionFilters, "sessions.index"),
    "feedback": (FeedbackFilters, "feedback.index"),
    "knowledge": (KnowledgeFilters, "knowledge.index"),
    "patterns": (PatternFilters, "patterns.index"),
}
MAX_TEXT = 500


def _list_of(name: str) -> tuple[type[Filters], str]:
    if name not in LISTS:
        abort(404)
    return LISTS[name]


@bp.get("/admin/agent-review/filters/<name>/suggestions")
@access("admin")
def suggest_filters(name: str) -> Any:
    """What the text of a box may become."""
    kind, _ = _list_of(name)
    found = phrases.suggest(kind, request.args.get("text", "")[:MAX_TEXT], actor=g.actor)
    return jsonify([asdict(one) for one in found])


@bp.get("/admin/agent-review/filters/<name>")
@access("admin")
def show_filters(name: str) -> Any:
    """All filters of a list as a form, in its menu or as a page."""
    kind, endpoint = _list_of(name)
    asked = listing.read_listing(kind)
    return page(
        "layout/filters.html",
        "layout/_filter_form.html",
        name=name,
        url=url_for(endpoint),
        args=asked.args,
        fields=phrases.form_fields(kind, actor=g.actor),
    )
