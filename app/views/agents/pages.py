"""Agents: who answers, how much and how well. One that a typo made is merged, one that is done is archived."""

from typing import Any
from uuid import UUID

from flask import Response, current_app, flash, g, make_response, redirect, render_template, request, url_for

from app.db import transaction
from app.errors import Invalid, NotFound, Refused
from app.formats.agent_config import read_config
from app.formats.agent_diff import LIMITS
from app.security.access import access
from app.services.agents import lists as agent_lists
from app.services.agents import merge as agent_merge
from app.services.agents import model_status, versions
from app.tools.describe import describe_groups
from app.views.agents import bp, playground
from app.views.agents.form import KINDS
from app.views.htmx import leave

VERSIONS = 6


@bp.get("")
@access("admin")
def index() -> Any:
    """The agents of the workspace that are at work, or those that are archived."""
    archived = request.args.get("show") == "archived"
    found = agent_lists.list_stats(actor=g.actor, archived=archived, after=request.args.get("after", ""))
    return render_template(
        "agents/index.html", found=found, archived=archived, first="after" not in request.args, settings=_settings()
    )


def _settings() -> Any:
    return current_app.config["SETTINGS"]


@bp.get("/<uuid:agent_id>")
@access("admin")
def detail(agent_id: UUID, errors: dict[str, str] | None = None, status: int = 200) -> Response:
    """One agent as it is now. An agent that was merged leads to the one it became. Eight queries."""
    try:
        row = agent_lists.get_stats(agent_id, actor=g.actor)
    except NotFound:
        became = versions.get_agent(agent_id, actor=g.actor).merged_into
        if became is None:
            raise
        return make_response(redirect(url_for(".detail", agent_id=became), 303))
    config = read_config(versions.read_contents(agent_id, [row.version], actor=g.actor).get(row.version, {}))
    others = [] if row.is_system else versions.list_agents(actor=g.actor)
    html = render_template(
        "agents/detail.html",
        row=row,
        version_config=config,
        model=model_status.status_of(config.model, _settings()),
        groups=[group for group in describe_groups() if group.name in config.tool_groups],
        kinds=KINDS,
        limits=LIMITS,
        versions=versions.list_versions(agent_id, actor=g.actor, limit=VERSIONS),
        others=[(other.slug, other.slug) for other in others if not other.is_system and other.id != agent_id],
        records=playground.records() if row.runs_here else [],
        errors=errors or {},
        form=request.form if errors else {},
    )
    return make_response(html, status)


@bp.post("/<uuid:agent_id>/archive")
@access("admin")
def archive(agent_id: UUID) -> Any:
    """Retire an agent, or put it back to work."""
    back = request.form.get("do") == "restore"
    try:
        with transaction():
            (versions.restore_agent if back else versions.archive_agent)(agent_id, actor=g.actor)
    except Refused as refusal:
        flash(refusal.detail, "error")
        return redirect(url_for(".detail", agent_id=agent_id), 303)
    done = "At work again. Its knowledge stays inactive until you activate it." if back else "Archived."
    return leave(url_for(".detail", agent_id=agent_id), done)


@bp.get("/<uuid:agent_id>/merge")
@access("admin")
def confirm(agent_id: UUID, refusal: str = "", status: int = 200) -> Response:
    """What a merge would move, before it does."""
    source = versions.get_agent(agent_id, actor=g.actor)
    try:
        target = agent_merge.find_target(request.values.get("into", ""), actor=g.actor)
    except Invalid as wrong:
        return detail(agent_id, wrong.fields, 422)
    work = agent_merge.count_work(agent_id, actor=g.actor)
    if work["golden"] and not refusal:
        refusal, status = f"{source.slug} has golden sessions, and a golden never changes.", 409
    html = render_template("agents/merge.html", source=source, target=target, work=work, refusal=refusal)
    return make_response(html, status)


@bp.post("/<uuid:agent_id>/merge")
@access("admin")
def merge(agent_id: UUID) -> Any:
    """Merge an agent into another."""
    try:
        with transaction():
            source = versions.get_agent(agent_id, actor=g.actor).slug
            target = agent_merge.find_target(request.form.get("into", ""), actor=g.actor)
            agent_merge.merge_agent(agent_id, target.id, actor=g.actor)
    except Invalid as wrong:
        return detail(agent_id, wrong.fields, 422)
    except Refused as refusal:
        return confirm(agent_id, refusal.detail, 409)
    return leave(url_for(".detail", agent_id=target.id), f"{source} is part of {target.slug} now.")
