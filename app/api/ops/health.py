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


@route(
    bp,
    "GET",
    "/healthz",
    access=("public", None),
    answer=Health,
    transactional=False,
    summary="Whether the process lives",
    about="Answers without asking the database.",
)
def healthz() -> Health:
    return Health(status="ok")


@route(
    bp,
    "GET",
    "/readyz",
    access=("public", None),
    answer=Health,
    transactional=False,
    summary="Whether requests can be served",
    also={503: "Not ready"},
    about="The database answers and has this version's schema, and where this process runs agents, their leases are"
    " kept and scheduled work is looked at. Answers within two seconds, whatever the database does.",
)
def readyz() -> Health | Response:
    jobs = current_app.extensions.get("upshot.jobs")
    trouble = database_watch(current_app).trouble() or (jobs.trouble() if jobs else None)
    if trouble is not None:
        return problems.answer(NotReady(trouble))
    return Health(status="ready")
