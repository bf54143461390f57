"""Trying an agent: a message starts a real run, and the page follows it until it is done."""

from typing import Any
from uuid import UUID

from flask import flash, g, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Invalid, NotFound, Refused
from app.models import Agent
from app.security.access import access
from app.services.agents import versions
from app.services.entities import store as entity_store
from app.services.sessions import start as session_start
from app.services.sessions.start import Progress
from app.views.agents import bp
from app.views.forms import form_text, parse_count
from app.views.htmx import page, vary_by_htmx, wants_fragment
from app.views.sessions import detail as session_detail

ENDED = ("completed", "failed", "cancelled")


def records() -> list[str]:
    """What can be suggested as the record that a run is about."""
    return entity_store.recent_names(actor=g.actor)


@bp.get("/<uuid:agent_id>/try")
@access("admin")
def try_form(agent_id: UUID) -> Any:
    """The form alone, with the version to run chosen."""
    agent = versions.get_agent(agent_id, actor=g.actor)
    return _form(agent, {"version": request.args.get("version", "")})


def _form(agent: Agent, values: dict[str, str], errors: dict[str, str] | None = None, status: int = 200) -> Any:
    html = render_template("agents/try.html", tried=agent, records=records(), values=values, errors=errors or {})
    return html, status


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
        found |= {"tried": agent, "records": records(), "values": values, "errors": {}}
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
