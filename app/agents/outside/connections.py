"""What the external tools of one run share: clients, connections to servers, and a common end."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from app.errors import Refused
from app.formats.agent_config import AgentConfig

Result = TypeVar("Result")


class RunConnections(AsyncExitStack):
    """Opened when a run starts and closed when it ends. Tools run in threads and wait for work in the run's loop."""

    def __init__(self, config: AgentConfig, allow: str) -> None:
        super().__init__()
        self.config = config
        self.allow = allow
        self._loop = asyncio.get_running_loop()
        self._waiting: set[Future[Any]] = set()

    async def __aexit__(self, *trouble: Any) -> bool | None:
        for future in list(self._waiting):
            future.cancel()
        return await super().__aexit__(*trouble)

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
