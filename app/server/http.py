"""Granian in this process, with the app behind it. Only its public interface is used."""

import asyncio
import logging
import resource
import socket
from collections.abc import Callable
from contextlib import suppress

from flask import Flask
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from app.config import Settings
from app.db.watch import database_watch
from app.server.bridge import Bridge

HEAD_MILLISECONDS = 10_000
MAX_HEAD_BYTES = 64 * 1024
MAX_CONNECTIONS = 20_000
BACKLOG = 4096
# Requests that were accepted get this long to finish when the server is asked to stop.
DRAIN_SECONDS = 15


class HttpServer:
    """Serves the app on the settings' address until `stop`."""

    def __init__(self, app: Flask, settings: Settings) -> None:
        self.settings = settings
        self._stopping = asyncio.Event()
        watch = database_watch(app)
        watch.keep()
        self.bridge = Bridge(
            app.wsgi_app, threads=settings.threads, trusted_proxy=settings.trusted_proxy, database_answers=watch.answers
        )
        self.server = Server(
            self.bridge,
            address=socket.gethostbyname(settings.host) if ":" not in settings.host else settings.host,
            port=settings.port,
            interface=Interfaces.RSGI,
            http=HTTPModes.http1,
            websockets=False,
            backlog=BACKLOG,
            backpressure=MAX_CONNECTIONS,
            http1_settings=HTTP1Settings(header_read_timeout=HEAD_MILLISECONDS, max_buffer_size=MAX_HEAD_BYTES),
            log_enabled=False,
        )

    async def serve(self, when_up: Callable[[], None]) -> bool:
        """Serve until `stop`; false when requests that were accepted were not answered in time."""
        allow_connections()
        logging.getLogger("granian").setLevel(logging.ERROR)
        serving = asyncio.create_task(self.server.serve())
        await self._wait_until_up(serving)
        await asyncio.to_thread(when_up)
        try:
            await self._stopping.wait()
            return await self._drain(serving)
        finally:
            self.bridge.close()

    def stop(self) -> None:
        """Accept nothing more. `serve` returns when what was accepted is answered."""
        self._stopping.set()

    async def _drain(self, serving: asyncio.Task[None]) -> bool:
        self.server.stop()  # type: ignore[no-untyped-call]
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self.bridge.all_done.wait()
                await serving
        except TimeoutError:
            return False
        return True

    async def _wait_until_up(self, serving: asyncio.Task[None]) -> None:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.settings.host, self.settings.host)  # noqa: S104 - only compared
        while not serving.done():
            with suppress(OSError):
                _, writer = await asyncio.open_connection(host, self.settings.port)
                writer.close()
                return
            await asyncio.sleep(0.02)


def allow_connections() -> None:
    """Every connection is an open file, and the usual limit of 1,024 would be reached by idle ones alone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + 1024
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
