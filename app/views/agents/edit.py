"""Agents written by people: the form, every version there was, and what differs between two of them."""

from typing import Any
from uuid import UUID

from flask import current_app, g, redirect, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Invalid, NotFound, Refused, Stale
from app.formats.agent_config import ENV_PREFIX
from app.formats.agent_diff import LIMITS, Change, diff_versions
from app.models import Agent
from app.security.access import access
from app.services.agents import edit as agent_edit
from app.services.agents import model_status
from app.services.agents import versions as agent_versions
from app.text.diff import text_diff
from app.tools.describe import describe_groups
from app.views.agents import bp
from app.views.agents.form import KINDS, AgentForm
from app.views.forms import parse_count
from app.views.htmx import Toast, leave, page, render

VERSIONS_SHOWN = 30


@bp.get("/new")
@access("admin")
def new() -> Response:
    """An empty form."""
    return _form(AgentForm.new(request.args.get("kind", "")), None)


@bp.post("/new")
@access("admin")
def create() -> Any:
    """Make the agent, or add or remove a row of the form."""
    form = AgentForm.read(request.form)
    if pressed := form.pressed(request.form.get("do", "")):
        return _form(pressed, None)
    form = form.without_blanks()
    try:
        with transaction():
            agent = agent_edit.create_agent(form.as_content(), actor=g.actor, note=form.note, allow=_allowed_hosts())
    except (Invalid, Refused) as refusal:
        return _form(form.refused(refusal), None, 422)
    return leave(url_for(".detail", agent_id=agent.id), f"Created {agent.name}.")


@bp.get("/<uuid:agent_id>/edit")
@access("admin")
def edit_form(agent_id: UUID) -> Any:
    """The agent as a form."""
    agent = agent_versions.get_agent(agent_id, actor=g.actor)
    if agent.archived_at:
        return redirect(url_for(".detail", agent_id=agent_id), 303)
    version = agent.current_version
    stored = agent_versions.read_contents(agent_id, [version], actor=g.actor).get(version, {})
    return _form(AgentForm.of(agent_edit.content_of(agent, stored), version), agent)


@bp.post("/<uuid:agent_id>/edit")
@access("admin")
def edit(agent_id: UUID) -> Any:
    """Save a new version; after a concurrent save show both. Or add or remove a row."""
    agent = agent_versions.get_agent(agent_id, actor=g.actor)
    form = AgentForm.read(request.form)
    if pressed := form.pressed(request.form.get("do", "")):
        return _form(pressed, agent)
    form = form.without_blanks()
    try:
        with transaction():
            saved = agent_edit.edit_agent(
                agent_id, form.as_content(), version=form.version, actor=g.actor, note=form.note, allow=_allowed_hosts()
            )
    except Stale as stale:
        return _stale_form(agent_id, form, stale)
    except (Invalid, Refused) as refusal:
        status = 422 if isinstance(refusal, Invalid) else 409
        return _form(form.refused(refusal), agent_versions.get_agent(agent_id, actor=g.actor), status)
    toast = Toast(f"Saved as version {saved.version}.") if saved else Toast("Nothing was changed.", "info")
    return leave(url_for(".detail", agent_id=agent_id), toast)


def _stale_form(agent_id: UUID, form: AgentForm, stale: Stale) -> Response:
    """The form over the version saved meanwhile, with the changes that saving would make to it."""
    agent = agent_versions.get_agent(agent_id, actor=g.actor)
    mine, current = form.as_content(), dict(stale.current or {})
    if agent.is_system:
        mine = current | {name: mine[name] for name in ("model", "limits")}
    return _form(form.overtaken(stale.detail, diff_versions(current, mine), agent.current_version), agent, 409)


def _allowed_hosts() -> str:
    return str(current_app.config["SETTINGS"].outbound_allow)


def _form(form: AgentForm, agent: Agent | None, status: int = 200) -> Response:
    settings = current_app.config["SETTINGS"]
    return page(
        "agents/form.html",
        "agents/_form.html",
        status=status,
        form=form,
        agent=agent,
        kinds=KINDS,
        limits=LIMITS,
        groups=describe_groups(),
        model=model_status.status_of(form.model, settings),
        suggestions=model_status.suggest_models(settings),
        servers_model=settings.model,
        env_prefix=ENV_PREFIX,
        theirs=_readable(form.theirs),
    )


def _readable(changes: list[Change]) -> list[tuple[Change, list[tuple[str, str]]]]:
    """Each change with its words compared, where it is a text."""
    return [(one, text_diff(one.before, one.after) if one.shape == "text" else []) for one in changes]


@bp.get("/<uuid:agent_id>/versions")
@access("admin")
def versions(agent_id: UUID, refusal: str = "", status: int = 200) -> Any:
    """Every version, and what differs between two: the newest and the one before it, unless chosen."""
    agent = agent_versions.get_agent(agent_id, actor=g.actor)
    newer = parse_count(request.values.get("to")) or agent.current_version
    older = parse_count(request.values.get("from")) or max(newer - 1, 1)
    before = parse_count(request.args.get("before"))
    rows = agent_versions.list_versions(agent_id, actor=g.actor, before=before, limit=VERSIONS_SHOWN + 1)
    contents = agent_versions.read_contents(agent_id, {older, newer}, actor=g.actor)
    if not {older, newer} <= contents.keys():
        raise NotFound(f"{agent.slug} has no such version.")
    return render(
        "agents/versions.html",
        status=status,
        agent=agent,
        rows=rows[:VERSIONS_SHOWN],
        more=rows[VERSIONS_SHOWN - 1].version if len(rows) > VERSIONS_SHOWN else None,
        older=older,
        newer=newer,
        changes=_readable(diff_versions(contents[older], contents[newer])),
        refusal=refusal,
    )


@bp.post("/<uuid:agent_id>/versions")
@access("admin")
def restore(agent_id: UUID) -> Any:
    """Make an earlier version current again, as a new one."""
    number = parse_count(request.form.get("restore")) or 0
    version = parse_count(request.form.get("version")) or 0
    try:
        with transaction():
            saved = agent_edit.restore_version(agent_id, number, version=version, actor=g.actor, allow=_allowed_hosts())
    except (Invalid, Refused) as refusal:
        return versions(agent_id, refusal.detail, 409 if isinstance(refusal, Refused) else 422)
    return leave(url_for(".detail", agent_id=agent_id), f"Version {saved.version} says what version {number} said.")
