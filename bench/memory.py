"""How much memory reading a session at its budget takes, above what the server takes when idle."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

from bench.places import Serving, folder, serving

BUDGET = 64_000_000
AT_MOST_MIB = 100
MIB = 1024 * 1024
WORDS = "The term sheet of Project Heron names 118 million at 7.5 times, closing in March; Ängström asks why. "
# Sessions of the same size and of very different shapes.
SHAPES = ("results", "arguments", "small", "dense", "emoji")


class Memory:
    """The memory of the server process and its children, and its peak since it was last asked."""

    def __init__(self, pid: int) -> None:
        own = psutil.Process(pid)
        self.pids = [own.pid, *(child.pid for child in own.children(recursive=True) if "postgres" not in child.name())]

    def reset(self) -> None:
        for pid in self.pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def _read(self, field: str) -> float:
        total = 0
        for pid in self.pids:
            status = Path(f"/proc/{pid}/status").read_text()
            found = re.search(rf"{field}:\s+(\d+) kB", status)
            total += int(found[1]) if found else 0
        return total / 1024

    def now(self) -> float:
        return self._read("VmRSS")

    def peak(self) -> float:
        return self._read("VmHWM")


def events_of(shape: str) -> Iterator[dict[str, Any]]:
    """Events of about the whole budget: a question, work, and an answer."""
    yield {"event_type": "user.message", "payload": {"text": "What does Project Heron cost?"}}
    make: Callable[[int], list[dict[str, Any]]] = {
        "results": lambda n: call(n, {"q": f"heron {n}"}, {"id": f"r-{n}", "text": WORDS * 1100}),
        "arguments": lambda n: call(n, {"id": f"d-{n}", "body": f"{n} " + WORDS * 1100}, "ok"),
        "small": lambda n: call(n, {"q": f"heron {n}", "why": WORDS * 14}, {"text": WORDS * 14}),
        "dense": lambda n: call(n, {"q": n}, {"cells": [[] for _ in range(28_000)]}),
        "emoji": lambda n: call(n, {"q": n}, "\U0001f4c8" + WORDS * 1100),
    }[shape]
    size, number = 0, 0
    while size < BUDGET - 900_000:
        for event in make(number):
            # As the database writes it: with a space behind each colon and comma.
            size += len(json.dumps(event["payload"], ensure_ascii=False).encode()) + 64
            yield event
        number += 1
    yield {"event_type": "agent.message", "payload": {"text": "Project Heron costs 118 million."}}


def call(number: int, arguments: dict[str, Any], output: Any) -> list[dict[str, Any]]:
    name = f"c-{number}"
    return [
        {"event_type": "tool.call", "payload": {"id": name, "name": "save_note", "arguments": arguments}},
        {"event_type": "tool.result", "payload": {"call_id": name, "name": "save_note", "output": output}},
    ]


def batches(events: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """As many events as one request takes."""
    batch: list[dict[str, Any]] = []
    size = 0
    for event in events:
        length = len(json.dumps(event, ensure_ascii=False).encode()) + 2
        if batch and (size + length > 1_000_000 or len(batch) == 1000):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += length
    yield batch


def store(api: httpx.Client, shape: str) -> tuple[str, int]:
    """A completed session at the budget; its id and its size."""
    made = api.post("/api/v1/sessions", json={"agent": "deal-analyst", "title": f"Heron, {shape}", "status": "running"})
    made.raise_for_status()
    url = f"/api/v1/sessions/{made.json()['id']}"
    size = 0
    for batch in batches(events_of(shape)):
        body = json.dumps({"events": batch}, ensure_ascii=False).encode()
        added = api.post(f"{url}/events", content=body, headers=JSON)
        assert added.status_code == 201, added.text
        size = added.json()["event_bytes"]
    api.patch(url, json={"status": "completed"}).raise_for_status()
    return made.json()["id"], size


JSON = {"Content-Type": "application/json"}


def sign_in(one: Serving) -> httpx.Client:
    link = urlsplit(json.loads(one.run("signin-link", "--email", "b@example.test", "--json"))["url"]).path
    browser = httpx.Client(base_url=one.url, follow_redirects=True, timeout=300)
    token = re.search(r'name="csrf_token" value="([^"]+)"', browser.get(link).text)
    assert token is not None
    browser.post(link, data={"csrf_token": token[1]}).raise_for_status()
    return browser


def fetch(client: httpx.Client, path: str) -> httpx.Response:
    response = client.get(path)
    assert response.status_code == 200, f"{path}: {response.status_code} {response.text[:300]}"
    return response


def read_all_pages(api: httpx.Client, session: str) -> None:
    cursor = None
    while True:
        path = f"/api/v1/sessions/{session}/events" + (f"?cursor={cursor}" if cursor else "")
        response = fetch(api, path)
        assert len(response.content) < 5_000_000
        cursor = response.json()["next_cursor"]
        if cursor is None:
            return


def promote(browser: httpx.Client, session: str) -> None:
    page = fetch(browser, f"/admin/agent-review/evals/promote/{session}")
    token = re.search(r'name="csrf_token" value="([^"]+)"', page.text)
    assert token is not None
    form = {"csrf_token": token[1], "set": "memory"}
    answer = browser.post(f"/admin/agent-review/evals/promote/{session}", data=form)
    assert answer.status_code < 400, answer.text[:300]


def at_once(work: Callable[[], object], times: int = 3) -> None:
    readers = [threading.Thread(target=work) for _ in range(times)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()


def measure_shape(one: Serving, api: httpx.Client, browser: httpx.Client, shape: str) -> dict[str, float]:
    first, size = store(api, shape)
    second, _ = store(api, shape)
    review = "/admin/agent-review"
    compared = {"goldenSessionId": first, "replaySessionId": second}
    works: dict[str, Callable[[], object]] = {
        "api_detail": lambda: fetch(api, f"/api/v1/sessions/{first}"),
        "api_pages": lambda: read_all_pages(api, first),
        "session_page": lambda: fetch(browser, f"{review}/sessions/{first}"),
        "promote_form": lambda: fetch(browser, f"{review}/evals/promote/{first}"),
        "promote": lambda: promote(browser, first),
        "diff_page": lambda: fetch(browser, f"{review}/evals/diff/{first}/{second}"),
        "compare_api": lambda: api.post("/api/admin/evals/compare", json=compared).raise_for_status(),
        "three_api_readers": lambda: at_once(lambda: read_all_pages(api, first)),
        "three_diff_readers": lambda: at_once(lambda: fetch(browser, f"{review}/evals/diff/{first}/{second}")),
    }
    time.sleep(2)
    found: dict[str, float] = {"session_bytes": size}
    for name, work in works.items():
        memory = Memory(one.process.pid)
        before = memory.now()
        memory.reset()
        began = time.monotonic()
        work()
        found[name] = round(memory.peak() - IDLE[0], 1)
        found[f"{name}_seconds"] = round(time.monotonic() - began, 2)
        print(f"{shape} {name}: {found[name]} MiB, of itself {memory.peak() - before:.1f}", file=sys.stderr, flush=True)
    return found


IDLE = [0.0]


def measure() -> dict[str, Any]:
    with folder() as place, serving(place / "data", "--processes", "1") as one:
        one.run("tenant", "create", "--slug", "bench", "--name", "Bench")
        one.run("user", "create", "--email", "b@example.test", "--tenant", "bench", "--role", "owner")
        made = one.run("key", "create", "--tenant", "bench", "--user", "b@example.test", "--scope", "admin", "--json")
        key = json.loads(made)["key"]
        with (
            httpx.Client(base_url=one.url, headers={"Authorization": f"Bearer {key}"}, timeout=300) as api,
            closing(sign_in(one)) as browser,
        ):
            for path in ("/api/v1/sessions", "/api/feedback"):
                fetch(api, path)
            for path in ("/admin/agent-review/sessions", "/admin/agent-review/evals"):
                fetch(browser, path)
            time.sleep(5)
            IDLE[0] = Memory(one.process.pid).now()
            shapes = {shape: measure_shape(one, api, browser, shape) for shape in SHAPES}
    names = [name for name in shapes[SHAPES[0]] if not name.endswith(("_seconds", "_bytes"))]
    return {
        "idle_mib": round(IDLE[0]),
        "most_above_idle_mib": {name: max(found[name] for found in shapes.values()) for name in names},
        "above_idle_at_most_mib": AT_MOST_MIB,
        "shapes": shapes,
    }
