"""Who gets a thread next. Addresses take turns, and no address holds every thread.

Everything here happens on the event loop, so nothing needs a lock.
"""

import asyncio
from collections import Counter, deque

MAX_WAITING = 2000
MAX_WAITING_PER_ADDRESS = 500
WAIT_SECONDS = 9.0


class Busy(Exception):
    """No thread became free in time, or too many requests wait already."""


class Turns:
    """Hands out `threads` turns. One address holds at most `share` of them, so that a crowd behind one address, or
    one client that keeps them all busy, leaves some for everyone else."""

    def __init__(self, threads: int, wait_seconds: float = WAIT_SECONDS) -> None:
        self.free = threads
        self.share = max(1, threads - max(1, threads // 4))
        self.wait_seconds = wait_seconds
        self.held: Counter[str] = Counter()
        self.waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self.waiting_count = 0

    async def take(self, address: str) -> None:
        """Wait for a turn. Raises Busy when there is none in time."""
        if self.free and self.held[address] < self.share and address not in self.waiting:
            self._grant(address)
            return
        queue = self.waiting.get(address, ())
        if self.waiting_count >= MAX_WAITING or len(queue) >= MAX_WAITING_PER_ADDRESS:
            raise Busy
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(address, deque()).append(turn)
        self.waiting_count += 1
        try:
            async with asyncio.timeout(self.wait_seconds):
                await turn
        except TimeoutError:
            raise Busy from None
        finally:
            if turn.cancelled() or not turn.done():
                self._forget(address, turn)

    def give_back(self, address: str) -> None:
        self.free += 1
        self.held[address] -= 1
        if not self.held[address]:
            del self.held[address]
        self._wake_next()

    def _grant(self, address: str) -> None:
        self.free -= 1
        self.held[address] += 1

    def _forget(self, address: str, turn: asyncio.Future[None]) -> None:
        queue = self.waiting.get(address)
        if queue and turn in queue:
            queue.remove(turn)
            self.waiting_count -= 1
            if not queue:
                del self.waiting[address]

    def _wake_next(self) -> None:
        """Give the free turn to the address that has waited longest for its turn; it then goes to the end."""
        for address in list(self.waiting):
            if not self.free:
                return
            if self.held[address] >= self.share:
                continue
            queue = self.waiting.pop(address)
            turn = queue.popleft()
            self.waiting_count -= 1
            if queue:
                self.waiting[address] = queue
            self._grant(address)
            turn.set_result(None)
            return
