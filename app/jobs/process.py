"""What a process does besides answering requests: run agents."""

from __future__ import annotations

from flask import Flask

from app.jobs.executor import Executor
from app.jobs.usage import Usage

USAGE_SECONDS = 5


class Jobs:
    """The executor and the clock of one process."""

    def __init__(self, app: Flask) -> None:
        from apscheduler.executors.pool import ThreadPoolExecutor
        from apscheduler.schedulers.background import BackgroundScheduler

        self.app = app
        self.usage = Usage()
        self.executor = Executor(app, self.usage)
        self.clock = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(2)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone="UTC",
        )
        self.clock.add_job(self._write_usage, "interval", seconds=USAGE_SECONDS)

    def start(self) -> Jobs:
        self.executor.start()
        self.clock.start()
        return self

    def stop(self) -> None:
        """Stop for good. Sessions that run here are given back."""
        self.clock.shutdown(wait=False)
        self.executor.stop()

    def _write_usage(self) -> None:
        with self.app.app_context():
            self.usage.write()


def start_jobs(app: Flask) -> Jobs:
    """Run agents and scheduled work in this process until `stop`. Any number of processes may, on one database."""
    jobs = Jobs(app).start()
    app.extensions["upshot.jobs"] = jobs
    return jobs
