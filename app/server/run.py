"""`upshot serve`: one process that answers requests, watches the database, counts and runs agents."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from flask import Flask
from sqlalchemy.exc import SQLAlchemyError

from app import create_app
from app.agents.models import refuse_unknown
from app.config import Settings
from app.db import acting_as, transaction
from app.db.boot import Opened, open_database
from app.errors import Unusable
from app.logs import write_logs
from app.server.address import told
from app.services.feedback import volume
from app.services.workspaces import identity

log = logging.getLogger("upshot")


def run(*, demo: bool, as_json: bool = False) -> None:
    """Open everything, say where it is, and serve until stopped."""
    write_logs()
    # atexit does not run when SIGTERM ends a process, and the embedded server must stop with us.
    signal.signal(signal.SIGTERM, _stop)
    settings = Settings.from_env()
    refuse_unknown(settings)
    with listen(settings):
        opened = open_database(settings)
    try:
        app = create_app(settings, opened, demo=demo)
        if opened.embedded:
            opened.embedded.watch(log.warning)
        if demo:
            _fill(app)
        count_days(app)
        with told(settings), jobs_of(app, settings):
            finished = serve(app, settings, lambda: announce(app, settings, as_json=as_json))
    finally:
        _close(opened)
    if not finished:
        # Threads that wait for a database which never answers would keep the process alive.
        log.warning("stopped with requests unanswered")
        os._exit(0)


def _stop(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def listen(settings: Settings) -> socket.socket:
    """Take the port before anything else is touched. Granian shares its port with others that do, so that only this
    shows that another server has it."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as trouble:
        listener.close()
        elsewhere = isinstance(trouble, socket.gaierror) or trouble.errno == errno.EADDRNOTAVAIL
        remedy = (
            "set UPSHOT_HOST to an address of this machine, such as 127.0.0.1."
            if elsewhere
            else "stop what uses it or set UPSHOT_PORT to a free one."
        )
        raise Unusable(f"Cannot listen on {settings.host}:{settings.port} ({trouble.strerror}); {remedy}") from None
    return listener


def _fill(app: Flask) -> None:
    from app.demo.seed import seed

    with app.app_context():
        seed()


@contextmanager
def jobs_of(app: Flask, settings: Settings) -> Iterator[None]:
    """Run agents and scheduled work beside the requests, unless `upshot worker` processes do."""
    if not settings.runs_agents:
        yield
        return
    from app.jobs.process import start_jobs

    jobs = start_jobs(app)
    try:
        yield
    finally:
        jobs.stop()


def count_days(app: Flask) -> None:
    """Once a minute bring the daily counts of feedback up to date, beside the requests and as long as we run."""
    threading.Thread(target=_count_for_ever, args=(app,), name="daily", daemon=True).start()


def _count_for_ever(app: Flask) -> None:
    pause = threading.Event()
    while not pause.wait(volume.EVERY_SECONDS):
        with app.app_context():
            count_once()


def count_once() -> None:
    """Count where something new was noticed. A workspace that could not be counted waits for the next time."""
    for tenant_id in volume.take_stale():
        product = identity.product_in(tenant_id)
        try:
            with acting_as(product), transaction():
                volume.refresh(actor=product)
        except SQLAlchemyError as trouble:
            volume.mark_stale(tenant_id)
            log.warning("feedback was not counted by day: %s", trouble)


def announce(app: Flask, settings: Settings, *, as_json: bool) -> None:
    """Say where it is, and how to get in."""
    from app.cli.links import first_link
    from app.cli.output import emit

    with app.app_context():
        link = first_link(settings)
    lines = [f"Upshot is up: {settings.url}"]
    lines += [f"Sign in once with: {link}"] if link else []
    emit({"url": settings.url, "sign_in_link": link}, "\n".join(lines), as_json)
    sys.stdout.flush()


def serve(app: Flask, settings: Settings, when_up: Callable[[], None]) -> bool:
    """Answer requests until a signal stops us; false when some that were accepted could not be answered in time."""
    from app.server.http import HttpServer

    async def until_stopped() -> bool:
        server = HttpServer(app, settings)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, server.stop)
        return await server.serve(when_up)

    spare_collections()
    return asyncio.run(until_stopped())


def spare_collections() -> None:
    """What was loaded until now stays, so collecting garbage need not look at it again and again; and a request leaves
    little that only a collection would find."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _close(opened: Opened) -> None:
    if opened.embedded:
        opened.embedded.release()
