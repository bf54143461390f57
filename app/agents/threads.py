"""Blocking work from the loop: each piece in a thread, with an app context and for somebody.

No transaction is ever open while a model is asked, since one lives and ends within such a piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from flask import Flask

from app.actor import Actor
from app.db import acting_as, transaction

Result = TypeVar("Result")


class Threads:
    """`database` for work in transactions of ours; `outside` for whatever waits for somebody else's program."""

    def __init__(self, app: Flask, outside: int) -> None:
        self.app = app
        self._database = ThreadPoolExecutor(app.config["SETTINGS"].run_threads, "upshot-run")
        self._outside = ThreadPoolExecutor(outside, "upshot-tool")

    async def transact(self, actor: Actor, work: Callable[[], Result]) -> Result:
        """Do something in one transaction."""

        def within() -> Result:
            with self.app.app_context(), acting_as(actor), transaction():
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._database, within)

    async def call(self, work: Callable[[], Result], *, outside: bool = False) -> Result:
        """Do something that opens transactions of its own, or none."""

        def within() -> Result:
            with self.app.app_context():
                return work()

        pool = self._outside if outside else self._database
        return await asyncio.get_running_loop().run_in_executor(pool, within)

    def close(self) -> None:
        self._database.shutdown(wait=False, cancel_futures=True)
        self._outside.shutdown(wait=False, cancel_futures=True)
