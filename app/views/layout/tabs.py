"""Agent Review: where its address leads, and what its tabs share."""

from flask import g, redirect, request, url_for
from werkzeug.wrappers import Response

from app.security.access import access
from app.services.agents import versions
from app.views.layout import bp
from app.views.lists import Field


@bp.get("/admin/agent-review")
@bp.get("/admin/agent-review/")
@access("admin")
def agent_review() -> Response:
    """The queue is where an admin begins."""
    return redirect(url_for("feedback.index"), 303)


@bp.get("/admin/conversations")
@bp.get("/admin/conversations/")
@bp.get("/admin/conversations/<path:rest>")
@access("admin")
def moved_conversations(rest: str = "") -> Response:
    """Where conversations used to be."""
    target = url_for("conversations.index") + (f"/{rest}" if rest else "")
    query = request.query_string.decode("ascii", "replace")
    return redirect(f"{target}?{query}" if query else target, 301)


def agent_menu() -> Field:
    """The workspace's agents as a filter. One query."""
    agents = [(row.slug, row.slug) for row in versions.list_agents(actor=g.actor)]
    return {"name": "agent", "label": "agent", "options": agents}


def with_version(slug: str | None, version: int | None) -> str:
    return " ".join(word for word in (slug, f"v{version}" if version else "") if word)
