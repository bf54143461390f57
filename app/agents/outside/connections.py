"""What the tools of one run share when they reach outside: clients, connections to servers, and an end to all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, TypeVar

from app.errors import Refused
from app.formats.agent_config import AgentConfig

Result = TypeVar("Result")


class Outside:
    """Opened when a run begins and closed when it ends. Tools run in threads and do their waiting in the run's loop."""

    def __init__(self, config: AgentConfig, allow: str) -> None:
        self.config = config
        self.allow = allow
        self._loop = asyncio.get_running_loop()
        self._open = AsyncExitStack()
        self._waiting: set[Future[Any]] = set()

    async def __aenter__(self) -> Outside:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, trouble: BaseException | None, trace: TracebackType | None
    ) -> None:
        for future in list(self._waiting):
            future.cancel()
        await self._open.aclose()

    async def enter(self, context: AbstractAsyncContextManager[Result]) -> Result:
        """Enter a context that is left when the run ends."""
        return await self._open.enter_async_context(context)

    def close_later(self, close: Callable[[], Awaitable[None]]) -> None:
        self._open.push_async_callback(close)

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Wait in a tool's thread for something that the run's loop does."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._waiting.add(future)
        try:
            return future.result()
        except CancelledError:
            raise Refused("The run ended before the tool answered.") from None
        finally:
            self._waiting.discard(future)
