"""Blocking work for the event loop: each piece runs in a thread with an app context.

A transaction never spans two pieces, so none is open while a model is asked.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from flask import Flask

from app.actor import Actor
from app.db import acting_as, transaction

Result = TypeVar("Result")


class Threads:
    """One pool for database work, one for tools that wait for other programs."""

    def __init__(self, app: Flask, outside: int) -> None:
        self.app = app
        self._database = ThreadPoolExecutor(app.config["SETTINGS"].run_threads, "upshot-run")
        self._outside = ThreadPoolExecutor(outside, "upshot-tool")

    async def transact(self, actor: Actor, work: Callable[[], Result]) -> Result:
        """Run `work` in one transaction."""

        def within() -> Result:
            with self.app.app_context(), acting_as(actor), transaction():
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._database, within)

    async def call(self, work: Callable[[], Result], *, outside: bool = False) -> Result:
        """Run `work`, which opens its own transactions, or none."""

        def within() -> Result:
            with self.app.app_context():
                return work()

        pool = self._outside if outside else self._database
        return await asyncio.get_running_loop().run_in_executor(pool, within)

    def close(self) -> None:
        self._database.shutdown(wait=False, cancel_futures=True)
        self._outside.shutdown(wait=False, cancel_futures=True)
