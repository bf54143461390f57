"""The background work of a process: run agents, start scheduled tasks, count knowledge usage."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from flask import Flask
from sqlalchemy.exc import SQLAlchemyError

from app.db import acting_as, transaction
from app.jobs.executor import Executor
from app.jobs.machine_feedback import MachineFeedback
from app.jobs.usage import UsageWriter, count_receptions
from app.jobs.webhooks import deliver_due
from app.services.tasks import due as task_due
from app.services.workspaces import identity, throttle

log = logging.getLogger("upshot")
USAGE_SECONDS = 5
TICK_SECONDS = 10
RECEPTION_SECONDS = 15
CLOCK_WATCH_SECONDS = 2.0
WEBHOOK_SECONDS = 3
CHECK_SECONDS = 3
FORGET_SECONDS = 3600


class Jobs:
    """The executor and the scheduler of one process."""

    def __init__(self, app: Flask) -> None:
        from apscheduler.executors.pool import ThreadPoolExecutor
        from apscheduler.schedulers.background import BackgroundScheduler

        self.app = app
        self.ticked_at = time.monotonic()
        self._stopped = threading.Event()
        self.usage = UsageWriter()
        self.executor = Executor(app, self.usage)
        self.machine_feedback = MachineFeedback(app.config["SETTINGS"])
        self.clock = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(3)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone="UTC",
        )
        self._clock_offset = time.time() - time.monotonic()
        for seconds, work in (
            (USAGE_SECONDS, self.usage.write),
            (RECEPTION_SECONDS, self._count_receptions),
            (TICK_SECONDS, self._start_due),
            (WEBHOOK_SECONDS, deliver_due),
            (CHECK_SECONDS, self.machine_feedback.check_messages),
            (FORGET_SECONDS, _forget_attempts),
        ):
            self.clock.add_job(self._run, "interval", args=[work], seconds=seconds)

    def start(self) -> Jobs:
        self.ticked_at = time.monotonic()
        self.executor.start()
        self.clock.start()
        threading.Thread(target=self._follow_clock, name="clock-watch", daemon=True).start()
        return self

    def _follow_clock(self) -> None:
        """Wake all jobs when the clock is set back: APScheduler would sleep until the old time comes again."""
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
        """Stop for good and release the sessions that run here."""
        self._stopped.set()
        self.clock.shutdown(wait=False)
        self.executor.stop()

    def trouble(self) -> str | None:
        """What is stuck in this process, in one sentence, or None."""
        if self.executor.is_late:
            return "The leases of sessions are not kept."
        if time.monotonic() - self.ticked_at > 2 * TICK_SECONDS:
            return "Nothing looks at the clock for scheduled work."
        return None

    def _run(self, work: Callable[[], object]) -> None:
        """Run one job in an app context. A database that does not answer is logged; the job runs again later."""
        try:
            with self.app.app_context():
                work()
        except SQLAlchemyError as trouble:
            log.warning("%s failed and is tried again: %s", work.__name__.strip("_"), trouble)

    def _start_due(self) -> None:
        start_due_tasks(self.executor.owner)
        self.ticked_at = time.monotonic()

    def _count_receptions(self) -> None:
        # A session may refer to a prompt that was served a moment ago, so usage is written first.
        self.usage.write()
        count_receptions(self.usage.meter)
        self.usage.meter.measure()


def start_jobs(app: Flask) -> Jobs:
    """Run agents and scheduled work in this process until `stop`. Any number of processes may, on one database."""
    jobs = Jobs(app).start()
    app.extensions["upshot.jobs"] = jobs
    return jobs


def start_due_tasks(owner: str) -> int:
    """Start what is due in any workspace and return how many tasks. A task that fails does not stop the others."""
    with transaction():
        found = task_due.due_tasks()
    started = 0
    for task_id, tenant_id in found:
        product = identity.product_in(tenant_id)
        try:
            with acting_as(product), transaction():
                started += task_due.run_due(task_id, owner=owner, actor=product) is not None
        except SQLAlchemyError as trouble:
            log.warning("task %s was not begun: %s", task_id, trouble)
    return started


def _forget_attempts() -> None:
    with acting_as(identity.product_in(identity.NO_USER)), transaction():
        throttle.purge_attempts()
