"""Events a second over the API in batches of 100, and a bare batched INSERT into the same table under the same role."""

from __future__ import annotations

import json
import time
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
from psycopg.types.json import Jsonb

from bench.places import folder, serving

SECONDS = 6.0
BATCH = 100
BARE = (
    "INSERT INTO session_events (id, tenant_id, session_id, sequence, event_type, payload)"
    " VALUES (%s, %s, %s, %s, %s, %s)"
)


def event(number: int) -> dict[str, Any]:
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("user.message", {"text": f"Compare the EBITDA of Kestrel and Bluefin, question {number}."}),
        ("tool.call", {"id": f"call-{number}", "name": "read_deal", "arguments": {"deal": "kestrel", "year": 2024}}),
        ("tool.result", {"call_id": f"call-{number}", "name": "read_deal", "output": '{"ebitda": 18.4, "unit": "m"}'}),
        ("agent.message", {"text": "Kestrel has 18.4 m and Bluefin 22.1 m; Bluefin grew faster in each quarter."}),
    ]
    kind, payload = kinds[number % len(kinds)]
    return {"event_type": kind, "payload": payload}


def over_the_api(client: httpx.Client) -> float:
    """Events a second of one client that waits for each answer; a new session every 20 batches."""
    body = {"events": [event(number) for number in range(BATCH)]}
    stored, began, session = 0, time.perf_counter(), ""
    while time.perf_counter() - began < SECONDS:
        if stored % (20 * BATCH) == 0:
            session = client.post("/api/v1/sessions", json={"agent": "bench"}).json()["id"]
        answer = client.post(f"/api/v1/sessions/{session}/events", json=body)
        assert answer.status_code == 201, answer.text
        stored += BATCH
    return stored / (time.perf_counter() - began)


def bare(url: str, tenant: UUID, session: UUID) -> float:
    """The same events through psycopg's own batches, committed each time."""
    events = [event(number) for number in range(BATCH)]
    stored = 0
    with psycopg.connect(url) as connection:
        began = time.perf_counter()
        while time.perf_counter() - began < SECONDS:
            connection.execute("select set_config('app.tenant_id', %s, true)", (str(tenant),))
            rows = [
                (uuid4(), tenant, session, 1_000_000 + stored + place, one["event_type"], Jsonb(one["payload"]))
                for place, one in enumerate(events)
            ]
            with connection.cursor() as cursor:
                cursor.executemany(BARE, rows)
            connection.commit()
            stored += BATCH
        return stored / (time.perf_counter() - began)


def measure() -> dict[str, Any]:
    with folder() as place, serving(place / "data") as one:
        tenant = json.loads(one.run("tenant", "create", "--slug", "bench", "--name", "Bench", "--json"))["id"]
        one.run("user", "create", "--email", "b@example.test", "--tenant", "bench", "--role", "owner")
        made = one.run("key", "create", "--tenant", "bench", "--user", "b@example.test", "--scope", "ingest", "--json")
        headers = {"Authorization": f"Bearer {json.loads(made)['key']}"}
        url = json.loads(one.run("db", "url", "--role", "app", "--json"))["url"]
        with httpx.Client(base_url=one.url, headers=headers, timeout=60) as client:
            over_the_api(client)
            session = client.post("/api/v1/sessions", json={"agent": "bench"}).json()["id"]
            plain = bare(url, UUID(tenant), UUID(session))
            served = over_the_api(client)
    return {
        "events_per_second": round(served),
        "at_least": 3000,
        "bare_per_second": round(plain),
        "share_of_bare": round(served / plain, 3),
        "share_at_least": 0.1,
    }
