"""Processor time of a page, of a prompt's knowledge and of a batch of events: the server's and PostgreSQL's apart, and
how long sixteen readers wait.

The workspace is the demo, copied until it has more than a thousand sessions, so that texts, tool calls and feedback are
like real ones. Each request is sent many times, by turns with the others, after some that warm up. What the server uses
while nobody asks is taken off.
"""

from __future__ import annotations

import http.client
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from bench import ingest, mixed
from bench.feedback_post import cpu_seconds
from bench.mixed import REVIEW, Request
from bench.places import Serving, as_superuser, folder

ROUNDS, WARMING, IDLE_SECONDS = 4, 10, 3.0
TAB_AT_MOST, FILTERED_AT_MOST, SESSION_AT_MOST, CONTEXT_AT_MOST, READER_AT_MOST = 20, 25, 15, 2.5, 250
TABS = ("conversations", "sessions", "feedback", "knowledge", "evals")
FILTERED = (
    "conversations?rating=negative",
    "sessions?status=completed&longer=0",
    "sessions?agent=pe-analyst",
    "feedback?status=pending&rating=negative",
    "knowledge?state=active",
)
# How often each row of the demo is copied: about 1,400 sessions, 2,000 feedback rows and 240 knowledge rows.
COPIES = 8
OLD_AND_NEW = """
create temp table copied on commit preserve rows as
select s.id as old, gen_random_uuid() as new, n
from sessions s, generate_series(1, %s) n where s.golden_set is null and s.eval_source is null
"""
# What differs in a copy, by table; all other columns are as they were.
COPIED: dict[str, tuple[str, dict[str, str]]] = {
    "sessions": (
        "join copied m on m.old = t.id",
        {
            "id": "m.new",
            "external_id": "null",
            "trace_id": "null",
            "chat_id": "null",
            "created_at": "t.created_at - m.n * interval '7 days'",
        },
    ),
    "session_events": (
        "join copied m on m.old = t.session_id",
        {"id": "gen_random_uuid()", "session_id": "m.new", "occurred_at": "t.occurred_at - m.n * interval '7 days'"},
    ),
    "feedback": (
        "join generate_series(1, %(copies)s) c (n) on t.kind not in ('session_failure', 'replay_failure')"
        " left join copied m on m.old = t.session_id and m.n = c.n",
        {
            "id": "gen_random_uuid()",
            "session_id": "m.new",
            "message_id": "t.message_id || '-' || c.n",
            "turn_id": "t.turn_id || '-' || c.n",
            "created_at": "t.created_at - c.n * interval '7 days'",
            "occurred_at": "t.occurred_at - c.n * interval '7 days'",
        },
    ),
    "shared_context": (
        "join generate_series(1, %(copies)s) c (n) on true",
        {"id": "gen_random_uuid()", "content": "t.content || ' This holds for fund ' || c.n || '.'"},
    ),
}


def copy_rows(admin: Any, table: str) -> None:
    join, changes = COPIED[table]
    columns = [
        name
        for (name,) in admin.execute(
            "select column_name from information_schema.columns where table_schema = 'public' and table_name = %s"
            " and is_generated = 'NEVER'",
            (table,),
        )
    ]
    values = ", ".join(changes.get(name, f"t.{name}") for name in columns)
    admin.execute(
        f"insert into {table} ({', '.join(columns)}) select {values} from {table} t {join}", {"copies": COPIES}
    )


def fill(admin: Any) -> UUID:
    """Copy the demo; the session whose page is measured, which has the most feedback of those in a chat."""
    [(session,)] = admin.execute(
        "select s.id from sessions s join feedback f on f.session_id = s.id where s.chat_id is not null"
        " group by s.id order by count(*) desc, s.id limit 1"
    ).fetchall()
    admin.execute("set session_replication_role = replica")
    admin.execute(OLD_AND_NEW % COPIES)
    for table in COPIED:
        copy_rows(admin, table)
    admin.execute("set session_replication_role = origin")
    admin.execute("vacuum analyze")
    return UUID(str(session))


@contextmanager
def superuser(data: Path) -> Iterator[Any]:
    from app.db.embedded.shared import Embedded

    embedded = Embedded(data / "postgres").start()
    try:
        with as_superuser(embedded.url("superuser")) as admin:
            yield admin
    finally:
        embedded.release()


def named_requests(one: Serving, session: UUID) -> dict[str, tuple[Request, float | None]]:
    """What is measured: the request, and how many milliseconds it may take of both together."""
    key, cookie = signed_in(one)
    page, api = {"Cookie": cookie}, {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    told = mixed.post(one, "/api/v1/sessions", {"agent": "bench", "title": "Events", "status": "running"}, api)
    events = json.dumps({"events": [ingest.event(number) for number in range(ingest.BATCH)]})
    listed = {path: (TAB_AT_MOST if path in TABS else FILTERED_AT_MOST) for path in (*TABS, *FILTERED)}
    return {
        **{path: (("GET", f"{REVIEW}/{path}", "", page), most) for path, most in listed.items()},
        "session": (("GET", f"{REVIEW}/sessions/{session}", "", page), SESSION_AT_MOST),
        "GET /api/v1/context": (("GET", "/api/v1/context", "", api), CONTEXT_AT_MOST),
        "POST 100 events": (("POST", f"/api/v1/sessions/{json.loads(told)['id']}/events", events, api), None),
    }


def signed_in(one: Serving) -> tuple[str, str]:
    """An API key and the cookie of the demo's admin."""
    scopes = [part for scope in ("admin", "ingest", "feedback", "context") for part in ("--scope", scope)]
    made = one.run("key", "create", "--tenant", "demo", "--user", "admin@demo.test", *scopes, "--json")
    link = json.loads(one.run("signin-link", "--email", "admin@demo.test", "--json"))["url"]
    return json.loads(made)["key"], mixed.sign_in(one, link)


def send(connection: http.client.HTTPConnection, request: Request) -> None:
    method, path, body, headers = request
    connection.request(method, path, body or None, headers)
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status < 300, (path, answer.status, text[:500])


class Meter:
    """What the server has used since it was last asked, without what it uses while idle."""

    def __init__(self, one: Serving) -> None:
        self.pid = one.process.pid
        self.idle = dict.fromkeys(("python", "postgres"), 0.0)
        self.take()
        time.sleep(IDLE_SECONDS)
        self.idle = {kind: spent / IDLE_SECONDS for kind, spent in self.take().items()}

    def take(self) -> dict[str, float]:
        now, used = time.monotonic(), cpu_seconds(self.pid)
        before = getattr(self, "before", (now, used))
        self.before = now, used
        return {kind: used[kind] - before[1][kind] - self.idle[kind] * (now - before[0]) for kind in used}


def processor_times(one: Serving, session: UUID) -> dict[str, dict[str, float]]:
    """Milliseconds of a processor for each request, of the server and of PostgreSQL."""
    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=60)
    requests = named_requests(one, session)
    for request, _ in requests.values():
        for _ in range(WARMING):
            send(connection, request)
    meter = Meter(one)
    spent: dict[str, list[dict[str, float]]] = {name: [] for name in requests}
    for _ in range(ROUNDS):
        for name, (request, _) in requests.items():
            many = 100 if request[1] == "/api/v1/context" else 20
            meter.take()
            for _ in range(many):
                send(connection, request)
            spent[name].append({kind: used * 1000 / many for kind, used in meter.take().items()})
    return {name: summed(rounds, requests[name][1]) for name, rounds in spent.items()}


def summed(rounds: list[dict[str, float]], most: float | None) -> dict[str, float]:
    """The round that was disturbed least."""
    least = min(rounds, key=lambda found: sum(found.values()))
    found = {f"{kind}_ms": round(used, 1) for kind, used in least.items()} | {"ms": round(sum(least.values()), 1)}
    return found | ({"ms_at_most": most} if most else {})


def readers(one: Serving) -> dict[str, float]:
    """How long sixteen people wait who read the five tabs at once, one page after the other."""
    page = {"Cookie": signed_in(one)[1]}
    tabs: list[Request] = [("GET", f"{REVIEW}/{tab}", "", page) for tab in TABS]
    mixed.send_together(one.port, tabs)
    spent = mixed.send_together(one.port, tabs)
    cuts = statistics.quantiles(spent, n=20)
    return {
        "per_second": round(len(spent) / mixed.SECONDS, 1),
        "p50_ms": round(cuts[9] * 1000),
        "p95_ms": round(cuts[18] * 1000),
        "p50_ms_at_most": READER_AT_MOST,
    }


@contextmanager
def demo(data: Path, *arguments: str) -> Iterator[Serving]:
    one = Serving(data, "--demo", *arguments)
    try:
        one.link()
        yield one
    finally:
        one.stop()


def measure() -> dict[str, Any]:
    with folder() as place:
        data = place / "data"
        with demo(data, "--processes", "1") as one:
            with superuser(data) as admin:
                session = fill(admin)
            pages = processor_times(one, session)
        with demo(data) as one:
            return {"pages": pages, "readers": readers(one)}
