"""Scheduled tasks for admins: set up, changed, turned on and off, run now, deleted."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from flask import Response, flash, g, make_response, redirect, render_template, request, url_for

from app.db import transaction
from app.errors import Invalid
from app.models import Task
from app.models.agents import REPLAYABLE_KINDS
from app.security.access import access
from app.services.agents import versions
from app.services.evals import golden as eval_golden
from app.services.tasks import schedules as task_schedules
from app.services.tasks.schedules import Plan
from app.views.htmx import leave, vary_by_htmx
from app.views.tasks import bp

# Common schedules, for people who do not know the five cron fields.
USUAL = ("0 * * * *", "0 */6 * * *", "0 7 * * *", "0 7 * * 1-5", "0 7 * * 1", "0 7 1 * *")


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
    return leave(url_for("tasks.index"), f"{task.name} is scheduled.")


@bp.get("/tasks/<uuid:task_id>")
@access("admin")
def show_schedule(task_id: UUID) -> Any:
    task, agent = task_schedules.get_task(task_id, actor=g.actor)
    replay = task.replay or {}
    form = {"name": task.name, "agent": agent or "", "message": task.message, "cron": task.cron}
    return _form(task, {**form, "set": replay.get("set", ""), "context": replay.get("context", "")})


@bp.post("/tasks/<uuid:task_id>")
@access("admin")
def save_schedule(task_id: UUID) -> Any:
    try:
        with transaction():
            task = task_schedules.change_task(task_id, _plan(), actor=g.actor)
    except Invalid as wrong:
        known, _ = task_schedules.get_task(task_id, actor=g.actor)
        return _form(known, request.form, wrong.fields, 422)
    return leave(url_for(".show_schedule", task_id=task_id), f"{task.name} is saved.")


@bp.post("/tasks/<uuid:task_id>/switch")
@access("admin")
def switch_schedule(task_id: UUID) -> Any:
    """On or off, as the button said."""
    wanted = request.form.get("enabled") == "1"
    with transaction():
        task = task_schedules.switch_task(task_id, wanted, actor=g.actor)
    return leave(url_for("tasks.index"), f"{task.name} is {'on' if wanted else 'off'}.")


@bp.post("/tasks/<uuid:task_id>/run")
@access("admin")
def run_schedule(task_id: UUID) -> Any:
    with transaction():
        tick = task_schedules.start_task(task_id, actor=g.actor)
    flash("It runs now.", "success")
    if tick.eval_run_id is not None:
        return redirect(url_for("evals.show_run", run_id=tick.eval_run_id), 303)
    if tick.session_id is None:
        return redirect(url_for("tasks.index"), 303)
    return redirect(url_for("sessions.own_detail", session_id=tick.session_id), 303)


@bp.post("/tasks/<uuid:task_id>/delete")
@access("admin")
def delete_schedule(task_id: UUID) -> Any:
    with transaction():
        name = task_schedules.delete_task(task_id, actor=g.actor)
    return leave(url_for("tasks.index"), f"{name} is deleted. The sessions of its runs stay.")


@bp.get("/tasks/preview")
@access("admin")
def preview_schedule() -> Response:
    """When a schedule would run next, while it is being written."""
    cron = request.args.get("cron", "")
    return vary_by_htmx(make_response(render_template("tasks/_next.html", cron=cron, **_next(cron))))


def _plan() -> Plan:
    given = {name: request.form.get(name, "") for name in ("name", "agent", "message", "cron", "set", "context")}
    return Plan(**given)


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
    html = render_template(
        "tasks/detail.html",
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
    return make_response(html, status)
