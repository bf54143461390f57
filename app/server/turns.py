"""Who gets a thread next. Requests wait in line, and no address holds every thread.

Everything here happens on the event loop, so nothing needs a lock.
"""

import asyncio
from collections import Counter
from weakref import WeakValueDictionary

MAX_WAITING = 2000
MAX_WAITING_PER_ADDRESS = 500
WAIT_SECONDS = 9.0


class Busy(Exception):
    """No thread became free in time, or too many requests wait already."""


class Turn:
    """A thread's time for one request."""

    def __init__(self, *held: asyncio.Semaphore) -> None:
        self._held = held

    def end(self) -> None:
        for semaphore in self._held:
            semaphore.release()


class Turns:
    """Hands out `threads` turns. One address holds or waits in line for at most `share` of them, so that a crowd behind
    one address, or one client that keeps them all busy, leaves some for everyone else."""

    def __init__(self, threads: int) -> None:
        self.share = max(1, threads - max(1, threads // 4))
        self._free = asyncio.Semaphore(threads)
        self._by_address: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._waiting: Counter[str] = Counter()

    async def take(self, address: str) -> Turn:
        """Wait for a turn. Raises Busy when there is none in time."""
        if self._waiting.total() >= MAX_WAITING or self._waiting[address] >= MAX_WAITING_PER_ADDRESS:
            raise Busy
        of_address = self._by_address.setdefault(address, asyncio.Semaphore(self.share))
        self._waiting[address] += 1
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                return await self._acquire(of_address)
        except TimeoutError:
            raise Busy from None
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]

    async def _acquire(self, of_address: asyncio.Semaphore) -> Turn:
        await of_address.acquire()
        try:
            await self._free.acquire()
        except BaseException:
            of_address.release()
            raise
        return Turn(self._free, of_address)
