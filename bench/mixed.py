"""Sixteen clients that read pages, send events and feedback, and ask for context: one server process against two.

Both servers run on one embedded PostgreSQL with the demo, and rounds alternate between them, so that whatever else the
machine does slows both. The clients are a process of their own.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import re
import statistics
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.places import Serving, folder

CLIENTS = 16
SECONDS = 5.0
ROUNDS = 4
REVIEW = "/admin/agent-review"
FEEDBACK = json.dumps({"source_type": "observation", "rating": "negative", "comment": "Used last year's EBITDA."})
EVENTS = json.dumps(
    {"events": [{"event_type": "user.message", "payload": {"text": f"Question {n}"}} for n in range(10)]}
)
Request = tuple[str, str, str, dict[str, str]]


class Client(threading.Thread):
    """One kept connection that sends one request after the other until the time is over."""

    def __init__(self, port: int, requests: list[Request], offset: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.requests = requests
        self.offset = offset
        self.spent: list[float] = []

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        until = time.perf_counter() + SECONDS
        number = self.offset
        while (began := time.perf_counter()) < until:
            method, path, body, headers = self.requests[number % len(self.requests)]
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status < 300, (path, answer.status)
            self.spent.append(time.perf_counter() - began)
            number += 1
        connection.close()


def requests_of(one: Serving, key: str, cookie: str) -> list[Request]:
    """Two pages, a batch of events, a row of feedback and the context of a prompt."""
    api = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    page = {"Cookie": cookie}
    session = json.loads(post(one, "/api/v1/sessions", {"agent": "bench", "title": "Mixed", "status": "running"}, api))
    return [
        ("GET", f"{REVIEW}/feedback", "", page),
        ("POST", "/api/feedback", FEEDBACK, api),
        ("GET", f"{REVIEW}/sessions", "", page),
        ("POST", f"/api/v1/sessions/{session['id']}/events", EVENTS, api),
        ("GET", "/api/v1/context", "", api),
    ]


def post(one: Serving, path: str, body: dict[str, Any], headers: dict[str, str]) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=60)
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    assert answer.status < 300, text
    return text


def sign_in(one: Serving, link: str) -> str:
    """The cookie of the demo's admin."""
    path = urlsplit(link).path
    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=60)
    connection.request("GET", path)
    first = connection.getresponse()
    token = re.search(r'name="csrf_token" value="([^"]+)"', first.read().decode())
    assert token is not None
    cookies = cookies_of(first)
    form = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": "; ".join(cookies)}
    connection.request("POST", path, f"csrf_token={token[1]}", form)
    return "; ".join([*cookies, *cookies_of(connection.getresponse())])


def cookies_of(answer: http.client.HTTPResponse) -> list[str]:
    return [value.partition(";")[0] for value in answer.headers.get_all("Set-Cookie", [])]


def load(port: int, requests: list[Request], results: Any) -> None:
    clients = [Client(port, requests, number) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(SECONDS + 60)
    results.put([took for client in clients for took in client.spent])


def send_together(port: int, requests: list[Request]) -> list[float]:
    """What each answer took while all clients sent these requests, each beginning at another one."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    began = context.Process(target=load, args=(port, requests, results))
    began.start()
    spent: list[float] = results.get(timeout=SECONDS + 120)
    began.join()
    return spent


def one_round(port: int, requests: list[Request]) -> dict[str, float]:
    spent = send_together(port, requests)
    return {
        "per_second": len(spent) / SECONDS,
        "p99_ms": statistics.quantiles(spent, n=100)[98] * 1000,
    }


def measure() -> dict[str, Any]:
    with folder() as place:
        data = Path(place) / "data"
        servers: dict[int, Serving] = {}
        work: dict[int, list[Request]] = {}
        try:
            for count in (1, 2):  # One after the other: the first fills the demo.
                servers[count] = Serving(data, "--demo", "--processes", str(count))
                work[count] = prepared(servers[count])
            rounds: dict[int, list[dict[str, float]]] = {1: [], 2: []}
            for turn in range(ROUNDS + 1):
                for count, one in servers.items():
                    found = one_round(one.port, work[count])
                    if turn:  # The first round warms up.
                        rounds[count].append(found)
        finally:
            for one in servers.values():
                one.stop()
    figures = {
        f"processes_{count}": {
            name: round(statistics.median(each[name] for each in found)) for name in ("per_second", "p99_ms")
        }
        for count, found in rounds.items()
    }
    ratio = statistics.median(
        two["per_second"] / one["per_second"] for one, two in zip(rounds[1], rounds[2], strict=True)
    )
    return {**figures, "two_against_one": round(ratio, 2)}


def prepared(one: Serving) -> list[Request]:
    link = one.link()
    scopes = [part for scope in ("admin", "ingest", "feedback", "context") for part in ("--scope", scope)]
    made = one.run("key", "create", "--tenant", "demo", "--user", "admin@demo.test", *scopes, "--json")
    return requests_of(one, json.loads(made)["key"], sign_in(one, link))
