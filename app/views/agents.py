"""Agents: who answers, how much and how well; renamed, or merged when a typo made two of one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flask import Blueprint, Flask, Response, flash, g, make_response, redirect, render_template, request, url_for

from app.access import access
from app.db import transaction
from app.errors import Invalid, NotFound, Refused
from app.services import agent_merge, agents

bp = Blueprint("agents", __name__, url_prefix="/admin/agents")


@bp.get("")
@access("admin")
def index() -> Any:
    """Every agent of the workspace."""
    return render_template("agents/index.html", rows=agent_merge.list_standings(actor=g.actor))


@bp.get("/<uuid:agent_id>")
@access("admin")
def detail(agent_id: UUID) -> Any:
    return _detail(agent_id)


def _detail(agent_id: UUID, errors: dict[str, str] | None = None, status: int = 200) -> Response:
    """One agent with its two forms. An agent that was merged leads to the one it became."""
    rows = agent_merge.list_standings(actor=g.actor)
    row = next((row for row in rows if row.id == agent_id), None)
    if row is None:
        became = agents.get_agent(agent_id, actor=g.actor).merged_into
        if became is None:
            raise NotFound("There is no such agent in this workspace.")
        return make_response(redirect(url_for(".detail", agent_id=became), 303))
    others = [(other.slug, other.slug) for other in rows if _takes_in(other) and other.id != agent_id]
    html = render_template(
        "agents/detail.html", row=row, others=others, errors=errors or {}, form=request.form if errors else {}
    )
    return make_response(html, status)


def _takes_in(row: agent_merge.Standing) -> bool:
    return not row.is_system and row.archived_at is None


@bp.post("/<uuid:agent_id>/rename")
@access("admin")
def rename(agent_id: UUID) -> Any:
    form = request.form
    try:
        with transaction():
            agent = agent_merge.rename_agent(
                agent_id, slug=form.get("slug", ""), name=form.get("name", ""), actor=g.actor
            )
    except Invalid as wrong:
        return _detail(agent_id, wrong.fields, 422)
    except Refused as refusal:
        return _detail(agent_id, {"slug": refusal.detail}, 409)
    flash(f"It is {agent.slug} now.", "success")
    return redirect(url_for(".detail", agent_id=agent_id), 303)


@bp.get("/<uuid:agent_id>/merge")
@access("admin")
def confirm(agent_id: UUID) -> Any:
    """What a merge would move, before it does."""
    return _confirm(agent_id, request.args.get("into", ""))


def _confirm(agent_id: UUID, into: str, refusal: str = "", status: int = 200) -> Response:
    source = agents.get_agent(agent_id, actor=g.actor)
    try:
        target = agent_merge.target_called(into, actor=g.actor)
    except Invalid as wrong:
        return _detail(agent_id, wrong.fields, 422)
    work = agent_merge.work_of(agent_id, actor=g.actor)
    if work["golden"] and not refusal:
        refusal, status = f"{source.slug} has golden sessions, and a golden never changes.", 409
    html = render_template("agents/merge.html", source=source, target=target, work=work, refusal=refusal)
    return make_response(html, status)


@bp.post("/<uuid:agent_id>/merge")
@access("admin")
def merge(agent_id: UUID) -> Any:
    into = request.form.get("into", "")
    try:
        with transaction():
            source = agents.get_agent(agent_id, actor=g.actor).slug
            target = agent_merge.target_called(into, actor=g.actor)
            agent_merge.merge_agent(agent_id, target.id, actor=g.actor)
    except Invalid as wrong:
        return _detail(agent_id, wrong.fields, 422)
    except Refused as refusal:
        return _confirm(agent_id, into, refusal.detail, 409)
    flash(f"{source} is part of {target.slug} now.", "success")
    return redirect(url_for(".detail", agent_id=target.id), 303)


def register(app: Flask) -> None:
    app.register_blueprint(bp)
