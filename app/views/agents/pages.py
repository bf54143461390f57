"""Agents: who answers, how much and how well. One that a typo made is merged, one that is done is archived."""

from typing import Any
from uuid import UUID

from flask import Response, current_app, flash, g, redirect, render_template, request, url_for

from app.db import transaction
from app.errors import Invalid, NotFound, Refused
from app.formats.agent_config import read_config
from app.formats.agent_diff import LIMITS
from app.models import Agent
from app.security.access import access
from app.services.agents import lists as agent_lists
from app.services.agents import merge as agent_merge
from app.services.agents import model_status, versions
from app.services.entities import store as entity_store
from app.services.sessions import start as session_start
from app.services.sessions.start import Progress
from app.tools.describe import describe_groups
from app.views.agents import bp
from app.views.agents.form import KINDS
from app.views.forms import form_text, parse_count
from app.views.htmx import leave, page, render, vary_by_htmx, wants_fragment
from app.views.sessions import detail as session_detail

VERSIONS = 6
ENDED = ("completed", "failed", "cancelled")


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


def _records() -> list[str]:
    """What can be suggested as the record that a run is about."""
    return entity_store.recent_names(actor=g.actor)


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
        return leave(url_for(".detail", agent_id=became))
    config = read_config(versions.read_contents(agent_id, [row.version], actor=g.actor).get(row.version, {}))
    others = [] if row.is_system else versions.list_agents(actor=g.actor)
    return render(
        "agents/detail.html",
        status=status,
        row=row,
        version_config=config,
        model=model_status.status_of(config.model, _settings()),
        groups=[group for group in describe_groups() if group.name in config.tool_groups],
        kinds=KINDS,
        limits=LIMITS,
        versions=versions.list_versions(agent_id, actor=g.actor, limit=VERSIONS),
        others=[(other.slug, other.slug) for other in others if not other.is_system and other.id != agent_id],
        records=_records() if row.runs_here else [],
        errors=errors or {},
        form=request.form if errors else {},
    )


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
    return render("agents/merge.html", status=status, source=source, target=target, work=work, refusal=refusal)


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


# Trying an agent: a message starts a real run, and the page follows it until it is done.


@bp.get("/<uuid:agent_id>/try")
@access("admin")
def try_form(agent_id: UUID) -> Any:
    """The form alone, with the version to run chosen."""
    agent = versions.get_agent(agent_id, actor=g.actor)
    return _form(agent, {"version": request.args.get("version", "")})


def _form(agent: Agent, values: dict[str, str], errors: dict[str, str] | None = None, status: int = 200) -> Response:
    context = {"tried": agent, "records": _records(), "values": values, "errors": errors or {}}
    return render("agents/try.html", status=status, **context)


@bp.post("/<uuid:agent_id>/try")
@access("admin")
def start_try(agent_id: UUID) -> Any:
    """Start a run and go to where it can be followed."""
    agent = versions.get_agent(agent_id, actor=g.actor)
    values = {"message": form_text("message"), "record": form_text("record"), "version": form_text("version")}
    if agent.is_system:
        return _form(agent, values, {"message": f"{agent.slug} belongs to the workspace and runs by its task."}, 409)
    try:
        with transaction():
            session = session_start.start_run(
                agent.slug,
                [values["message"]],
                actor=g.actor,
                entity_id=entity_store.find_record(values["record"], actor=g.actor) if values["record"] else None,
                agent_version=parse_count(values["version"]),
                metadata={"live": True},
            )
    except Invalid as wrong:
        errors = {"version" if name == "agent_version" else name: text for name, text in wrong.fields.items()}
        return _form(agent, values, errors, 422)
    except Refused as refusal:
        return _form(agent, values, {"message": refusal.detail}, 409)
    return redirect(url_for(".show_try", agent_id=agent_id, session_id=session.id), 303)


@bp.get("/<uuid:agent_id>/runs/<uuid:session_id>")
@access("admin")
def show_try(agent_id: UUID, session_id: UUID) -> Any:
    """A run as far as it is. The poll answers only when there is something new."""
    progress = session_start.progress_of(session_id, actor=g.actor)
    if wants_fragment() and request.args.get("seen") == _mark(progress):
        return vary_by_htmx(Response(status=204))
    found = _read_try(agent_id, progress)
    if not wants_fragment():
        agent = versions.get_agent(agent_id, actor=g.actor)
        ran = found["found"].agent_version
        values = {"version": str(ran) if ran and ran != agent.current_version else ""}
        found |= {"tried": agent, "records": _records(), "values": values, "errors": {}}
    return page("agents/run.html", "agents/_run_news.html", **found)


@bp.post("/<uuid:agent_id>/runs/<uuid:session_id>/stop")
@access("admin")
def stop_try(agent_id: UUID, session_id: UUID) -> Any:
    """Stop a run: at once while it waits, at its next step while it works."""
    _read_try(agent_id, session_start.progress_of(session_id, actor=g.actor))
    try:
        with transaction():
            session_start.stop_run(session_id, actor=g.actor)
    except Refused as refusal:
        flash(refusal.detail, "info")
    if wants_fragment():
        return show_try(agent_id, session_id)
    return redirect(url_for(".show_try", agent_id=agent_id, session_id=session_id), 303)


def _read_try(agent_id: UUID, progress: Progress) -> dict[str, Any]:
    found = session_detail.read_session(progress.session_id)
    if found["session"].agent_id != agent_id:
        raise NotFound("This agent has no such session.")
    return found | {
        "agent_id": agent_id,
        "progress": progress,
        "seen": _mark(progress),
        "ended": progress.status in ENDED,
        "said": _progress_text(progress, found["turns"]),
    }


def _mark(progress: Progress) -> str:
    """Changes whenever there is something new to see."""
    return f"{progress.status}.{progress.event_count}.{len(progress.draft)}.{progress.stopping:d}"


def _progress_text(progress: Progress, turns: list[Any]) -> str:
    """How far it is, for those who listen: the last tool, or how it ended."""
    if progress.status in ENDED:
        return f"The run is {progress.status}."
    if progress.stopping:
        return "Stopping."
    if progress.draft:
        return "The agent is writing."
    tools = [part.name for turn in turns for part in turn.parts if part.kind == "tool"]
    return f"The agent used {tools[-1]}." if tools else "The agent is working."
