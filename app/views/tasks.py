"""Tasks: what is scheduled, what runs now, and how the last work ended."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from flask import Blueprint, Flask, flash, g, redirect, render_template, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.security.access import access
from app.services.sessions import start as session_start
from app.services.tasks import lists as task_lists

DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

bp = Blueprint("tasks", __name__)


@bp.get("/tasks")
@access("member")
def index() -> Any:
    """Scheduled work, open work and the last outcomes."""
    return render_template(
        "tasks/index.html",
        tasks=task_lists.list_tasks(actor=g.actor),
        open_work=task_lists.list_open(actor=g.actor),
        done=task_lists.list_done(actor=g.actor),
    )


@bp.post("/tasks/work/<uuid:session_id>/stop")
@access("member")
def stop(session_id: UUID) -> Response:
    """Stop a run: at once while it waits, within seconds while it runs."""
    with transaction():
        session = session_start.stop_run(session_id, actor=g.actor)
    flash("Stopped." if session.status == "cancelled" else "It stops within a few seconds.", "success")
    return redirect(url_for(".index"), 303)


@bp.get("/sessions")
@access("member")
def sessions() -> Response:
    """Where work used to be listed."""
    return redirect(url_for(".index"), 303)


def schedule(cron: str) -> str:
    """A schedule in words where it is a plain one; empty where its five fields say it better."""
    fields = cron.split()
    if len(fields) != 5 or not all(re.fullmatch(r"[0-9*/,-]+", part, re.ASCII) for part in fields):
        return ""
    minute, hour, day, month, weekday = fields
    if month != "*":
        return ""
    if (hour, day, weekday) == ("*", "*", "*"):
        return _within_the_hour(minute)
    step = re.fullmatch(r"\*/(2|3|4|6|8|12)", hour, re.ASCII)
    if step and (minute, day, weekday) == ("0", "*", "*"):
        return f"every {step[1]} hours"
    if not minute.isdigit() or not hour.isdigit() or int(minute) > 59 or int(hour) > 23:
        return ""
    return _on_days(day, weekday, f"at {int(hour):02}:{int(minute):02}")


def _within_the_hour(minute: str) -> str:
    if minute == "*":
        return "every minute"
    if minute == "0":
        return "every hour"
    step = re.fullmatch(r"\*/([1-9][0-9]?)", minute, re.ASCII)
    if step:
        return f"every {step[1]} minutes"
    return f"every hour at {int(minute)} past" if minute.isdigit() and int(minute) < 60 else ""


def _on_days(day: str, weekday: str, at: str) -> str:
    if day == "*" and weekday == "*":
        return f"every day {at}"
    if day == "*" and weekday == "1-5":
        return f"on working days {at}"
    if day == "*" and weekday.isdigit() and int(weekday) <= 7:
        return f"every {DAYS[int(weekday) % 7]} {at}"
    if weekday == "*" and day.isdigit() and 1 <= int(day) <= 31:
        return f"on day {int(day)} of every month {at}"
    return ""


def register(app: Flask) -> None:
    app.register_blueprint(bp)
    app.jinja_env.filters["schedule"] = schedule
