"""How many acknowledged feedback rows a second one server takes: 1 client, then 16.

Clients are processes of their own that speak plain HTTP over one kept connection each, so that what is measured is the
server and its database and not the client.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import time
from http.client import HTTPConnection
from typing import Any

from bench.places import folder, serving

SECONDS = 8.0
CLIENTS = 16
# Processes share the machine with the server; a few of them carry the connections of all clients.
PROCESSES = 2
PLAIN = ("/api/feedback", {"source_type": "observation", "rating": "negative", "comment": "Used last year's EBITDA."})
SIGNAL = ("/api/v1/feedback", {"signal": "not_helpful", "reason": "Used last year's EBITDA."})


class Client:
    """One kept connection; `send` and `receive` are apart so that one process can have several under way."""

    def __init__(self, port: int, key: str, name: str, path: str, body: dict[str, Any]) -> None:
        self.connection = HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self.name, self.path, self.body, self.sent = name, path, body, 0

    def send(self) -> None:
        self.sent += 1
        about = {"message_id": f"{self.name}-{self.sent}"} if "signal" in self.body else {}
        self.began = time.perf_counter()
        self.connection.request("POST", self.path, json.dumps({**self.body, **about}), self.headers)

    def receive(self) -> float:
        answer = self.connection.getresponse()
        said = answer.read()
        assert answer.status == 201, said
        return time.perf_counter() - self.began


def run_clients(port: int, key: str, what: tuple[str, dict[str, Any]], name: str, many: int, seconds: float) -> Any:
    """Send from so many connections in turn until the time is over; what each answer took."""
    from selectors import EVENT_READ, DefaultSelector

    clients = [Client(port, key, f"{name}-{number}", *what) for number in range(many)]
    selector = DefaultSelector()
    for client in clients:
        client.send()
        selector.register(client.connection.sock, EVENT_READ, client)
    spent: list[float] = []
    until = time.perf_counter() + seconds
    under_way = many
    while under_way:
        for found, _ in selector.select(60):
            spent.append(found.data.receive())
            if time.perf_counter() < until:
                found.data.send()
            else:
                under_way -= 1
                selector.unregister(found.fileobj)
    return spent


def load(port: int, key: str, what: tuple[str, dict[str, Any]], clients: int, seconds: float = SECONDS) -> Any:
    processes = min(PROCESSES, clients)
    name = f"{what[0]}-{clients}-{seconds}"
    work = [(port, key, what, f"{name}-{number}", clients // processes, seconds) for number in range(processes)]
    with multiprocessing.Pool(processes) as pool:
        spent = [one for part in pool.starmap(run_clients, work) for one in part]
    return {"per_second": round(len(spent) / seconds), "p50_ms": round(statistics.median(spent) * 1000, 1)}


def measure() -> dict[str, Any]:
    with folder() as place, serving(place / "data") as one:
        one.run("tenant", "create", "--slug", "bench", "--name", "Bench")
        one.run("user", "create", "--email", "b@example.test", "--tenant", "bench", "--role", "owner")
        made = one.run(
            "key", "create", "--tenant", "bench", "--user", "b@example.test", "--scope", "feedback", "--json"
        )
        key = json.loads(made)["key"]
        found = {}
        for name, what in (("signals", SIGNAL), ("plain", PLAIN)):
            load(one.port, key, what, CLIENTS, 1.0)
            found[name] = {
                "one_client": load(one.port, key, what, 1),
                "sixteen_clients": load(one.port, key, what, CLIENTS),
            }
        return found
