"""Agents: who answers, how much and how well; the form, every version and what differs between two; a trial run.

One that a typo made is merged, one that is done is archived.
"""

from typing import Any
from uuid import UUID

from flask import Response, current_app, flash, g, redirect, render_template, request, url_for

from app.db import transaction
from app.errors import Invalid, NotFound, Refused, Stale
from app.formats.agent_config import ENV_PREFIX, read_config
from app.formats.agent_diff import LIMITS, Change, diff_versions
from app.models import Agent
from app.security.access import access
from app.services.agents import edit as agent_edit
from app.services.agents import lists as agent_lists
from app.services.agents import merge as agent_merge
from app.services.agents import versions as agent_versions
from app.services.entities import store as entity_store
from app.services.review import drafts
from app.services.sessions import start as session_start
from app.services.sessions.start import Progress
from app.text.diff import text_diff
from app.tools.describe import describe_groups
from app.views.agents import bp
from app.views.agents.form import KINDS, AgentForm
from app.views.forms import form_text, parse_count
from app.views.htmx import Toast, leave, page, render, vary_by_htmx, wants_fragment
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
        became = agent_versions.get_agent(agent_id, actor=g.actor).merged_into
        if became is None:
            raise
        return leave(url_for(".detail", agent_id=became))
    config = read_config(agent_versions.read_contents(agent_id, [row.version], actor=g.actor).get(row.version, {}))
    others = [] if row.is_system else agent_versions.list_agents(actor=g.actor)
    return render(
        "agents/detail.html",
        status=status,
        row=row,
        version_config=config,
        model=agent_edit.status_of(config.model, _settings()),
        groups=[group for group in describe_groups() if group.name in config.tool_groups],
        kinds=KINDS,
        limits=LIMITS,
        versions=agent_versions.list_versions(agent_id, actor=g.actor, limit=VERSIONS),
        drafts=drafts.open_drafts_of(agent_id, actor=g.actor),
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
            (agent_versions.restore_agent if back else agent_versions.archive_agent)(agent_id, actor=g.actor)
    except Refused as refusal:
        flash(refusal.detail, "error")
        return redirect(url_for(".detail", agent_id=agent_id), 303)
    done = "Restored. Its knowledge stays inactive until you activate it." if back else "Archived."
    return leave(url_for(".detail", agent_id=agent_id), done)


@bp.get("/<uuid:agent_id>/merge")
@access("admin")
def confirm(agent_id: UUID, refusal: str = "", status: int = 200) -> Response:
    """What a merge would move, before it does."""
    source = agent_versions.get_agent(agent_id, actor=g.actor)
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
            source = agent_versions.get_agent(agent_id, actor=g.actor).slug
            target = agent_merge.find_target(request.form.get("into", ""), actor=g.actor)
            agent_merge.merge_agent(agent_id, target.id, actor=g.actor)
    except Invalid as wrong:
        return detail(agent_id, wrong.fields, 422)
    except Refused as refusal:
        return confirm(agent_id, refusal.detail, 409)
    return leave(url_for(".detail", agent_id=target.id), f"Merged {source} into {target.slug}.")


# Trying an agent: a message starts a real run, and the page follows it until it is done.


@bp.get("/<uuid:agent_id>/try")
@access("admin")
def try_form(agent_id: UUID) -> Any:
    """The form alone, with the version to run chosen."""
    agent = agent_versions.get_agent(agent_id, actor=g.actor)
    return _form(agent, {"version": request.args.get("version", "")})


def _form(agent: Agent, values: dict[str, str], errors: dict[str, str] | None = None, status: int = 200) -> Response:
    context = {"tried": agent, "records": _records(), "values": values, "errors": errors or {}}
    return render("agents/try.html", status=status, **context)


@bp.post("/<uuid:agent_id>/try")
@access("admin")
def start_try(agent_id: UUID) -> Any:
    """Start a run and go to where it can be followed."""
    agent = agent_versions.get_agent(agent_id, actor=g.actor)
    values = {"message": form_text("message"), "record": form_text("record"), "version": form_text("version")}
    if agent.is_system:
        return _form(agent, values, {"message": f"{agent.slug} is built in and runs as a scheduled task."}, 409)
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
        agent = agent_versions.get_agent(agent_id, actor=g.actor)
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
        raise NotFound("This agent has no session with that ID.")
    return found | {
        "agent_id": agent_id,
        "progress": progress,
        "seen": _mark(progress),
        "ended": progress.status in ENDED,
        "status_text": _progress_text(progress, found["turns"]),
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


# Agents written by people: the form, every version there was, and what differs between two of them

VERSIONS_SHOWN = 30


@bp.get("/new")
@access("admin")
def new() -> Response:
    """An empty form."""
    return _show_form(AgentForm.new(request.args.get("kind", "")), None)


@bp.post("/new")
@access("admin")
def create() -> Any:
    """Make the agent, or add or remove a row of the form."""
    form = AgentForm.from_form(request.form)
    if pressed := form.pressed(request.form.get("do", "")):
        return _show_form(pressed, None)
    form = form.without_blanks()
    try:
        with transaction():
            agent = agent_edit.create_agent(form.as_content(), actor=g.actor, note=form.note, allow=_allowed_hosts())
    except (Invalid, Refused) as refusal:
        return _show_form(form.refused(refusal), None, 422)
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
    return _show_form(AgentForm.from_version(agent_edit.content_of(agent, stored), version), agent)


@bp.post("/<uuid:agent_id>/edit")
@access("admin")
def edit(agent_id: UUID) -> Any:
    """Save a new version; after a concurrent save show both. Or add or remove a row."""
    agent = agent_versions.get_agent(agent_id, actor=g.actor)
    form = AgentForm.from_form(request.form)
    if pressed := form.pressed(request.form.get("do", "")):
        return _show_form(pressed, agent)
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
        return _show_form(form.refused(refusal), agent_versions.get_agent(agent_id, actor=g.actor), status)
    toast = Toast(f"Saved as version {saved.version}.") if saved else Toast("Nothing changed.", "info")
    return leave(url_for(".detail", agent_id=agent_id), toast)


def _stale_form(agent_id: UUID, form: AgentForm, stale: Stale) -> Response:
    """The form over the version saved meanwhile, with the changes that saving would make to it."""
    agent = agent_versions.get_agent(agent_id, actor=g.actor)
    mine, current = form.as_content(), dict(stale.current or {})
    if agent.is_system:
        mine = current | {name: mine[name] for name in agent_edit.SYSTEM_EDITABLE}
    return _show_form(form.overtaken(stale.detail, diff_versions(current, mine), agent.current_version), agent, 409)


def _allowed_hosts() -> str:
    return str(_settings().outbound_allow)


def _show_form(form: AgentForm, agent: Agent | None, status: int = 200) -> Response:
    settings = _settings()
    return page(
        "agents/form.html",
        "agents/_form.html",
        status=status,
        form=form,
        agent=agent,
        kinds=KINDS,
        limits=LIMITS,
        groups=describe_groups(),
        model=agent_edit.status_of(form.model, settings),
        suggestions=agent_edit.suggest_models(settings),
        servers_model=settings.model,
        env_prefix=ENV_PREFIX,
        theirs=_readable(form.theirs),
    )


def compare_versions(before: Any, after: Any) -> list[tuple[Change, list[tuple[str, str]]]]:
    """What differs between the contents of two versions, in words."""
    return _readable(diff_versions(before, after))


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
        raise NotFound(f"{agent.slug} has no version with that number.")
    return render(
        "agents/versions.html",
        status=status,
        agent=agent,
        rows=rows[:VERSIONS_SHOWN],
        more=rows[VERSIONS_SHOWN - 1].version if len(rows) > VERSIONS_SHOWN else None,
        older=older,
        newer=newer,
        changes=compare_versions(contents[older], contents[newer]),
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
    return leave(url_for(".detail", agent_id=agent_id), f"Restored version {number} as version {saved.version}.")
