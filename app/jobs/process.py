"""What a process does besides answering requests: run agents, look at the clock, write down what knowledge was used."""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime

from flask import Flask
from sqlalchemy.exc import SQLAlchemyError

from app.db import acting_as, transaction
from app.jobs import ticks
from app.jobs.executor import Executor
from app.jobs.usage import Usage, count_receptions
from app.services.workspaces import identity, throttle

log = logging.getLogger("upshot")
USAGE_SECONDS = 5
TICK_SECONDS = 10
RECEPTION_SECONDS = 15
CLOCK_WATCH_SECONDS = 2.0
FORGET_SECONDS = 3600


class Jobs:
    """The executor and the clock of one process."""

    def __init__(self, app: Flask) -> None:
        from apscheduler.executors.pool import ThreadPoolExecutor
        from apscheduler.schedulers.background import BackgroundScheduler

        self.app = app
        self.ticked_at = time.monotonic()
        self._stopped = threading.Event()
        self.usage = Usage()
        self.executor = Executor(app, self.usage)
        self.clock = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(2)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone="UTC",
        )
        self._clock_offset = time.time() - time.monotonic()
        self.clock.add_job(self._write_usage, "interval", seconds=USAGE_SECONDS)
        self.clock.add_job(self._count_receptions, "interval", seconds=RECEPTION_SECONDS)
        self.clock.add_job(self._begin_due, "interval", seconds=TICK_SECONDS)
        self.clock.add_job(self._forget_attempts, "interval", seconds=FORGET_SECONDS)

    def start(self) -> Jobs:
        self.ticked_at = time.monotonic()
        self.executor.start()
        self.clock.start()
        threading.Thread(target=self._follow_clock, name="clock-watch", daemon=True).start()
        return self

    def _follow_clock(self) -> None:
        """APScheduler waits for times of day. When the clock is set back it would sleep until they come again."""
        while not self._stopped.wait(CLOCK_WATCH_SECONDS):
            offset = time.time() - time.monotonic()
            if offset < self._clock_offset - CLOCK_WATCH_SECONDS:
                self.wake_all()
            self._clock_offset = offset

    def wake_all(self) -> None:
        """Run every job now, and from now on at its usual interval."""
        for job in self.clock.get_jobs():
            job.modify(next_run_time=datetime.now(UTC))

    def stop(self) -> None:
        """Stop for good. Sessions that run here are given back."""
        self._stopped.set()
        self.clock.shutdown(wait=False)
        self.executor.stop()

    def trouble(self) -> str | None:
        """What stands still in this process, in one sentence, or None."""
        if self.executor.is_late:
            return "The leases of sessions are not kept."
        if time.monotonic() - self.ticked_at > 2 * TICK_SECONDS:
            return "Nothing looks at the clock for scheduled work."
        return None

    def _begin_due(self) -> None:
        with self.app.app_context():
            try:
                ticks.begin_due(self.executor.owner)
            except SQLAlchemyError as trouble:
                log.warning("nothing could be asked about scheduled work: %s", trouble)
                return
        self.ticked_at = time.monotonic()

    def _count_receptions(self) -> None:
        with self.app.app_context():
            # A session may name a prompt that was asked for a moment ago, so that is written first.
            self.usage.write()
            try:
                count_receptions()
            except SQLAlchemyError as trouble:
                log.warning("nobody could be asked how knowledge was received: %s", trouble)

    def _forget_attempts(self) -> None:
        with self.app.app_context():
            try:
                with acting_as(identity.product_in(identity.NO_USER)), transaction():
                    throttle.purge_attempts()
            except SQLAlchemyError as trouble:
                log.warning("old sign-in attempts were not removed: %s", trouble)

    def _write_usage(self) -> None:
        with self.app.app_context():
            self.usage.write()


def start_jobs(app: Flask) -> Jobs:
    """Run agents and scheduled work in this process until `stop`. Any number of processes may, on one database."""
    jobs = Jobs(app).start()
    app.extensions["upshot.jobs"] = jobs
    return jobs
