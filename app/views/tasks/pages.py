"""Tasks: what is scheduled, what runs now, and how the last work ended."""

from typing import Any
from uuid import UUID

from flask import g, redirect, render_template, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.security.access import access
from app.services.sessions import start as session_start
from app.services.tasks import lists as task_lists
from app.views.htmx import leave
from app.views.tasks import bp


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
    return leave(url_for(".index"), "Stopped." if session.status == "cancelled" else "It stops within a few seconds.")


@bp.get("/sessions")
@access("member")
def sessions() -> Response:
    """Where work used to be listed."""
    return redirect(url_for(".index"), 303)
