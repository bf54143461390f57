"""Answers of the server as a client sees them on the wire."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from waitress.server import create_server

from app.one_piece import Channel

pytestmark = [
    pytest.mark.filterwarnings("ignore:send_bytes"),
    # The server's sockets are closed under its loop when a test ends.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
go_on = threading.Event()


def some_app(environ: dict[str, Any], start_response: Any) -> Any:
    path = environ["PATH_INFO"]
    if path == "/nothing":
        start_response("204 No Content", [])
        return []
    if path == "/stream":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return stream()
    if path == "/echo":
        body = environ["wsgi.input"].read()
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]
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


def echo(client: socket.socket, said: bytes, pieces: int, pause: float = 0, more: bytes = b"") -> bytes:
    """Send a request in pieces; give the body of its answer."""
    whole = b"POST /echo HTTP/1.1\r\nHost: a\r\n" + more + b"Content-Length: %d\r\n\r\n" % len(said) + said
    size = -(-len(whole) // pieces)
    for start in range(0, len(whole), size):
        client.sendall(whole[start : start + size])
        if pause:
            time.sleep(pause)
    return read(client, len(said))


def read(client: socket.socket, length: int) -> bytes:
    got = b""
    while len(got.partition(b"\r\n\r\n")[2]) < length or b"\r\n\r\n" not in got:
        got += client.recv(65536)
    assert got.startswith(b"HTTP/1.1 200 OK\r\n"), got
    return got.partition(b"\r\n\r\n")[2]


def test_a_request_may_come_in_pieces_and_late(connection: socket.socket) -> None:
    """Whole or in pieces, at once or after the thread that answered has stopped listening."""
    for number, (pieces, pause) in enumerate([(1, 0), (7, 0), (3, 0.02), (1, 0.02), (5, 0.001)]):
        said = b"%d " % number * 50
        assert echo(connection, said, pieces, pause) == said


def test_requests_that_come_together_are_answered_in_turn(connection: socket.socket) -> None:
    one = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n"
    connection.sendall(b"".join(one + b"%02d" % number for number in range(20)))
    got = b""
    while got.count(b"HTTP/1.1 200 OK") < 20 or not got.endswith(b"19"):
        got += connection.recv(65536)
    assert [part[-2:] for part in got.split(b"HTTP/1.1 200 OK")[1:]] == [b"%02d" % number for number in range(20)]


def test_who_waits_for_a_sign_to_go_on_gets_it(connection: socket.socket) -> None:
    """Also when the head comes while the thread that answered the request before still listens."""
    for _ in range(3):
        connection.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"ok")
        assert read(connection, 2) == b"ok"


TWICE = [
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    b"transfer-encoding: chunked\r\nCONTENT-LENGTH: 5\r\n",
    b"Content-Length: 5\r\nTransfer-Encoding:\r\n",
    b"Content-Length: 0\r\nTransfer-Encoding:\r\n chunked\r\n",
    b"Expect: 100-continue\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
]


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("lengths", TWICE)
def test_who_says_twice_how_long_a_request_is_gets_no_further(
    connection: socket.socket, lengths: bytes, version: bytes
) -> None:
    """Nor does what follows on the same connection, which might be somebody else's."""
    assert echo(connection, b"before", 1) == b"before"
    head = b"POST /echo HTTP/" + version + b"\r\nHost: a\r\nConnection: keep-alive\r\n" + lengths + b"\r\n"
    connection.sendall(head + b"0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
    got = b""
    while piece := connection.recv(65536):
        got += piece
    assert got.startswith(b"HTTP/" + version + b" 400 Bad Request\r\n"), got
    assert b"Content-Length and Transfer-Encoding" in got
    assert (got.count(b"HTTP/1."), b"whole" in got) == (1, False)


def test_chunks_alone_are_a_body(connection: socket.socket) -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\nX-About: content-length, transfer-encoding: none\r\n"
    for _ in range(2):
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        assert read(connection, 5) == b"abcde"


def test_more_clients_than_threads_are_all_answered(connection: socket.socket) -> None:
    """Two threads, twelve clients that keep their connections, and some that leave in the middle."""
    failed: list[BaseException] = []

    def one(number: int) -> None:
        try:
            for turn in range(20):
                with socket.create_connection(connection.getpeername(), 30) as client:
                    for _ in range(turn % 4):
                        assert echo(client, b"%04d" % number, 1 + turn % 3) == b"%04d" % number
                    client.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Le"[: turn * 2])
        except BaseException as trouble:
            failed.append(trouble)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert not any(thread.is_alive() for thread in threads)
    assert echo(connection, b"still there", 1) == b"still there"
