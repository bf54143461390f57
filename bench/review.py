"""How long a review without a model takes for 10,000 pending rows, and its peak memory for ten times as many."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

from bench.places import UPSHOT, as_superuser, database, environment, folder, free_port

ROWS = 10_000
AT_MOST_SECONDS = 60.0
AT_MOST_GROWTH = 1.3
AGENTS = ("dispatcher", "estimator", "scheduler", "billing", "support")
PEOPLE = 300
# What people complain about again and again, in words of their own.
THINGS = ("invoice", "delivery date", "crew size", "quote", "address", "warranty", "tax rate", "part number", "mileage",
          "deposit", "time slot", "discount", "site photo", "permit", "overtime")  # fmt: skip
WRONG = (
    "The {thing} should come from the {place}, not from the {other}.",
    "It took the {thing} from the {other}; it has to read the {place}.",
    "Please always check the {place} for the {thing} before answering.",
    "Wrong {thing}: use the {place} instead of the {other}.",
)
PLACES = ("work order", "contract", "price list", "calendar", "customer record", "depot sheet")
WORDS = (
    "blue",
    "north",
    "ladder",
    "Tuesday",
    "pump",
    "gate",
    "invoice",
    "harbour",
    "copper",
    "seven",
    "filter",
    "crane",
)


def measure() -> dict[str, Any]:
    """Seconds and peak memory of `upshot review run`, for each number of rows in a process of its own."""
    found: dict[str, Any] = {}
    sizes = [ROWS, ROWS * 10] if os.environ.get("UPSHOT_BENCH_WHOLE", "1") == "1" else [ROWS]
    with folder() as path, database(path) as (app_url, _, superuser_url):
        for rows in sizes:
            slug = fill(app_url, superuser_url, path, rows)
            found[str(rows)] = review(app_url, path, slug)
    first, last = (found[str(rows)]["peak_mib"] for rows in (sizes[0], sizes[-1]))
    found["growth"] = round(last / first, 2)
    found["within"] = found[str(ROWS)]["seconds"] < AT_MOST_SECONDS and found["growth"] <= AT_MOST_GROWTH
    return found


def review(app_url: str, path: Path, slug: str) -> dict[str, Any]:
    env = environment(path, free_port()) | {"UPSHOT_DATABASE_URL": app_url}
    began = time.monotonic()
    command = [sys.executable, "-c", PEAK, UPSHOT, "review", "run", "--tenant", slug, "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    spent = time.monotonic() - began
    if done.returncode:
        raise RuntimeError(done.stderr)
    report = json.loads(done.stdout)
    peak = re.search(r"peak (\d+) cpu ([\d.]+)", done.stderr)
    assert peak is not None
    counts = {name: len(value) if isinstance(value, list) else value for name, value in report.items()}
    kept = ("considered", "patterns", "proposed", "merged", "dismissed", "left_pending")
    return {
        "seconds": round(spent, 1),
        "cpu_seconds": float(peak[2]),
        "peak_mib": round(int(peak[1]) / 1024),
        **{name: counts[name] for name in kept},
    }


# Runs a command and says how much memory it took at most, and how many seconds of a processor.
PEAK = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print("peak", used.ru_maxrss, "cpu", round(used.ru_utime + used.ru_stime, 1), file=sys.stderr)
sys.exit(code)
"""


def fill(app_url: str, superuser_url: str, path: Path, rows: int) -> str:
    """A workspace with so many complaints, each about a session of its own."""
    env = environment(path, free_port()) | {"UPSHOT_DATABASE_URL": app_url}
    slug = f"bench-{rows}"
    subprocess.run(
        [UPSHOT, "tenant", "create", "--slug", slug, "--name", "Bench"], env=env, check=True, capture_output=True
    )
    with as_superuser(superuser_url) as connection:
        connection.execute("SET session_replication_role = replica")
        tenant: Any = connection.execute("SELECT id FROM tenants WHERE slug = %s", (slug,)).fetchall()[0][0]
        agents, people = make_agents(connection, tenant), make_people(connection, tenant, slug)
        write(connection, tenant, agents, people, rows)
        connection.execute("ANALYZE")
    return slug


def make_agents(connection: psycopg.Connection[Any], tenant: UUID) -> list[UUID]:
    ids = []
    for slug in AGENTS:
        agent = uuid4()
        connection.execute(
            "INSERT INTO agents (id, tenant_id, slug, name, kind) VALUES (%s, %s, %s, %s, 'external')",
            (agent, tenant, slug, slug.title()),
        )
        connection.execute(
            "INSERT INTO agent_versions (tenant_id, agent_id, version) VALUES (%s, %s, 1)", (tenant, agent)
        )
        ids.append(agent)
    return ids


def make_people(connection: psycopg.Connection[Any], tenant: UUID, slug: str) -> list[UUID]:
    ids = [uuid4() for _ in range(PEOPLE)]
    for place, person in enumerate(ids):
        connection.execute(
            "INSERT INTO users (id, email, name) VALUES (%s, %s, %s)",
            (person, f"p{place}@{slug}.test", f"Person {place}"),
        )
        connection.execute(
            "INSERT INTO memberships (tenant_id, user_id, role) VALUES (%s, %s, 'member')", (tenant, person)
        )
    return ids


def write(connection: psycopg.Connection[Any], tenant: UUID, agents: list[UUID], people: list[UUID], rows: int) -> None:
    chance, now = random.Random(rows), datetime.now(UTC)
    made = [
        (uuid4(), chance.choice(agents), chance.choice(people), now - timedelta(minutes=n % 15_000))
        for n in range(rows)
    ]
    with connection.cursor() as cursor:
        with cursor.copy("COPY sessions (id, tenant_id, title, agent_id, created_by, status) FROM STDIN") as copy:
            for session, agent, person, _ in made:
                copy.write_row((session, tenant, "Work", agent, person, "completed"))
        with cursor.copy(
            "COPY session_events (tenant_id, session_id, sequence, event_type, payload) FROM STDIN"
        ) as copy:
            for session, *_ in made:
                for place, (kind, payload) in enumerate(moment(chance), 1):
                    copy.write_row((tenant, session, place, kind, json.dumps(payload)))
        columns = "tenant_id, source_type, rating, comment, session_id, agent_id, created_by, occurred_at, created_at"
        with cursor.copy(f"COPY feedback ({columns}) FROM STDIN") as copy:
            for session, agent, person, at in made:
                copy.write_row((tenant, "session", "negative", complaint(chance), session, agent, person, at, at))


def moment(chance: random.Random) -> list[tuple[str, dict[str, Any]]]:
    thing = chance.choice(THINGS)
    return [
        ("user.message", {"text": f"What is the {thing} for job {chance.randrange(9000)}?"}),
        ("tool.call", {"id": "1", "name": "findJob", "arguments": {"job": chance.randrange(9000), "field": thing}}),
        ("tool.result", {"call_id": "1", "name": "findJob", "output": {thing: chance.randrange(500)}}),
        ("agent.message", {"text": f"The {thing} is {chance.randrange(500)}. " * 4}),
    ]


def complaint(chance: random.Random) -> str:
    """Half of it is one of a few hundred things that are wrong again and again, half is said once."""
    if chance.random() < 0.5:
        place, other = chance.sample(PLACES, 2)
        return chance.choice(WRONG).format(thing=chance.choice(THINGS), place=place, other=other)
    return " ".join(chance.choices(WORDS, k=8)) + f" {chance.randrange(100_000)}"
