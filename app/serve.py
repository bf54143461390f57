"""The server: one process with waitress's threads, and a thread that watches the embedded database."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from types import FrameType
from typing import Any

from flask import Flask

from app import create_app
from app.config import Settings
from app.db.boot import Opened, open_database
from app.errors import Unusable

log = logging.getLogger("upshot")


def run(*, demo: bool) -> None:
    """Open everything, say where it is, and serve until stopped."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    # atexit does not run when SIGTERM ends a process, and the embedded server must stop with us.
    signal.signal(signal.SIGTERM, _stop)
    settings = Settings.from_env()
    listener = listen(settings)
    opened = open_database(settings)
    try:
        app = create_app(settings, opened, demo=demo)
        if opened.embedded:
            opened.embedded.watch(log.warning)
        if demo:
            _fill(app)
        serve(app, listener, settings, lambda: announce(app, settings))
    finally:
        listener.close()
        _close(opened)


def _stop(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def listen(settings: Settings) -> socket.socket:
    """Take the port before anything else is touched."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as trouble:
        listener.close()
        raise Unusable(
            f"Cannot listen on {settings.host}:{settings.port} ({trouble.strerror});"
            " stop what uses it or set UPSHOT_PORT to a free one."
        ) from None
    return listener


def _fill(app: Flask) -> None:
    from app.demo.seed import seed

    with app.app_context():
        seed()


def announce(app: Flask, settings: Settings) -> None:
    """Say where it is, and how to get in."""
    from app.cli.links import first_link

    with app.app_context():
        link = first_link(settings)
    lines = [f"Upshot is up: {settings.url}"]
    lines += [f"Sign in once with: {link}"] if link else []
    print("\n".join(lines), flush=True)  # noqa: T201 - this is what the operator waits for


def serve(app: Flask, listener: socket.socket, settings: Settings, when_up: Any) -> None:
    from waitress.server import create_server

    options: dict[str, Any] = {
        "sockets": [listener],
        "threads": settings.threads,
        "ident": None,
        "channel_timeout": 120,
        "connection_limit": 500,
        "max_request_body_size": 1 << 30,  # Views have limits of their own; imports are streamed.
        "send_bytes": 1,  # Streams reach the page as they are written.
        "clear_untrusted_proxy_headers": True,
    }
    if settings.trusted_proxy:
        options |= {
            "trusted_proxy": settings.trusted_proxy,
            "trusted_proxy_headers": {"x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"},
            "trusted_proxy_count": 1,
        }
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    server = create_server(app, **options)
    when_up()
    try:
        server.run()
    finally:
        server.close()


def _close(opened: Opened) -> None:
    if opened.embedded:
        opened.embedded.release()
