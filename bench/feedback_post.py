"""How many acknowledged feedback rows a second one server takes, from 1 client and from 16, and what each row costs.

All clients are kept connections of one process that sends ready-made bytes over plain sockets: the machine's cores are
the server's and its database's. A row counts when its 201 has arrived, which is after the commit.

With `UPSHOT_BENCH_PEER`, a file with `{"port": …, "path": …, "body": {…}}`, the same clients send that body to another
server on this machine, by turns with ours, and each round gives the ratio of the two.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import time
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any

import psutil

from bench.places import Serving, folder, serving

SECONDS = 5.0
RUNS = 3
CLIENTS = 16
AT_LEAST = 651
P50_AT_MOST = 4.0
PLAIN = ("/api/feedback", {"source_type": "observation", "rating": "negative", "comment": "Used last year's EBITDA."})
PEER_ROUNDS = 5
SIGNAL = ("/api/v1/feedback", {"signal": "not_helpful", "reason": "Used last year's EBITDA."})
KINDS = {"signals": SIGNAL, "plain": PLAIN}


class Client:
    """One kept connection. Messages have names of one length, so that only the name differs from request to request."""

    def __init__(self, port: int, key: str, name: str, path: str, body: dict[str, Any]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        about = {"message_id": f"{name}-%08d"} if "signal" in body else {}
        text = json.dumps({**body, **about})
        lines = [
            f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {key}",
            "Content-Type: application/json", f"Content-Length: {len(text % 1) if about else len(text)}",
        ]  # fmt: skip
        self.request = "\r\n".join([*lines, "", text])
        self.numbered = bool(about)
        self.sent = 0

    def send(self) -> None:
        self.sent += 1
        request = self.request % self.sent if self.numbered else self.request
        self.began = time.perf_counter()
        self.socket.sendall(request.encode())

    def receive(self) -> float:
        """How long the answer took. It is short, so it comes in one piece, or its rest does at once."""
        answer = self.socket.recv(65536)
        assert answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 201 ")), answer
        head, _, body = answer.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += self.socket.recv(65536)
        return time.perf_counter() - self.began


def send_from(clients: list[Client], seconds: float) -> list[float]:
    """Every client sends, waits, and sends again until the time is over; what each answer took."""
    selector = DefaultSelector()
    for client in clients:
        client.send()
        selector.register(client.socket, EVENT_READ, client)
    spent: list[float] = []
    until = time.perf_counter() + seconds
    under_way = len(clients)
    while under_way:
        for found, _ in selector.select(60):
            spent.append(found.data.receive())
            if time.perf_counter() < until:
                found.data.send()
            else:
                under_way -= 1
                selector.unregister(found.fileobj)
                found.data.socket.close()
    return spent


def load(one: Serving, key: str, what: tuple[str, dict[str, Any]], many: int, seconds: float = SECONDS) -> Any:
    name = f"m{time.monotonic_ns()}"
    clients = [Client(one.port, key, f"{name}-{number}", *what) for number in range(many)]
    began, cpu = time.perf_counter(), cpu_seconds(one.process.pid)
    spent = send_from(clients, seconds)
    took = time.perf_counter() - began
    return {
        "per_second": round(len(spent) / took),
        "p50_ms": round(statistics.median(spent) * 1000, 1),
        "cpu_ms_each": {
            kind: round((now - cpu.get(kind, 0)) * 1000 / len(spent), 2)
            for kind, now in cpu_seconds(one.process.pid).items()
        },
    }


def cpu_seconds(server: int) -> dict[str, float]:
    """What the server's processes and the database's have used up so far."""
    found = {"python": 0.0, "postgres": 0.0}
    own = psutil.Process(server)
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):
            spent = process.cpu_times()
            found["postgres" if process.name() == "postgres" else "python"] += spent.user + spent.system
    return found


def against_peer(one: Serving, key: str, peer: dict[str, Any]) -> dict[str, Any]:
    """How many rows we take while the other server takes one: the middle of several rounds, for each kind of ours."""
    rounds = []
    for _ in range(PEER_ROUNDS):
        clients = [Client(peer["port"], "none", "", peer["path"], peer["body"]) for _ in range(CLIENTS)]
        theirs = len(send_from(clients, SECONDS)) / SECONDS
        ours = {name: load(one, key, what, CLIENTS)["per_second"] for name, what in KINDS.items()}
        rounds.append({"peer": theirs, **{name: rate / theirs for name, rate in ours.items()}})
    return {name: round(statistics.median(each[name] for each in rounds), 1) for name in rounds[0]}


def best(runs: list[Any]) -> Any:
    """The run that was disturbed least."""
    return max(runs, key=lambda run: run["per_second"])


def measure() -> dict[str, Any]:
    with folder() as place, serving(place / "data") as one:
        one.run("tenant", "create", "--slug", "bench", "--name", "Bench")
        one.run("user", "create", "--email", "b@example.test", "--tenant", "bench", "--role", "owner")
        made = one.run(
            "key", "create", "--tenant", "bench", "--user", "b@example.test", "--scope", "feedback", "--json"
        )
        key = json.loads(made)["key"]
        found: dict[str, Any] = {"per_second_at_least": AT_LEAST, "p50_ms_at_most": P50_AT_MOST}
        for name, what in KINDS.items():
            load(one, key, what, CLIENTS, 1.0)
            found[name] = {
                "one_client": best([load(one, key, what, 1, SECONDS / 2) for _ in range(RUNS)]),
                "sixteen_clients": best([load(one, key, what, CLIENTS) for _ in range(RUNS)]),
            }
        peer = os.environ.get("UPSHOT_BENCH_PEER")
        if peer:
            found["times_the_peer"] = against_peer(one, key, json.loads(Path(peer).read_text()))
        return found
