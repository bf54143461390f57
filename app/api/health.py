"""Is the process alive, and can it work? Two questions, for two kinds of watchers."""

from __future__ import annotations

import threading
import time
from typing import Any, Literal

import psycopg
from flask import Blueprint, Flask, Response, current_app
from sqlalchemy import NullPool, create_engine

from app.api import problems
from app.api.fields import Answer
from app.api.route import route
from app.db.boot import Opened
from app.errors import Problem

WAIT = 2.5
FRESH = 1.0

bp = Blueprint("health", __name__)


class Health(Answer):
    status: Literal["ok"]


class Readiness(Answer):
    status: Literal["ready"]


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
    answer=Readiness,
    transactional=False,
    summary="Whether requests can be served",
    also={503: "Not ready"},
    about="The database answers and has this version's schema, and where this process runs agents, their leases are"
    " kept and scheduled work is looked at. Answers within three seconds.",
)
def readyz() -> Readiness | Response:
    jobs = current_app.extensions.get("upshot.jobs")
    trouble = probe().trouble() or (jobs.trouble() if jobs else None)
    if trouble is not None:
        return problems.answer(NotReady(trouble))
    return Readiness(status="ready")


def register(app: Flask) -> None:
    app.register_blueprint(bp)
    app.extensions["upshot.probe"] = Probe(app.extensions["upshot.opened"])


def probe() -> Probe:
    found: Probe = current_app.extensions["upshot.probe"]
    return found


class Probe:
    """Asks the database how it is on a connection of its own, so that a pool in full use is no outage.

    A server that accepts and then says nothing would hold whoever asks it; so a thread asks, and we wait for it so long
    and no longer. Watchers that come together, or within a second, share one answer.
    """

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self._lock = threading.Lock()
        self._asking: _Asking | None = None

    def trouble(self) -> str | None:
        """What is wrong in one sentence, or None."""
        with self._lock:
            asking = self._asking
            if asking is None or asking.is_old:
                asking = self._asking = _Asking(self.opened)
                asking.start()
        asking.join(WAIT)
        return asking.found if asking.ended is not None else "The database does not answer in time."


class _Asking(threading.Thread):
    """One question to the database."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(name="readiness", daemon=True)
        self.opened = opened
        self.found: str | None = None
        self.ended: float | None = None

    @property
    def is_old(self) -> bool:
        return self.ended is not None and time.monotonic() - self.ended > FRESH

    def run(self) -> None:
        try:
            self.found = self._ask()
        except Exception:
            self.found = "The database does not answer."
        finally:
            self.ended = time.monotonic()

    def _ask(self) -> str | None:
        from app.db.migrate import is_current

        engine = create_engine("postgresql+psycopg://", creator=self._connect, poolclass=NullPool)
        with engine.connect() as connection:
            return None if is_current(connection) else "The database is not at this version's schema."

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.opened.app_url, connect_timeout=2, application_name="upshot readiness")
