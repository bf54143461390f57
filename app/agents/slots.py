"""Turns at what only so many runs may use at once: a model server, or an agent with a limit of its own.

Limits hold for one process. In one process they hold for all its event loops, so the counts are guarded by a lock that
is never held while anything waits.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count

# Whoever has the lower rank goes first: people before replays, and of each the run that began first. Replays that
# began therefore end one after the other instead of all at the end.
Rank = tuple[int, int]
FOR_PEOPLE, FOR_REPLAYS, FOR_JUDGES = 0, 1, 2
NO_LIMIT = 1_000_000
_numbers = count()


def next_rank(kind: int) -> Rank:
    """The rank of a run that begins now."""
    return kind, next(_numbers)


@dataclass(order=True)
class Waiter:
    """Someone who waits for a turn. `most` is how many may be inside when it enters."""

    rank: Rank
    number: int
    most: int = field(compare=False)
    future: asyncio.Future[None] = field(compare=False)
    let_in: bool = field(default=False, compare=False)


class Slots:
    """A number of turns at one thing."""

    def __init__(self) -> None:
        self.used = 0
        self._waiting: list[Waiter] = []
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def hold(self, most: int, rank: Rank) -> AsyncIterator[None]:
        """Wait for a turn and keep it for the block."""
        await self.enter(most, rank)
        try:
            yield
        finally:
            self.leave()

    async def enter(self, most: int, rank: Rank) -> None:
        """Wait until fewer than `most` are inside, and nobody of lower rank waits."""
        with self._lock:
            if self.used < most and not self._waiting:
                self.used += 1
                return
            waiter = Waiter(rank, next(_numbers), most, asyncio.get_running_loop().create_future())
            heapq.heappush(self._waiting, waiter)
        try:
            await waiter.future
        except asyncio.CancelledError:
            self._give_up(waiter)
            raise

    def leave(self) -> None:
        """Give a turn back."""
        with self._lock:
            self.used -= 1
            self._let_in()

    def _give_up(self, waiter: Waiter) -> None:
        with self._lock:
            if waiter.let_in:
                self.used -= 1
            else:
                self._waiting.remove(waiter)
                heapq.heapify(self._waiting)
            self._let_in()

    def _let_in(self) -> None:
        """Let in the runs that may enter now."""
        while self._waiting and self.used < self._waiting[0].most:
            waiter = heapq.heappop(self._waiting)
            waiter.let_in = True
            self.used += 1
            try:
                waiter.future.get_loop().call_soon_threadsafe(_wake, waiter.future)
            except RuntimeError:
                # Its loop was closed while it waited.
                self.used -= 1


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class ModelServer:
    """A model server as this process uses it: its turns, and until when it asked to be left alone."""

    def __init__(self) -> None:
        self.slots = Slots()
        self._quiet_until = 0.0

    def keep_quiet(self, seconds: float) -> None:
        """Send nothing for so long, because the server asked for it."""
        self._quiet_until = max(self._quiet_until, time.monotonic() + seconds)

    async def wait_until_free(self) -> None:
        """Wait as long as the server asked for."""
        while (left := self._quiet_until - time.monotonic()) > 0:
            await asyncio.sleep(left)


_servers: dict[str, ModelServer] = {}
_agents: dict[object, Slots] = {}
_registry_lock = threading.Lock()


def server_named(name: str) -> ModelServer:
    """The model server of this name, the same one for the whole process."""
    with _registry_lock:
        return _servers.setdefault(name, ModelServer())


@asynccontextmanager
async def run_of_agent(agent_id: object, most: int, rank: Rank) -> AsyncIterator[None]:
    """Wait until fewer than `most` runs of this agent are under way here; 0 is no limit."""
    if not most:
        yield
        return
    with _registry_lock:
        slots = _agents.setdefault(agent_id, Slots())
    async with slots.hold(most, rank):
        yield


@dataclass(frozen=True)
class ModelAccess:
    """The way of one run to its model server. The time limit of the run does not run while it waits."""

    server: ModelServer
    most: int
    rank: Rank
    deadline: asyncio.Timeout | None = None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn at the server and keep it for the block."""
        with self._stopped():
            await self.server.slots.enter(self.most, self.rank)
        try:
            with self._stopped():
                await self.server.wait_until_free()
            yield
        finally:
            self.server.slots.leave()

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        """Stop the clock of the run for the block."""
        until = self.deadline.when() if self.deadline is not None else None
        if self.deadline is None or until is None or self.deadline.expired():
            yield
            return
        loop = asyncio.get_running_loop()
        left = until - loop.time()
        self.deadline.reschedule(None)
        try:
            yield
        finally:
            self.deadline.reschedule(loop.time() + left)
