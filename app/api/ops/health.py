"""Is the process alive, and can it work? Two questions, for two kinds of watchers."""

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
    """Whether the process lives. Answers without asking the database."""
    return Health(status="ok")


@route(bp, "GET", "/readyz", access=("public", None), transactional=False, answer=Health, also={503: "Not ready"})
def readyz() -> Health | Response:
    """Whether requests can be served. The database answers and has this version's schema, and where this process runs
    agents, their leases are kept and scheduled work is looked at. Answers within two seconds, whatever the database
    does."""
    jobs = current_app.extensions.get("upshot.jobs")
    trouble = database_watch(current_app).trouble() or (jobs.trouble() if jobs else None)
    return problems.answer(NotReady(trouble)) if trouble is not None else Health(status="ready")
