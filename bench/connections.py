"""How a server answers while thousands of clients are idle or slow, and how long it lets them be slow.

For each kind of client: how many connected, the slowest answer of `/healthz` and of a page meanwhile, and how many of
the slow ones the server had sent away when their time was up.
"""

from __future__ import annotations

import http.client
import resource
import socket
import time
from typing import Any

from bench.places import Serving, folder, serving

IDLE = 5000
SLOW = 1500
SECONDS = 14.0
HEALTH_SECONDS_AT_MOST = 1.0
BODY = (
    b"POST /api/feedback HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n"
)


def measure() -> dict[str, Any]:
    wanted = 2 * IDLE + 1000
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    with folder() as place, serving(place / "data") as one:
        return {
            "health_seconds_at_most": HEALTH_SECONDS_AT_MOST,
            "idle": with_clients(one, IDLE, b""),
            "slow_heads": with_clients(one, SLOW, b"GET / HT"),
            "slow_bodies": with_clients(one, SLOW, BODY),
        }


def with_clients(one: Serving, many: int, start: bytes) -> dict[str, Any]:
    """Each sends the start of a request and then a byte every two seconds."""
    clients = [connect(one.port, number) for number in range(many)]
    for client in clients:
        client.sendall(start)
    slowest = {"/healthz": 0.0, "/sign-in": 0.0}
    until, pushed = time.monotonic() + SECONDS, time.monotonic()
    while time.monotonic() < until:
        for path in slowest:
            slowest[path] = max(slowest[path], ask(one.port, path))
        if start and time.monotonic() - pushed > 2:
            pushed = time.monotonic()
            push(clients)
        time.sleep(0.05)
    sent_away = sum(map(is_sent_away, clients))
    for client in clients:
        client.close()
    return {
        "connected": many,
        "sent_away": sent_away,
        "slowest_seconds": {path: round(took, 3) for path, took in slowest.items()},
    }


def connect(port: int, number: int) -> socket.socket:
    """From forty addresses of this machine, as from forty clients."""
    return socket.create_connection(("127.0.0.1", port), 10, (f"127.0.0.{2 + number % 40}", 0))


def ask(port: int, path: str) -> float:
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200, (path, answer.status)
    return time.monotonic() - began


def push(clients: list[socket.socket]) -> None:
    for client in clients:
        try:
            client.send(b"x")
        except OSError:
            continue


def is_sent_away(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(4096)[9:12] in (b"", b"408")
    except BlockingIOError:
        return False
    except OSError:
        return True
