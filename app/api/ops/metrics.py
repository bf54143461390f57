"""Figures for a Prometheus server, as text.

Those of the whole server are for the machine itself and for the operator's token. An admin key gets those of its
workspace.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from urllib.parse import urlsplit

from flask import Flask, Response, current_app, g, request, request_started
from sqlalchemy import TextClause, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool

from app.api.kit import problems
from app.api.kit.route import route
from app.api.ops import bp
from app.config import LOOPBACK
from app.db import act_as, db
from app.errors import Forbidden, Problem, SignInNeeded

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
PASSED_ON = ("X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Forwarded", "Via")
OF_SERVER = text("select * from door_counts()")
OF_WORKSPACE = text(
    "select (select count(*) from sessions where tenant_id = app_tenant() and status = 'pending') as sessions_pending,"
    " (select count(*) from sessions where tenant_id = app_tenant() and status = 'running') as sessions_running,"
    " (select count(*) from feedback where tenant_id = app_tenant() and status = 'pending') as feedback_pending,"
    " (select count(*) from tasks where tenant_id = app_tenant() and enabled and next_run_at <= now()) as tasks_due"
)


class Requests:
    """How many requests were answered, by method, route and status, and how long they took. In this process only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: dict[tuple[str, str, int], int] = defaultdict(int)
        self.slots = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def note(self, method: str, rule: str, status: int, seconds: float) -> None:
        with self._lock:
            self.counts[method, rule, status] += 1
            self.slots[bisect_left(BOUNDS, seconds)] += 1
            self.seconds += seconds

    def lines(self) -> Iterator[str]:
        with self._lock:
            counts, slots, seconds = sorted(self.counts.items()), list(self.slots), self.seconds
        yield "# HELP upshot_requests_total Requests answered."
        yield "# TYPE upshot_requests_total counter"
        for (method, rule, status), count in counts:
            yield f'upshot_requests_total{{method="{method}",route="{rule}",status="{status}"}} {count}'
        yield "# HELP upshot_request_seconds How long requests took."
        yield "# TYPE upshot_request_seconds histogram"
        total = 0
        for bound, slot in zip((*map(str, BOUNDS), "+Inf"), slots, strict=True):
            total += slot
            yield f'upshot_request_seconds_bucket{{le="{bound}"}} {total}'
        yield f"upshot_request_seconds_sum {seconds:.6f}"
        yield f"upshot_request_seconds_count {total}"


@route(
    bp,
    "GET",
    "/metrics",
    access=("public", "admin"),
    transactional=False,
    media_type="text/plain",
    summary="Figures for Prometheus",
    also={401: "Not from this machine, no token and no key", 403: "Not an admin key"},
    about="Those of the whole server for requests from the machine itself and for the operator's token"
    " (`UPSHOT_METRICS_TOKEN`). With an admin key, those of its workspace.",
)
def metrics() -> Response:
    refusal = refused()
    if refusal is not None:
        return problems.answer(refusal)
    if g.actor is not None:
        lines = [*counted(OF_WORKSPACE)]
    else:
        act_as(None)
        lines = [*requests().lines(), *pool_lines(), *counted(OF_SERVER)]
    return Response("\n".join(lines) + "\n", content_type=MEDIA_TYPE)


def refused() -> Problem | None:
    """Why this request gets no figures, or None."""
    if g.actor is not None:
        return None if g.actor.is_admin else Forbidden("This needs a key of an admin with the scope `admin`.")
    if g.operator or from_this_machine():
        return None
    return SignInNeeded("Send an admin key or the operator's token, or ask from the server itself.")


def from_this_machine() -> bool:
    """Whether the request comes from this machine itself. A reverse proxy on it connects from loopback too, so what was
    passed on does not count, whether the proxy is a trusted one or not."""
    direct = not any(name in request.headers for name in PASSED_ON)
    asked = urlsplit(f"//{request.host}").hostname
    return direct and request.remote_addr in LOOPBACK and asked in LOOPBACK


def pool_lines() -> Iterator[str]:
    pool = db.engine.pool
    if isinstance(pool, QueuePool):
        yield "# HELP upshot_database_connections Connections of this process."
        yield "# TYPE upshot_database_connections gauge"
        yield f'upshot_database_connections{{state="used"}} {pool.checkedout()}'
        yield f'upshot_database_connections{{state="idle"}} {pool.checkedin()}'


def counted(question: TextClause) -> Iterator[str]:
    """What waits. Without a database the other figures are still worth having."""
    try:
        found, up = dict(db.session.execute(question).mappings().one()), 1
    except SQLAlchemyError:
        found, up = {}, 0
    finally:
        db.session.rollback()
    yield "# HELP upshot_database_up Whether the database answered just now."
    yield "# TYPE upshot_database_up gauge"
    yield f"upshot_database_up {up}"
    for name, value in sorted(found.items()):
        yield f"# TYPE upshot_{name} gauge"
        yield f"upshot_{name} {value}"


def requests() -> Requests:
    found: Requests = current_app.extensions["upshot.requests"]
    return found


def begin(_app: Flask) -> None:
    g.began = time.perf_counter()


def end(response: Response) -> Response:
    """Addresses that lead nowhere and methods that do not exist share one name each: visitors choose them."""
    asked = request.url_rule
    rule = asked.rule if asked is not None else "none"
    method = request.method
    if method not in METHODS:
        method = "other"
    requests().note(method, rule, response.status_code, time.perf_counter() - g.began)
    return response


def register(app: Flask) -> None:
    app.extensions["upshot.requests"] = Requests()
    app.config["TAKES_OPERATOR"].add(f"{bp.name}.{metrics.__name__}")
    request_started.connect(begin, app)
    app.after_request(end)
