"""`upshot serve`: open the database, start the processes that answer requests, and end with all of them."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

from flask import Flask
from sqlalchemy.exc import SQLAlchemyError

from app import create_app
from app.agents.models import check_default_model
from app.api.ops.metrics import note_connections
from app.config import Settings
from app.db import acting_as, db, transaction
from app.db.boot import open_database
from app.errors import Problem, Unusable
from app.jobs.usage import UsageWriter
from app.logs import write_logs
from app.security.last_used import write_uses
from app.server.address import publish_address
from app.server.processes import STOP_SIGNALS, JobsReport, Processes, end_with_first
from app.services.feedback import volume
from app.services.workspaces import identity, logins

if TYPE_CHECKING:
    from app.jobs.process import Jobs

log = logging.getLogger("upshot")
# A server that was killed may need a moment until its processes have let go of the port.
PORT_SECONDS = 3.0
REPORT_SECONDS = 1.0
FIRST_LINK_LIFETIME = timedelta(hours=24)
# In reports: how often memory is written down.
USAGE_EVERY, COUNTS_EVERY = 5, 60
# Options of glibc's `mallopt`, from its malloc.h.
M_ARENA_MAX, M_MMAP_THRESHOLD = -8, -3


def run(*, demo: bool, processes: int | None = None, as_json: bool = False) -> None:
    """Open everything, print where it is, and serve until stopped."""
    write_logs()
    # atexit does not run when SIGTERM ends a process, and the embedded server must stop with us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = Settings.from_env()
    if processes is not None:
        settings = replace(settings, processes_wanted=processes)
    check_default_model(settings)
    with listen(settings):
        opened = open_database(settings)
    try:
        app = create_app(settings, opened, demo=demo)
        link = prepare(app, settings, demo=demo)
        report = JobsReport()
        tune_malloc()
        tune_gc()

        def announce_and_watch() -> None:
            announce(settings, link, as_json=as_json)
            if opened.embedded:
                opened.embedded.watch(log.warning)

        with publish_address(settings):
            Processes(
                settings.processes,
                lambda index, when_up: work(app, settings, report, index, when_up),
                opened.embedded.watcher_at_work if opened.embedded else None,
            ).run(announce_and_watch)
    finally:
        if opened.embedded:
            opened.embedded.release()


def listen(settings: Settings) -> socket.socket:
    """Take the port first. Granian shares its port, so only this shows that another server has it."""
    until = time.monotonic() + PORT_SECONDS
    while True:
        try:
            return _bind(settings)
        except OSError as trouble:
            if trouble.errno == errno.EADDRINUSE and time.monotonic() < until:
                time.sleep(0.05)
                continue
            remedy = "stop what uses it or set UPSHOT_PORT to a free one."
            if isinstance(trouble, socket.gaierror) or trouble.errno == errno.EADDRNOTAVAIL:
                remedy = "set UPSHOT_HOST to an address of this machine, such as 127.0.0.1."
            raise Unusable(f"Cannot listen on {settings.host}:{settings.port} ({trouble.strerror}); {remedy}") from None


def _bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError:
        listener.close()
        raise
    return listener


def prepare(app: Flask, settings: Settings, *, demo: bool) -> str | None:
    """Fill the demo and make the first sign-in link. Processes must not share connections, so they are closed."""
    if demo:
        fill_demo(app)
    with app.app_context():
        link = first_link(settings)
        db.session.remove()
        db.engine.dispose()
    return link


def fill_demo(app: Flask) -> None:
    """Fill the demo in a process of its own: what it loads and leaves in memory would stay in every other process."""
    filling = multiprocessing.get_context("fork").Process(target=_seed_demo, args=(app,), daemon=True)
    filling.start()
    filling.join()
    if filling.exitcode:
        raise Unusable("The demo could not be filled; the lines above say why.")


def _seed_demo(app: Flask) -> None:
    from app.demo.seed import seed

    with app.app_context():
        seed()


def first_link(settings: Settings) -> str | None:
    """A one-time sign-in link for the demo's admin, when there is a demo."""
    try:
        with transaction():
            token = logins.make_link(logins.DEMO_ADMIN, lifetime=FIRST_LINK_LIFETIME)
    except Problem:
        return None
    return f"{settings.url}/sign-in/link/{token}"


def announce(settings: Settings, link: str | None, *, as_json: bool) -> None:
    """Print where the server is, and how to get in."""
    from app.cli.output import emit

    lines = [f"Upshot is up: {settings.url}"]
    lines += [f"Sign in once with: {link}"] if link else []
    emit({"url": settings.url, "sign_in_link": link}, "\n".join(lines), as_json)
    sys.stdout.flush()


def work(app: Flask, settings: Settings, report: JobsReport, index: int, when_up: Callable[[], None]) -> None:
    """Answer requests in a process of its own. One process runs agents too, unless `upshot worker` processes do."""
    app.extensions["upshot.requests"].use_region(index)
    jobs = None
    if settings.runs_agents and index == 0:
        from app.jobs.process import start_jobs

        jobs = start_jobs(app)
        report.write(None)
    elif settings.runs_agents:
        app.extensions["upshot.jobs"] = report
    threading.Thread(target=keep_house, args=(app, report, jobs), name="housekeeping", daemon=True).start()
    finished = serve(app, settings, when_up)
    if jobs is not None:
        jobs.stop()
    if not finished:
        # Threads that wait for a database which never answers would keep the process alive.
        log.warning("stopped with requests unanswered")
        os._exit(0)
    with app.app_context():
        write_memory(UsageWriter())


def serve(app: Flask, settings: Settings, when_up: Callable[[], None]) -> bool:
    """Answer requests until a signal stops us; false when some that were accepted could not be answered in time."""
    from app.server.http import HttpServer

    async def until_stopped() -> bool:
        server = HttpServer(app, settings)
        end_with_first()
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, server.stop)
        return await server.serve(when_up)

    return asyncio.run(until_stopped())


def keep_house(app: Flask, report: JobsReport, jobs: Jobs | None) -> None:
    """For as long as the process lives, write down what its requests left in memory, and say how its jobs are."""
    usage = UsageWriter()
    for number in count(1):
        time.sleep(REPORT_SECONDS)
        if jobs is not None:
            report.write(jobs.trouble())
        try:
            with app.app_context():
                note_connections(app)
                if number % COUNTS_EVERY == 0:
                    write_memory(usage)
                    count_once()
                elif number % USAGE_EVERY == 0:
                    usage.write()
        except Exception:  # A thread that ended would leave counts unwritten until the process ends.
            log.exception("housekeeping failed and is tried again")


def write_memory(usage: UsageWriter) -> None:
    """Write when credentials were last used and which knowledge was. What cannot be written waits for the next time."""
    usage.write()
    with suppress(SQLAlchemyError):
        write_uses()


def count_once() -> None:
    """Bring the daily counts of feedback up to date where something is new. What fails waits for the next time."""
    for tenant_id in volume.take_stale():
        product = identity.product_in(tenant_id)
        try:
            with acting_as(product), transaction():
                volume.refresh(actor=product)
        except SQLAlchemyError as trouble:
            volume.mark_stale(tenant_id)
            log.warning("feedback was not counted by day: %s", trouble)


def tune_malloc() -> None:
    """Keep memory in two heaps and give large blocks back. By default glibc makes a heap for each thread, and what one
    large request took in each of them stays there: 20 MiB more after sessions of 60 MB (`bench memory`)."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        for option, value in ((M_ARENA_MAX, 2), (M_MMAP_THRESHOLD, 128 * 1024)):
            libc.mallopt(option, value)


def tune_gc() -> None:
    """Leave out of collections what was loaded until now, and collect rarely: a request leaves little garbage that
    only a collection would find. Objects that are never looked at also stay shared between processes."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
