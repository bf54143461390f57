"""What a process does besides answering requests: run agents, look at the clock, write down what knowledge was used."""

from __future__ import annotations

import logging
import time

from flask import Flask
from sqlalchemy.exc import SQLAlchemyError

from app.jobs import ticks
from app.jobs.executor import Executor
from app.jobs.usage import Usage, count_receptions

log = logging.getLogger("upshot")
USAGE_SECONDS = 5
TICK_SECONDS = 10
RECEPTION_SECONDS = 15


class Jobs:
    """The executor and the clock of one process."""

    def __init__(self, app: Flask) -> None:
        from apscheduler.executors.pool import ThreadPoolExecutor
        from apscheduler.schedulers.background import BackgroundScheduler

        self.app = app
        self.ticked_at = time.monotonic()
        self.usage = Usage()
        self.executor = Executor(app, self.usage)
        self.clock = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(2)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone="UTC",
        )
        self.clock.add_job(self._write_usage, "interval", seconds=USAGE_SECONDS)
        self.clock.add_job(self._count_receptions, "interval", seconds=RECEPTION_SECONDS)
        self.clock.add_job(self._begin_due, "interval", seconds=TICK_SECONDS)

    def start(self) -> Jobs:
        self.ticked_at = time.monotonic()
        self.executor.start()
        self.clock.start()
        return self

    def stop(self) -> None:
        """Stop for good. Sessions that run here are given back."""
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
            try:
                count_receptions()
            except SQLAlchemyError as trouble:
                log.warning("nobody could be asked how knowledge was received: %s", trouble)

    def _write_usage(self) -> None:
        with self.app.app_context():
            self.usage.write()


def start_jobs(app: Flask) -> Jobs:
    """Run agents and scheduled work in this process until `stop`. Any number of processes may, on one database."""
    jobs = Jobs(app).start()
    app.extensions["upshot.jobs"] = jobs
    return jobs
