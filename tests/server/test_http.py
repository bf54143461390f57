"""Answers of the server as a client sees them on the wire, with slow, idle and greedy clients beside it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from werkzeug.wsgi import wrap_file

from app.config import Settings
from app.server import body, bridge
from app.server.http import HttpServer
from tests.cli.servers import free_port

go_on = threading.Event()
FILE = Path(__file__)


class SomeWatch:
    """A database that answers, or hangs."""

    def __init__(self) -> None:
        self.hangs = False

    def keep(self) -> None:
        """A real watch begins to ask here."""

    def answers(self) -> bool:
        return not self.hangs


class SomeApp:
    """Answers by path. It has what the server asks of a Flask app: a WSGI callable and the watch of its database."""

    def __init__(self) -> None:
        self.watch = SomeWatch()
        self.extensions = {"upshot.watch": self.watch}
        self.seen: list[dict[str, Any]] = []

    def wsgi_app(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.seen.append(environ)
        path = environ["PATH_INFO"]
        if path == "/nothing":
            start_response("204 No Content", [])
            return []
        if path == "/same":
            start_response("304 Not Modified", [("ETag", '"a"')])
            return []
        if path == "/file":
            start_response("200 OK", [("Content-Length", str(FILE.stat().st_size))])
            return wrap_file(environ, FILE.open("rb"))
        if path == "/large":
            start_response("200 OK", [("Content-Length", str(3_000_000))])
            return iter([b"x" * 1_000_000] * 3)
        if path == "/hang":
            go_on.wait(30)
        if path == "/broken":
            raise RuntimeError("broken on purpose")
        if path == "/echo":
            said = environ["wsgi.input"].read()
            start_response("200 OK", [("Content-Length", str(len(said)))])
            return [said]
        start_response("200 OK", [("Content-Length", "5")])
        return [b"whole"]


@pytest.fixture
def app() -> SomeApp:
    return SomeApp()


@pytest.fixture
def serve(app: SomeApp) -> Iterator[Callable[..., int]]:
    """Starts the server once with the settings that a test wants; gives its port."""
    running: list[tuple[Any, threading.Thread]] = []

    def start(threads: int = 2, **more: str) -> int:
        settings = Settings(port=free_port(), threads=threads, **more)
        up = threading.Event()

        async def run() -> None:
            server = HttpServer(app, settings)  # type: ignore[arg-type]
            running.append((lambda: loop.call_soon_threadsafe(server.stop), threading.current_thread()))
            loop = asyncio.get_running_loop()
            await server.serve(up.set)

        threading.Thread(target=lambda: asyncio.run(run()), daemon=True).start()
        assert up.wait(30)
        return settings.port

    yield start
    go_on.set()
    for stop, thread in running:
        stop()
        thread.join(30)
    go_on.clear()


def connect(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 30, (source, 0))


@pytest.fixture
def connection(serve: Callable[..., int]) -> Iterator[socket.socket]:
    with connect(serve()) as client:
        yield client


def ask(client: socket.socket, method: str, path: str, more: str = "") -> bytes:
    client.sendall(f"{method} {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n".encode())
    return client.recv(65536)


def read(client: socket.socket, length: int, status: bytes = b"200 OK") -> bytes:
    got = b""
    while b"\r\n\r\n" not in got or len(got.partition(b"\r\n\r\n")[2]) < length:
        piece = client.recv(65536)
        assert piece, got
        got += piece
    assert got.startswith(b"HTTP/1.1 " + status), got
    return got.partition(b"\r\n\r\n")[2]


def read_all(client: socket.socket) -> bytes:
    got = b""
    while piece := client.recv(65536):
        got += piece
    return got


def echo(client: socket.socket, said: bytes, pieces: int = 1, pause: float = 0) -> bytes:
    whole = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(said) + said
    size = -(-len(whole) // pieces)
    for start in range(0, len(whole), size):
        client.sendall(whole[start : start + size])
        time.sleep(pause)
    return read(client, len(said))


def test_a_connection_stays_open_after_every_kind_of_answer(connection: socket.socket) -> None:
    """Agents poll with ETags; a 304 or a 204 that closes the connection would cost them one each time."""
    for path, status in (("/", b"200"), ("/nothing", b"204"), ("/same", b"304"), ("/", b"200")):
        answer = ask(connection, "GET", path)
        assert answer.startswith(b"HTTP/1.1 " + status), answer
        assert b"connection: close" not in answer.lower()


def test_a_head_request_gets_the_length_and_no_body(connection: socket.socket) -> None:
    answer = ask(connection, "HEAD", "/file")
    assert f"content-length: {FILE.stat().st_size}".encode() in answer
    assert answer.endswith(b"\r\n\r\n")


def test_files_and_large_answers_arrive_whole(connection: socket.socket) -> None:
    connection.sendall(b"GET /file HTTP/1.1\r\nHost: a\r\nRange: bytes=0-3\r\n\r\n")
    assert read(connection, FILE.stat().st_size) == FILE.read_bytes()
    connection.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
    assert read(connection, 3_000_000) == b"x" * 3_000_000


def test_a_request_may_come_in_pieces_and_late(connection: socket.socket) -> None:
    for number, (pieces, pause) in enumerate([(1, 0.0), (7, 0.0), (3, 0.02), (1, 0.02), (5, 0.001)]):
        said = b"%d " % number * 50
        assert echo(connection, said, pieces, pause) == said


def test_requests_that_come_together_are_answered_in_turn(connection: socket.socket) -> None:
    one = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n"
    connection.sendall(b"".join(one + b"%02d" % number for number in range(20)))
    got = b""
    while got.count(b"HTTP/1.1 200 OK") < 20 or not got.endswith(b"19"):
        got += connection.recv(65536)
    assert [part[-2:] for part in got.split(b"HTTP/1.1 200 OK")[1:]] == [b"%02d" % number for number in range(20)]


def test_a_client_that_expects_continue_gets_it(connection: socket.socket) -> None:
    for _ in range(3):
        connection.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"ok")
        assert read(connection, 2) == b"ok"


TWO_LENGTHS = [
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    b"transfer-encoding: chunked\r\nCONTENT-LENGTH: 5\r\n",
    b"Content-Length: 5\r\nTransfer-Encoding:\r\n",
    b"Content-Length: 0\r\nTransfer-Encoding:\r\n chunked\r\n",
    b"Content-Length: 5\r\nContent-Length: 6\r\n",
]


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("lengths", TWO_LENGTHS)
def test_nothing_can_be_smuggled_behind_two_lengths(
    app: SomeApp, connection: socket.socket, lengths: bytes, version: bytes
) -> None:
    """A proxy may believe the other length, and then the rest would be someone else's request. Such a request is
    refused or is the last of its connection."""
    assert echo(connection, b"before") == b"before"
    head = b"POST /echo HTTP/" + version + b"\r\nHost: a\r\nConnection: keep-alive\r\n" + lengths + b"\r\n"
    connection.sendall(head + b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
    assert read_all(connection).count(b"HTTP/1.") == 1
    assert "/smuggled" not in [environ["PATH_INFO"] for environ in app.seen]


def test_chunks_are_a_body_of_any_size(connection: socket.socket) -> None:
    """The last one is larger than what is read before a thread is asked for."""
    for said in (b"abcde", b"x" * 3_000_000):
        head = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(said), said))
        assert read(connection, len(said)) == said


def test_a_large_body_reaches_the_view_that_reads_it(connection: socket.socket) -> None:
    said = bytes(range(256)) * 20_000
    assert echo(connection, said, pieces=50) == said


def test_a_header_with_underscores_does_not_pass_for_another(app: SomeApp, connection: socket.socket) -> None:
    ask(
        connection, "GET", "/", "X_Forwarded_For: 1.2.3.4\r\nX-Twice: a\r\nX-Twice: b\r\nCookie: a=1\r\nCookie: b=2\r\n"
    )
    (environ,) = app.seen
    assert "HTTP_X_FORWARDED_FOR" not in environ
    assert environ["HTTP_X_TWICE"] == "a,b"
    assert environ["HTTP_COOKIE"] == "a=1; b=2"
    assert environ["REMOTE_ADDR"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("proxy", "expected"), [("", "127.0.0.1"), ("127.0.0.9", "127.0.0.1"), ("127.0.0.1", "203.0.113.5")]
)
def test_only_the_trusted_proxy_says_who_asks(
    app: SomeApp, serve: Callable[..., int], proxy: str, expected: str
) -> None:
    with connect(serve(trusted_proxy=proxy)) as client:
        ask(client, "GET", "/", "X-Forwarded-For: 198.51.100.1, 203.0.113.5\r\nX-Forwarded-Proto: https\r\n")
    assert app.seen[0]["REMOTE_ADDR"] == expected
    assert app.seen[0]["wsgi.url_scheme"] == ("https" if expected.startswith("203") else "http")


def test_an_app_that_breaks_is_a_500_and_the_connection_lives(connection: socket.socket) -> None:
    assert ask(connection, "GET", "/broken").startswith(b"HTTP/1.1 500")


def test_a_body_that_trickles_in_is_cut_off_and_holds_no_thread(
    serve: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "DEADLINE_SECONDS", 1.5)
    port = serve(threads=2)
    slow = [connect(port) for _ in range(40)]
    for client in slow:
        client.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx")
    with connect(port) as client:
        assert echo(client, b"beside them") == b"beside them"
    for client in slow:
        client.sendall(b"x")
        answer = read_all(client)
        assert answer.startswith(b"HTTP/1.1 408"), answer
        client.close()


def test_a_large_body_that_stalls_ends_with_408(serve: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "DEADLINE_SECONDS", 0.5)
    with connect(serve()) as client:
        client.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\nx")
        assert read_all(client).startswith(b"HTTP/1.1 500")
        # The app here has no handler for it; Flask turns the same error into 408.


def test_one_address_leaves_threads_for_the_others(serve: Callable[..., int]) -> None:
    """Four threads: one address asks for twenty slow pages and gets three of them at a time."""
    port = serve(threads=4)
    greedy = [connect(port) for _ in range(20)]
    for client in greedy:
        client.sendall(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
    time.sleep(0.3)
    with connect(port, "127.0.0.2") as client:
        client.settimeout(5)
        assert ask(client, "GET", "/").startswith(b"HTTP/1.1 200")
    go_on.set()
    for client in greedy:
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        client.close()


def test_probes_answer_while_every_thread_hangs_and_the_rest_gets_503(
    app: SomeApp, serve: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the database hangs: what waits is answered with 503, and health is answered at once."""
    monkeypatch.setattr(bridge, "PATIENCE_SECONDS", 1.0)
    app.watch.hangs = True
    port = serve(threads=2)
    stuck = [connect(port, f"127.0.0.{2 + number}") for number in range(4)]
    for client in stuck:
        client.sendall(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
    began = time.monotonic()
    with connect(port) as client:
        assert ask(client, "GET", "/healthz").startswith(b"HTTP/1.1 200")
    assert time.monotonic() - began < 1
    first = [client.recv(65536) for client in stuck[:2]]
    assert all(answer.startswith(b"HTTP/1.1 503") and b"retry-after" in answer for answer in first)
    go_on.set()
    for client in stuck:
        client.close()


def test_a_slow_request_is_not_cut_off_while_the_database_answers(
    serve: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge, "PATIENCE_SECONDS", 0.0)
    with connect(serve()) as client:
        client.sendall(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(0.5)
        go_on.set()
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_idle_connections_and_half_sent_heads_hold_nobody_up(serve: Callable[..., int]) -> None:
    """More of each than threads or the old limit of connections; the full figure is in bench/connections.py."""
    port = serve(threads=2)
    idle = [connect(port) for _ in range(600)]
    for client in idle[300:]:
        client.sendall(b"GET / HT")
    for _ in range(5):
        with connect(port) as client:
            client.settimeout(5)
            assert ask(client, "GET", "/").startswith(b"HTTP/1.1 200")
    for client in idle:
        client.close()


def test_what_was_accepted_is_answered_before_the_server_stops(app: SomeApp) -> None:
    settings = Settings(port=free_port(), threads=2)
    up, stopping = threading.Event(), threading.Event()
    finished: list[bool] = []

    async def run() -> None:
        server = HttpServer(app, settings)  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        threading.Thread(target=lambda: (stopping.wait(), loop.call_soon_threadsafe(server.stop)), daemon=True).start()
        finished.append(await server.serve(up.set))

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert up.wait(30)
    with connect(settings.port) as client:
        client.sendall(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(0.2)
        stopping.set()
        time.sleep(0.3)
        go_on.set()
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
    thread.join(30)
    go_on.clear()
    assert finished == [True]
