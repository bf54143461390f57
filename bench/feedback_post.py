"""How many acknowledged feedback rows a second one server takes: 1 client, then 16."""

from __future__ import annotations

import json
import statistics
import threading
import time
from typing import Any

import httpx

from bench.places import folder, serving

SECONDS = 8.0
BODY = {"source_type": "observation", "rating": "negative", "comment": "Used last year's EBITDA again."}


def client(url: str, key: str, until: float, spent: list[float]) -> None:
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30) as session:
        while time.perf_counter() < until:
            began = time.perf_counter()
            answer = session.post("/api/feedback", json=BODY)
            assert answer.status_code == 201, answer.text
            spent.append(time.perf_counter() - began)


def load(url: str, key: str, clients: int) -> dict[str, Any]:
    spent: list[float] = []
    until = time.perf_counter() + SECONDS
    threads = [threading.Thread(target=client, args=(url, key, until, spent)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"per_second": round(len(spent) / SECONDS), "p50_ms": round(statistics.median(spent) * 1000, 1)}


def measure() -> dict[str, Any]:
    with folder() as place, serving(place / "data") as one:
        one.run("tenant", "create", "--slug", "bench", "--name", "Bench")
        one.run("user", "create", "--email", "b@example.test", "--tenant", "bench", "--role", "owner")
        made = one.run(
            "key", "create", "--tenant", "bench", "--user", "b@example.test", "--scope", "feedback", "--json"
        )
        key = json.loads(made)["key"]
        return {"one_client": load(one.url, key, 1), "sixteen_clients": load(one.url, key, 16)}
