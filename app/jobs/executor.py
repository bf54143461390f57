"""The session executor: claims pending sessions, runs them concurrently, and renews their leases.

One event loop in a thread runs every agent of the process. Any number of processes can share a database.
"""

import asyncio
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from itertools import groupby
from typing import Any, TypeVar
from uuid import UUID

from flask import Flask
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from app.agents import models
from app.agents.runtime import Run
from app.agents.turn import Threads
from app.config import Settings
from app.db import acting_as, transaction
from app.jobs.judging import Judging
from app.jobs.usage import UsageWriter
from app.services.knowledge import usage as knowledge_usage
from app.services.sessions import leases
from app.services.sessions.leases import Lease
from app.services.workspaces import identity

log = logging.getLogger("upshot")
Result = TypeVar("Result")
# How soon work is picked up, and how soon a request to stop is noticed.
POLL_SECONDS = 0.3
STOP_CHECK_SECONDS = 1.0
MAX_BEAT_SECONDS = 15.0
# How long runs may take to finish when the process stops. The others are released.
GRACE_SECONDS = 2.0


def warm_up() -> None:
    """Load the model libraries, so that the first session does not wait for them."""
    import pydantic_ai.direct
    import pydantic_ai.models.openai  # noqa: F401

    models.preload()


class Executor:
    """Runs sessions until it is stopped."""

    def __init__(self, app: Flask, usage: UsageWriter | None = None, slots: int | None = None) -> None:
        self.app = app
        self.settings: Settings = app.config["SETTINGS"]
        self.usage = usage or UsageWriter()
        self.slots = slots or self.settings.slots
        self.lease = timedelta(seconds=self.settings.lease_seconds)
        self.beat: float = min(MAX_BEAT_SECONDS, self.settings.lease_seconds / 4)
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self.beaten_at: float = time.monotonic()
        self.active: dict[UUID, Run] = {}
        self.threads = Threads(app, self.slots)
        self.judging = Judging(self.owner, self.threads, lambda: self.settings, self.slots)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="executor", daemon=True)
        self._thread.start()
        self._wake = asyncio.Event()
        self._service: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Claim and run sessions from now on."""
        self._call(self._start())

    def drain(self) -> int:
        """Run every pending session to its end. Returns how many there were."""
        return self._call(self._drain())

    def stop(self) -> None:
        """Stop claiming, let runs finish for a moment, and release the others."""
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self.threads.close()

    @property
    def is_late(self) -> bool:
        """Whether leases have not been renewed for two beats."""
        return time.monotonic() - self.beaten_at > 2 * self.beat

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self) -> None:
        self.beaten_at = time.monotonic()
        self._service = [asyncio.create_task(work) for work in self._services()]

    def _services(self) -> tuple[Coroutine[Any, Any, None], ...]:
        return self._claim_forever(), self.judging.claim_forever(), self._watch_forever()

    async def _drain(self) -> int:
        watch = asyncio.create_task(self._watch_forever())
        done = 0
        try:
            while ran := await self._drain_sessions() + await self.judging.drain():
                done += ran
        finally:
            watch.cancel()
        await self._do(self.usage.write)
        return done

    async def _drain_sessions(self) -> int:
        done = 0
        while taken := await self._claim(self.slots):
            await asyncio.wait([self._start_run(lease) for lease in taken])
            done += len(taken)
        return done

    async def _stop(self) -> None:
        for task in self._service:
            task.cancel()
        await asyncio.gather(*self._service, return_exceptions=True)
        if self.active:
            await asyncio.wait([run.task for run in self.active.values()], timeout=GRACE_SECONDS)
        left = list(self.active.values())
        for run in left:
            run.task.cancel()
        await asyncio.gather(*[run.task for run in left], return_exceptions=True)
        try:
            await self.judging.stop()
            await self._do(lambda: self._by_workspace([run.lease for run in left], leases.release))
            await self._do(self.usage.write)
        except SQLAlchemyError as trouble:
            log.warning("sessions were not given back, so others wait for their leases to end: %s", trouble)

    async def _claim_forever(self) -> None:
        while True:
            self._wake.clear()
            free = self.slots - len(self.active)
            taken: list[Lease] = []
            try:
                taken = await self._claim(free) if free else []
            except SQLAlchemyError as trouble:
                log.warning("no session could be claimed: %s", trouble)
                await asyncio.sleep(STOP_CHECK_SECONDS)
            for lease in taken:
                self._start_run(lease)
            if free and len(taken) == free:
                continue
            try:
                # With all slots in use, nothing changes until a run ends.
                await asyncio.wait_for(self._wake.wait(), POLL_SECONDS if free else None)
            except TimeoutError:
                continue

    async def _claim(self, most: int) -> list[Lease]:
        def work() -> list[Lease]:
            with transaction():
                return leases.claim(self.owner, most, self.lease)

        return await self._do(work)

    def _start_run(self, lease: Lease) -> asyncio.Task[None]:
        run = Run(lease, self.threads, self.settings, knowledge_usage.note_injected)
        run.task = asyncio.create_task(self._run_claimed(run))
        self.active[lease.session_id] = run
        return run.task

    async def _run_claimed(self, run: Run) -> None:
        """Run a claimed session and release it where the database fails."""
        try:
            await self._run_to_end(run)
        except DBAPIError as trouble:
            # The next process to claim the session continues from its events.
            log.warning("session %s waits for its next attempt: %s", run.lease.session_id, trouble)
            await self._give_back(run.lease)
        finally:
            self.active.pop(run.lease.session_id, None)
            self._wake.set()
            if run.replay is not None:
                # It may wait for its judge now.
                self.judging.wake.set()

    async def _give_back(self, lease: Lease) -> None:
        try:
            await self._do(lambda: self._by_workspace([lease], lambda some: leases.give_back(some[0])))
        except SQLAlchemyError:
            # The database is down. The lease expires, and then the session counts as lost with its process.
            log.warning("session %s waits for its lease to end", lease.session_id)

    async def _run_to_end(self, run: Run) -> None:
        try:
            await run.run()
        except asyncio.CancelledError:
            if not run.stop_requested:
                raise
            await run.cancel()
        except DBAPIError:
            raise
        except Exception:
            log.exception("session %s broke", run.lease.session_id)
            await run.fail_internally()

    async def _watch_forever(self) -> None:
        """Renew leases, and end runs that lost theirs or should stop."""
        due = time.monotonic() + self.beat
        while True:
            await asyncio.sleep(min(STOP_CHECK_SECONDS, self.beat))
            held = [run.lease for run in self.active.values()]
            try:
                if time.monotonic() >= due:
                    await self._renew(held)
                    await self.judging.renew()
                    self.beaten_at = time.monotonic()
                    due = self.beaten_at + self.beat
                elif held:
                    await self._check_stops(held)
            except SQLAlchemyError as trouble:
                log.warning("leases were not kept: %s", trouble)

    async def _check_stops(self, held: list[Lease]) -> None:
        found = await self._do(lambda: self._by_workspace(held, leases.to_stop))
        self._end(stop=set().union(*found))

    async def _renew(self, held: list[Lease]) -> None:
        found = await self._do(lambda: self._by_workspace(held, lambda some: leases.renew(some, self.lease)))
        kept: set[UUID] = set().union(*(kept for kept, _ in found))
        self._end(stop=set().union(*(stop for _, stop in found)), lost={lease.session_id for lease in held} - kept)

    def _end(self, *, stop: set[UUID], lost: set[UUID] | None = None) -> None:
        for session_id in stop | (lost or set()):
            run = self.active.get(session_id)
            if run is not None and not run.stop_requested:
                run.stop_requested = session_id in stop
                run.task.cancel()

    def _by_workspace(self, held: list[Lease], work: Callable[[list[Lease]], Result]) -> list[Result]:
        """Apply `work` to the leases, in one transaction per workspace."""
        found = []
        for tenant_id, some in groupby(sorted(held, key=lambda lease: lease.tenant_id), lambda one: one.tenant_id):
            with acting_as(identity.product_in(tenant_id)), transaction():
                found.append(work(list(some)))
        return found

    async def _do(self, work: Callable[[], Result]) -> Result:
        return await self.threads.call(work, "lease")
