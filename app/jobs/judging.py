"""Judges replays beside the executor: claims judgements in any workspace, asks the model, and renews their leases."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from itertools import groupby
from typing import TypeVar
from uuid import UUID

from sqlalchemy.exc import SQLAlchemyError

from app.agents.judge import Judge
from app.agents.turn import Threads
from app.config import Settings
from app.db import acting_as, transaction
from app.services.evals.judging import queue
from app.services.evals.judging.queue import JudgeLease
from app.services.evals.judging.settle import finish_judgement
from app.services.evals.judging.work import JudgeOutcome, prepare_judgement
from app.services.workspaces import identity

log = logging.getLogger("upshot")
Result = TypeVar("Result")
POLL_SECONDS = 1.0


class Judging:
    """The judgements of one process, on the executor's event loop. `settings` gives the settings of the moment."""

    def __init__(self, owner: str, threads: Threads, settings: Callable[[], Settings], slots: int) -> None:
        self.owner, self.threads, self.settings, self.slots = owner, threads, settings, slots
        self.lease = timedelta(seconds=settings().lease_seconds)
        self.active: dict[JudgeLease, asyncio.Task[None]] = {}
        self.wake = asyncio.Event()

    async def drain(self) -> int:
        """Judge everything that waits. Returns how much there was."""
        done = 0
        while taken := await self._claim(self.slots):
            await asyncio.wait([self._start(lease) for lease in taken])
            done += len(taken)
        return done

    async def claim_forever(self) -> None:
        while True:
            self.wake.clear()
            free = self.slots - len(self.active)
            try:
                for lease in await self._claim(free) if free else []:
                    self._start(lease)
            except SQLAlchemyError as trouble:
                log.warning("no judgement could be claimed: %s", trouble)
            try:
                await asyncio.wait_for(self.wake.wait(), POLL_SECONDS)
            except TimeoutError:
                continue

    async def stop(self) -> None:
        """Give back what is under way. What it asked the model is asked again by whoever claims it."""
        tasks, left = list(self.active.values()), list(self.active)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._by_workspace(left, queue.release_judgements)

    async def renew(self) -> None:
        """Renew the leases, and stop what is not ours any more: its run was cancelled or deleted."""
        held = list(self.active)
        found = await self._by_workspace(held, lambda some: queue.renew_judgements(some, self.lease))
        kept: set[UUID] = set().union(*found)
        for lease in held:
            if lease.judgement_id not in kept and lease in self.active:
                self.active[lease].cancel()

    async def _claim(self, most: int) -> list[JudgeLease]:
        def work() -> list[JudgeLease]:
            with transaction():
                workspaces = queue.waiting_workspaces()
            taken: list[JudgeLease] = []
            for tenant_id in workspaces:
                product = identity.product_in(tenant_id)
                with acting_as(product), transaction():
                    taken += queue.claim_judgements(self.owner, most - len(taken), self.lease, actor=product)
            return taken

        return await self.threads.call(work, "lease")

    def _start(self, lease: JudgeLease) -> asyncio.Task[None]:
        self.active[lease] = asyncio.create_task(self._judge(lease))
        return self.active[lease]

    async def _judge(self, lease: JudgeLease) -> None:
        """Judge once. What breaks is claimed again when the lease has run out."""
        try:
            await self._judge_and_finish(lease)
        except Exception:
            log.exception("judgement %s broke", lease.judgement_id)
        finally:
            self.active.pop(lease, None)
            self.wake.set()

    async def _judge_and_finish(self, lease: JudgeLease) -> None:
        product, settings = identity.product_in(lease.tenant_id), self.settings()
        work = await self.threads.transact(product, lambda: prepare_judgement(lease, settings.model, actor=product))
        if work is None:
            return
        outcome = work if isinstance(work, JudgeOutcome) else await Judge(work, self.threads, settings).run()
        await self.threads.transact(product, lambda: finish_judgement(lease, outcome))

    async def _by_workspace(self, held: list[JudgeLease], work: Callable[[list[JudgeLease]], Result]) -> list[Result]:
        def each() -> list[Result]:
            found = []
            for tenant_id, some in groupby(sorted(held, key=lambda one: one.tenant_id), lambda one: one.tenant_id):
                with acting_as(identity.product_in(tenant_id)), transaction():
                    found.append(work(list(some)))
            return found

        return await self.threads.call(each, "lease") if held else []
