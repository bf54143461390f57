"""The prompt as an agent would get it now, byte by byte, and what fell below the line."""

from flask import g, request
from werkzeug.wrappers import Response

from app.formats.ids import parse_id
from app.learning.prompt import PromptRow
from app.learning.ranking import rank
from app.security.access import access
from app.services.agents import versions
from app.services.entities import store as entity_store
from app.services.knowledge import lists as knowledge_lists
from app.services.knowledge import prompt as knowledge_prompt
from app.views.htmx import page
from app.views.knowledge import bp


@bp.get("/preview")
@access("admin")
def preview() -> Response:
    """The exact prompt for an agent and a kind of record; with `row`, the place of that row."""
    row_id = parse_id(request.args.get("row", ""))
    row = next(iter(knowledge_lists.get_rows([row_id], actor=g.actor)), None) if row_id else None
    # What the address asks for, else whom the row is for.
    agent, kind = (
        request.args.get(name, (row and getattr(row, name)) or "").strip()[:120] for name in ("agent", "entity_type")
    )
    agent_id = versions.resolve_agent(agent, actor=g.actor).id if agent else None
    type_id = entity_store.find_type(kind, actor=g.actor).id if kind else None
    offered = None
    if row and row.state != "active":
        # As it would be right after it was brought into use.
        fresh = rank(0, helpful=row.helpful, harmful=row.harmful, pinned=row.pinned)
        offered = PromptRow(row.id, row.type, row.content, row.context, row.scope, row.version, fresh)
    shown = knowledge_prompt.preview_prompt(actor=g.actor, agent_id=agent_id, entity_type_id=type_id, row=offered)
    return page(
        "knowledge/preview.html", "knowledge/_preview.html", shown=shown, prompt=shown.prompt,
        row=row, agent=agent, entity_type=kind, scopes=knowledge_lists.scope_slugs(actor=g.actor),
    )  # fmt: skip
