"""Liveness and readiness checks."""

from typing import Literal

from flask import Response, current_app

from app.api.kit import problems
from app.api.kit.fields import Answer
from app.api.kit.route import route
from app.api.ops import bp
from app.db.watch import database_watch
from app.errors import Problem


class Health(Answer):
    status: Literal["ok", "ready"]


class NotReady(Problem):
    status = 503
    title = "Not ready"


@route(bp, "GET", "/healthz", access=("public", None), transactional=False)
def healthz() -> Health:
    """Check that the process is alive. Doesn't use the database."""
    return Health(status="ok")


@route(bp, "GET", "/readyz", access=("public", None), transactional=False, answer=Health, also={503: "Not ready"})
def readyz() -> Health | Response:
    """Check that requests can be served. The database answers with the right schema. Where the process runs agents,
    leases and the schedule are working too. Answers within two seconds."""
    jobs = current_app.extensions.get("upshot.jobs")
    trouble = database_watch(current_app).trouble() or (jobs.trouble() if jobs else None)
    return problems.answer(NotReady(trouble)) if trouble is not None else Health(status="ready")
