"""The product's own HTTP server around any WSGI application, in a thread of the test's process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from app.config import Settings
from app.server.http import HttpServer
from tests.cli.servers import free_port


@contextmanager
def served(app: Any, threads: int = 4, **more: str) -> Iterator[str]:
    """The address at which the app answers."""
    port = free_port()
    settings = Settings(port=port, threads=threads, **more)
    up, stop = threading.Event(), []

    async def serve() -> None:
        server = HttpServer(app, settings)
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(server.stop))
        await server.serve(up.set)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert up.wait(30)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stopped: Callable[[], None] = stop[0]
        stopped()
        thread.join(60)
