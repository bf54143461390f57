"""Request bodies. Small ones are read before a thread is asked for, so that a slow client holds none.

A body has ten seconds, and one more for each 64 KiB that arrived. What is larger than a JSON body may be (a file to
import) is read by the view that wants it, piece by piece and under the same deadline.
"""

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

from werkzeug.exceptions import RequestTimeout

DEADLINE_SECONDS = 10.0
BYTES_PER_EXTRA_SECOND = 64 * 1024
READ_AHEAD = 1024 * 1024 + 64 * 1024  # A little more than the largest JSON body, so that none of those is streamed.
MAX_BUFFERED = 64 * 1024 * 1024


class BodyTooSlow(Exception):
    """The body did not arrive in time."""


class TooManyBodies(Exception):
    """Bodies of other requests fill the memory that there is for them."""


class BodyReader:
    """Reads one request's body on the event loop and keeps its deadline."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self.received = 0

    async def next_piece(self) -> bytes:
        """The next piece, or nothing at the end."""
        deadline = self._began + DEADLINE_SECONDS + self.received / BYTES_PER_EXTRA_SECOND
        try:
            async with asyncio.timeout_at(deadline):
                piece = await anext(self._pieces)
        except StopAsyncIteration:
            return b""
        except TimeoutError:
            raise BodyTooSlow from None
        self.received += len(piece)
        return piece


class BufferedBodies:
    """How much memory the bodies of all requests take together."""

    def __init__(self, limit: int = MAX_BUFFERED) -> None:
        self.limit = limit
        self.size = 0

    async def read_body(self, reader: BodyReader, into: bytearray) -> bool:
        """Read a body up to READ_AHEAD; true when that was all of it. The caller gives `len(into)` bytes back."""
        while len(into) <= READ_AHEAD:
            piece = await reader.next_piece()
            if not piece:
                return True
            if self.size + len(piece) > self.limit:
                raise TooManyBodies
            self.size += len(piece)
            into += piece
        return False

    def release(self, size: int) -> None:
        self.size -= size


class StreamedBody(io.RawIOBase):
    """The rest of a large body as a file for the thread that reads it."""

    def __init__(self, start: bytes, reader: BodyReader, loop: asyncio.AbstractEventLoop) -> None:
        self._left = memoryview(start)
        self._reader = reader
        self._loop = loop

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = memoryview(self._fetch())
        target = memoryview(buffer).cast("B")
        count = min(len(target), len(self._left))
        target[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def _fetch(self) -> bytes:
        try:
            return asyncio.run_coroutine_threadsafe(self._reader.next_piece(), self._loop).result()
        except BodyTooSlow:
            raise RequestTimeout("The body arrived too slowly; send at least 64 KiB a second.") from None
