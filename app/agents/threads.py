"""Blocking work for the event loop: each piece runs in a thread with an app context.

A transaction never spans two pieces, so none is open while a model is asked.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeVar

from flask import Flask

from app.actor import Actor
from app.db import acting_as, transaction

Result = TypeVar("Result")
Pool = Literal["run", "tool", "lease"]


class Threads:
    """One pool for the database work of runs, one for tools that wait for other programs, and one for claims and
    leases, which never wait for runs."""

    def __init__(self, app: Flask, outside: int) -> None:
        self.app = app
        sizes = {"run": app.config["SETTINGS"].run_threads, "tool": outside, "lease": 2}
        self._pools = {name: ThreadPoolExecutor(size, f"upshot-{name}") for name, size in sizes.items()}

    async def transact(self, actor: Actor, work: Callable[[], Result]) -> Result:
        """Run `work` in one transaction."""

        def within() -> Result:
            with acting_as(actor), transaction():
                return work()

        return await self.call(within)

    async def call(self, work: Callable[[], Result], pool: Pool = "run") -> Result:
        """Run `work`, which opens its own transactions, or none."""

        def within() -> Result:
            with self.app.app_context():
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._pools[pool], within)

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
