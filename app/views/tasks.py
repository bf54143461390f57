"""Tasks: what is scheduled, what runs now, how the last work ended; and for admins, the schedules themselves."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from flask import Blueprint, Response, g, redirect, render_template, request, url_for

from app.db import transaction
from app.errors import Invalid
from app.models import Task
from app.models.agents import REPLAYABLE_KINDS
from app.security.access import access
from app.services.agents import versions
from app.services.evals import golden as eval_golden
from app.services.evals.charts.dropped import list_dropped_sets
from app.services.sessions import start as session_start
from app.services.tasks import schedules as task_schedules
from app.services.tasks.schedules import Plan
from app.services.workspaces.store import REVIEW_TASK
from app.views.htmx import leave, render, vary_by_htmx

bp = Blueprint("tasks", __name__)
# Common schedules, for people who do not know the five cron fields.
USUAL = ("0 * * * *", "0 */6 * * *", "0 7 * * *", "0 7 * * 1-5", "0 7 * * 1", "0 7 1 * *")


@bp.get("/tasks")
@access("member")
def index() -> Any:
    """Scheduled work, open work and the last outcomes; for admins also the sets that dropped."""
    return render_template(
        "tasks/index.html",
        tasks=task_schedules.list_tasks(actor=g.actor),
        open_work=task_schedules.list_open(actor=g.actor),
        done=task_schedules.list_done(actor=g.actor),
        dropped=list_dropped_sets(actor=g.actor) if g.actor.is_admin else [],
    )


@bp.post("/tasks/work/<uuid:session_id>/stop")
@access("member")
def stop(session_id: UUID) -> Response:
    """Stop a run: at once while it waits, within seconds while it runs."""
    with transaction():
        session = session_start.stop_run(session_id, actor=g.actor)
    return leave(url_for(".index"), "Stopped." if session.status == "cancelled" else "Stopping within a few seconds.")


@bp.get("/sessions")
@access("member")
def sessions() -> Any:
    """Where work used to be listed."""
    return redirect(url_for(".index"), 303)


@bp.get("/tasks/new")
@access("admin")
def new_schedule() -> Any:
    set_name = request.args.get("set", "")
    name = f"Replay {set_name}" if set_name else ""
    return _form(None, {"cron": USUAL[2], "agent": request.args.get("agent", ""), "set": set_name, "name": name})


@bp.post("/tasks")
@access("admin")
def create_schedule() -> Any:
    try:
        with transaction():
            task = task_schedules.create_task(_plan(), actor=g.actor)
    except Invalid as wrong:
        return _form(None, request.form, wrong.fields, 422)
    return leave(url_for(".index"), f"Scheduled {task.name}.")


@bp.get("/tasks/<uuid:task_id>")
@access("admin")
def show_schedule(task_id: UUID) -> Any:
    task, agent = task_schedules.get_task(task_id, actor=g.actor)
    if task.slug == REVIEW_TASK:
        return redirect(url_for("settings.show_review"), 303)
    form = {"name": task.name, "agent": agent or "", "message": task.message, "cron": task.cron}
    return _form(task, form | (task.replay or {}))


@bp.post("/tasks/<uuid:task_id>")
@access("admin")
def save_schedule(task_id: UUID) -> Any:
    try:
        with transaction():
            task = task_schedules.change_task(task_id, _plan(), actor=g.actor)
    except Invalid as wrong:
        known, _ = task_schedules.get_task(task_id, actor=g.actor)
        return _form(known, request.form, wrong.fields, 422)
    return leave(url_for(".show_schedule", task_id=task_id), f"Saved {task.name}.")


@bp.post("/tasks/<uuid:task_id>/switch")
@access("admin")
def switch_schedule(task_id: UUID) -> Any:
    """On or off, as the button said."""
    wanted = request.form.get("enabled") == "1"
    with transaction():
        task = task_schedules.switch_task(task_id, wanted, actor=g.actor)
    return leave(url_for(".index"), f"Turned {'on' if wanted else 'off'} {task.name}.")


@bp.post("/tasks/<uuid:task_id>/run")
@access("admin")
def run_schedule(task_id: UUID) -> Any:
    with transaction():
        tick = task_schedules.start_task(task_id, actor=g.actor)
    if tick.eval_run_id is not None:
        return leave(url_for("evals.show_run", run_id=tick.eval_run_id), "Started the run.")
    return leave(url_for("sessions.own_detail", session_id=tick.session_id), "Started the run.")


@bp.post("/tasks/<uuid:task_id>/delete")
@access("admin")
def delete_schedule(task_id: UUID) -> Any:
    with transaction():
        name = task_schedules.delete_task(task_id, actor=g.actor)
    return leave(url_for(".index"), f"Deleted {name}. Sessions from its runs stay.")


@bp.get("/tasks/preview")
@access("admin")
def preview_schedule() -> Response:
    """When a schedule would run next, while it is being written."""
    cron = request.args.get("cron", "")
    return vary_by_htmx(render("tasks/_next.html", cron=cron, **_next(cron)))


def _plan() -> Plan:
    return Plan(**{field.name: request.form.get(field.name, "") for field in fields(Plan)})


def _next(cron: str) -> dict[str, Any]:
    try:
        return {"times": task_schedules.next_runs(cron, datetime.now(UTC)), "wrong": ""}
    except Invalid as error:
        return {"times": [], "wrong": error.fields.get("cron", "")}


def _form(
    task: Task | None, form: Mapping[str, str], errors: dict[str, str] | None = None, status: int = 200
) -> Response:
    kinds = REPLAYABLE_KINDS if form.get("set") else ("builtin", "endpoint")
    known = [row for row in versions.list_agents(actor=g.actor) if row.kind in kinds and not row.is_system]
    cron = form.get("cron", "")
    return render(
        "tasks/detail.html",
        status=status,
        task=task,
        form=form,
        errors=errors or {},
        agents=[(row.slug, row.name) for row in known],
        sets=[(one.name, one.name) for one in eval_golden.list_sets(actor=g.actor)] if form.get("set") else [],
        usual=USUAL,
        cron=cron,
        runs=task_schedules.list_runs(task.id, actor=g.actor) if task else [],
        **_next(cron),
    )
