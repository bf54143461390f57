"""From the HTTP server's event loop to the app's threads and back.

Granian reads heads on its own threads and gives up on slow ones. What arrives here is a complete head. The body is
read on the loop, then the request waits for its turn, and only then does it get a thread. So neither an idle
connection nor a slow client holds a thread, and a request that waits too long gets 503.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO
from weakref import WeakValueDictionary

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined]
from werkzeug.middleware.proxy_fix import ProxyFix

from app.server.body import READ_AHEAD, BodyReader, BodyTooSlow, BufferedBodies, StreamedBody, TooManyBodies

log = logging.getLogger("upshot")
Headers = list[tuple[str, str]]
# These read what the database watcher saw last, so two threads of their own always have time for them.
PROBES = frozenset({"/healthz", "/readyz"})
JSON_PATHS = ("/api/", "/v1/", "/mcp", "/conversations/", "/healthz", "/readyz", "/metrics")
# A request may take a minute, but it is refused after this long when the database does not answer.
PATIENCE_SECONDS = 9.0
LONGEST_SECONDS = 60.0
MAX_WAITING = 2000
MAX_WAITING_PER_ADDRESS = 500
WAIT_SECONDS = 9.0


class Busy(Exception):
    """No thread became free in time, or too many requests wait already."""


class Turns:
    """Hands out `threads` turns, on the event loop and so without a lock. One address holds or waits for at most
    `share` of them, so that a crowd behind one address, or one busy client, leaves some for everyone else."""

    def __init__(self, threads: int) -> None:
        self.share = max(1, threads - max(1, threads // 4))
        self._free = asyncio.Semaphore(threads)
        self._by_address: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._waiting: Counter[str] = Counter()

    async def take(self, address: str) -> Callable[[], None]:
        """Wait for a turn and return what ends it. Raises Busy when there is none in time."""
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

    async def _acquire(self, of_address: asyncio.Semaphore) -> Callable[[], None]:
        await of_address.acquire()
        try:
            await self._free.acquire()
        except BaseException:
            of_address.release()
            raise

        def end() -> None:
            self._free.release()
            of_address.release()

        return end


class Bridge:
    """The RSGI application that granian calls."""

    def __init__(
        self,
        app: Callable[..., Iterable[bytes]],
        *,
        threads: int,
        trusted_proxy: str = "",
        database_answers: Callable[[], bool] = lambda: True,
    ) -> None:
        self.app = app
        self.behind_proxy = ProxyFix(app, x_for=1, x_proto=1, x_host=1)
        self.trusted_proxy = trusted_proxy
        self.database_answers = database_answers
        self.turns = Turns(threads)
        self.bodies = BufferedBodies()
        self.streams_left = max(1, threads // 4)
        self.pool = ThreadPoolExecutor(threads, "request")
        self.probes = ThreadPoolExecutor(2, "probe")
        self.outage_logged_at = float("-inf")
        self.open = 0
        self.all_done = asyncio.Event()
        self.all_done.set()

    async def __rsgi__(self, scope: Any, proto: Any) -> None:
        self.open += 1
        self.all_done.clear()
        try:
            await self._answer(Exchange(scope, proto, self))
        finally:
            self.open -= 1
            if not self.open:
                self.all_done.set()

    async def _answer(self, exchange: Exchange) -> None:
        if exchange.path in PROBES:
            await exchange.run_in(self.probes)
            return
        body = bytearray()
        try:
            if await exchange.read_body(body):
                await self._take_turn(exchange)
            else:
                await self._stream(exchange)
        except ProtocolClosed:
            pass  # The client left in the middle of its body.
        except BodyTooSlow:
            exchange.refuse(408, "The body arrived too slowly", "Send the whole request within ten seconds.")
        except (Busy, TooManyBodies):
            exchange.refuse(503, "Upshot is busy", "Try again in a few seconds. Nothing was saved.")
        finally:
            self.bodies.release(len(body))

    async def _take_turn(self, exchange: Exchange) -> None:
        exchange.began = exchange.loop.time()
        await exchange.run_in(self.pool, await self.turns.take(exchange.address))

    async def _stream(self, exchange: Exchange) -> None:
        """A body that is read by its view holds a thread for as long as it takes, so few of them may run at once."""
        if not self.streams_left:
            raise Busy
        self.streams_left -= 1
        try:
            await self._take_turn(exchange)
        finally:
            self.streams_left += 1

    def log_outage(self) -> None:
        """Log an outage at most once a second, however many requests it affects."""
        now = time.monotonic()
        if now - self.outage_logged_at >= 1:
            self.outage_logged_at = now
            log.warning("The database is not answering, so requests are refused.")

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.probes.shutdown(wait=False, cancel_futures=True)


class FileBody:
    """A file to send. Granian reads it on its own threads, so that a slow reader holds none of ours."""

    def __init__(self, file: BinaryIO, _block_size: int = 0) -> None:
        self.file = file
        self.path = file.name

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.file)

    def close(self) -> None:
        self.file.close()


class Exchange:
    """One request and its answer."""

    def __init__(self, scope: Any, proto: Any, bridge: Bridge) -> None:
        self.scope = scope
        self.proto = proto
        self.bridge = bridge
        self.path: str = scope.path
        self.loop = asyncio.get_running_loop()
        self.headers = header_variables(scope.headers.items())
        peer = scope.client.rpartition(":")[0].strip("[]")
        self.peer = peer
        self.proxied = bool(bridge.trusted_proxy) and peer == bridge.trusted_proxy
        forwarded = self.headers.get("HTTP_X_FORWARDED_FOR", "") if self.proxied else ""
        self.address: str = forwarded.rpartition(",")[2].strip() or peer
        self.began = self.loop.time()
        self.input: Any = io.BytesIO()
        self.streamed = False
        # Either the thread answers or, when it takes too long, the loop. The first to take this mark does.
        self._unanswered = [True]

    @property
    def age(self) -> float:
        """Seconds since the request could have had a thread."""
        return self.loop.time() - self.began

    async def read_body(self, body: bytearray) -> bool:
        """Read the body into memory; false when it is so large that its view has to read it."""
        length = self.headers.get("CONTENT_LENGTH")
        if length in (None, "0") and "HTTP_TRANSFER_ENCODING" not in self.headers:
            return True
        reader = BodyReader(aiter(self.proto))
        too_long = length is not None and length.isdecimal() and int(length) > READ_AHEAD
        if not too_long and await self.bridge.bodies.read_body(reader, body):
            self.input = io.BytesIO(body)
            return True
        self.streamed = True
        self.input = io.BufferedReader(StreamedBody(bytes(body), reader, self.loop), 64 * 1024)
        return False

    async def run_in(self, pool: ThreadPoolExecutor, when_done: Callable[[], None] | None = None) -> None:
        """Let a thread work the request out. The turn is given back when the thread is done, not when the client has
        been refused: until then the thread is busy."""
        work = self.loop.run_in_executor(pool, self._call_app)
        if when_done is not None:
            work.add_done_callback(lambda _: when_done())
        while not (await asyncio.wait({work}, timeout=max(1.0, PATIENCE_SECONDS - self.age)))[0]:
            late = self.age >= LONGEST_SECONDS and not self.streamed
            if late or not self.bridge.database_answers():
                self.bridge.log_outage()
                self.refuse(503, "The database isn’t responding", "Try again in a few seconds.")
                return
        if work.exception() is not None:
            log.error("a request failed", exc_info=work.exception())
            self.refuse(500, "Something went wrong", "Try again in a few seconds.")

    def environ(self) -> dict[str, Any]:
        scope = self.scope
        server, _, port = scope.server.rpartition(":")
        return self.headers | {
            "REQUEST_METHOD": scope.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": self.path.encode("utf-8", "replace").decode("latin-1"),
            "QUERY_STRING": scope.query_string,
            "SERVER_NAME": server.strip("[]"),
            "SERVER_PORT": port,
            "SERVER_PROTOCOL": f"HTTP/{scope.http_version}",
            "REMOTE_ADDR": self.peer,
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": scope.scheme,
            "wsgi.input": self.input,
            "wsgi.input_terminated": True,
            "wsgi.file_wrapper": FileBody,
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }

    def _call_app(self) -> None:
        started: list[tuple[int, Headers]] = []

        def start_response(status: str, headers: Headers, exc_info: Any = None) -> Callable[[bytes], object]:
            started.append((int(status[:3]), headers))
            return _refuse_write

        app = self.bridge.behind_proxy if self.proxied else self.bridge.app
        pieces = app(self.environ(), start_response)
        try:
            self._send(*started[-1], pieces)
        except Exception:
            log.exception("an answer could not be sent")
        finally:
            close = getattr(pieces, "close", None)
            if close is not None:
                close()

    def _send(self, status: int, headers: Headers, pieces: Iterable[bytes]) -> None:
        plain = [*((name.lower(), value) for name, value in headers), ("server", "upshot")]
        body = b"" if isinstance(pieces, FileBody) else b"".join(pieces)
        if not self._take_answer():
            return
        if isinstance(pieces, FileBody):
            self.proto.response_file(status, plain, pieces.path)
        elif body:
            self.proto.response_bytes(status, plain, body)
        else:
            self.proto.response_empty(status, plain)

    def _take_answer(self) -> bool:
        """True for the first who asks. Taking an item off a list happens as a whole, whatever other threads do."""
        try:
            return self._unanswered.pop()
        except IndexError:
            return False

    def refuse(self, status: int, title: str, advice: str) -> None:
        """Answer without the app, unless the app has answered."""
        if not self._take_answer():
            return
        if self.path.startswith(JSON_PATHS):
            kind = "application/problem+json"
            text = json.dumps({"type": "about:blank", "title": title, "status": status, "detail": advice})
        else:
            kind, text = "text/plain; charset=utf-8", f"{title}. {advice}\n"
        headers = [
            ("content-type", kind),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("retry-after", "5"),
            ("server", "upshot"),
            ("connection", "close"),
        ]
        self.proto.response_bytes(status, headers, text.encode())


def header_variables(headers: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Headers as WSGI names them. One that is written with underscores could pass for another and is left out."""
    found: dict[str, Any] = {}
    for name, value in headers:
        if "_" in name:
            continue
        key = name.upper().replace("-", "_")
        if key not in {"CONTENT_TYPE", "CONTENT_LENGTH"}:
            key = f"HTTP_{key}"
        separator = "; " if key == "HTTP_COOKIE" else ","
        found[key] = f"{found[key]}{separator}{value}" if key in found else value
    # Nothing here is served in parts.
    found.pop("HTTP_RANGE", None)
    return found


def _refuse_write(_data: bytes) -> None:
    raise NotImplementedError("Return the body instead of writing it.")
