"""Answers of the server as a client sees them on the wire."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from waitress.server import create_server

from app.one_piece import Channel

pytestmark = pytest.mark.filterwarnings("ignore:send_bytes")
go_on = threading.Event()


def some_app(environ: dict[str, Any], start_response: Any) -> Any:
    path = environ["PATH_INFO"]
    if path == "/nothing":
        start_response("204 No Content", [])
        return []
    if path == "/stream":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return stream()
    start_response("200 OK", [("Content-Length", "5")])
    return [b"whole"]


def stream() -> Iterator[bytes]:
    yield b"first"
    assert go_on.wait(30)
    yield b"second"


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = create_server(some_app, sockets=[listener], send_bytes=1, threads=2)
    server.channel_class = Channel
    running = threading.Thread(target=server.run, daemon=True)
    running.start()
    with socket.create_connection(listener.getsockname(), 30) as client:
        yield client
    server.close()
    running.join(30)


def ask(client: socket.socket, method: str, path: str) -> bytes:
    client.sendall(f"{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    return client.recv(65536)


def test_head_and_body_come_together(connection: socket.socket) -> None:
    for _ in range(3):
        answer = ask(connection, "GET", "/")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"\r\n\r\nwhole")


def test_without_a_body_the_head_comes_alone(connection: socket.socket) -> None:
    answer = ask(connection, "GET", "/nothing")
    assert answer.startswith(b"HTTP/1.1 204 No Content\r\n")
    assert answer.endswith(b"\r\n\r\n")


def test_a_stream_comes_as_it_is_written(connection: socket.socket) -> None:
    go_on.clear()
    assert ask(connection, "GET", "/stream").endswith(b"\r\n\r\n5\r\nfirst\r\n")
    go_on.set()
    rest = connection.recv(65536)
    assert rest.startswith(b"6\r\nsecond\r\n")
