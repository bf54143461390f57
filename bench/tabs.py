"""First page and filtered pages of Conversations, Sessions and Feedback, small and large: pages must not slow down with
the tables. Small is 10,000 rows of each; large 1,000,000 feedback rows, 200,000 sessions and 2,000,000 events.

Each is a database of its own, and the same page is asked for in turn of the one and of the other: whatever else the
machine does meanwhile slows both."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.places import as_superuser, database, folder

BASE = "/admin/agent-review"
RUNS, WARMING = 25, 4
RATIO_AT_MOST = 1.5
QUERIES_AT_MOST = 8
# Chats, sessions, events of each session, feedback rows.
SMALL, LARGE = (10_000, 10_000, 1, 10_000), (100_000, 200_000, 10, 1_000_000)
PATHS = (
    "conversations",
    "conversations?agent=agent-3",
    "conversations?rating=negative",
    "conversations?q=multiple",
    "sessions",
    "sessions?status=failed&agent=agent-3",
    "sessions?model=model-2&environment=staging",
    "sessions?tag=rare&longer=2",
    "sessions?rating=negative",
    "sessions?q=valuation",
    "feedback",
    "feedback?status=pending&rating=negative",
    "feedback?agent=agent-3",
    "feedback?q=ebitda",
)

AGENTS = """
insert into agents (tenant_id, slug, name, kind)
select t.id, 'agent-' || n, 'Agent ' || n, 'external' from tenants t, generate_series(1, 20) n where t.slug = 'bench'
"""
CHATS = """
insert into chats (tenant_id, title, user_id, agent_id, project, message_count, last_message_at, created_at)
select t.id, 'Compare deal ' || n || ' with deal ' || n + 7, u.id, a.id,
       'project-' || n %% 5, 2, now() - n * interval '40 seconds', now() - n * interval '41 seconds'
from tenants t, users u, generate_series(1, %(last)s) n
join lateral (select 'agent-' || 1 + n %% 20 as slug) s on true
join agents a on a.slug = s.slug
where t.slug = 'bench' and u.email = 'b@example.test' and a.tenant_id = t.id
"""
MESSAGES = """
insert into messages (tenant_id, chat_id, message_index, turn_id, role, content, created_at)
select c.tenant_id, c.id, n, 't', case n when 0 then 'user' else 'agent' end,
       'What was said of ' || c.title || case when hashtext(c.id::text) %% 100 = 0 then ' by a multiple' else '' end,
       c.last_message_at
from chats c, generate_series(0, 1) n
where not exists (select from messages m where m.tenant_id = c.tenant_id and m.chat_id = c.id)
"""
SESSIONS = """
insert into sessions (tenant_id, title, session_type, status, error, agent_id, created_by, chat_id, model, input_tokens,
                      output_tokens, cost, duration_ms, environment, tags, created_at, event_count)
select t.id, 'Compare deal ' || n || case when n %% 100 = 0 then ' by valuation' else '' end,
       (array['chat', 'agent', 'response'])[1 + n %% 3], case when n %% 10 = 0 then 'failed' else 'completed' end,
       case when n %% 10 = 0 then 'searchDeals timed out' end, a.id, u.id, null, 'model-' || n %% 4, n %% 9000,
       n %% 700, 0.004, n %% 60000, (array['production', 'staging', 'test'])[1 + n %% 3],
       case when n %% 50 = 0 then array['rare', 'ic-pack'] else array['ic-pack'] end,
       now() - n * interval '20 seconds', %(events)s
from tenants t, users u, generate_series(1, %(last)s) n
join lateral (select 'agent-' || 1 + n %% 20 as slug) s on true
join agents a on a.slug = s.slug
where t.slug = 'bench' and u.email = 'b@example.test' and a.tenant_id = t.id
"""
EVENTS = """
insert into session_events (tenant_id, session_id, sequence, event_type, payload, occurred_at)
select s.tenant_id, s.id, n, case n %% 2 when 1 then 'user.message' else 'agent.message' end,
       jsonb_build_object('text', 'Something was said about ' || s.title), s.created_at + n * interval '1 second'
from sessions s, generate_series(1, %(events)s) n
where s.event_count = %(events)s
  and not exists (select from session_events e where e.tenant_id = s.tenant_id and e.session_id = s.id)
"""
FEEDBACK = """
with c as (select row_number() over (order by last_message_at desc) - 1 as place, id::text as id from chats),
     s as (select row_number() over (order by created_at desc) - 1 as place, id, agent_id from sessions)
insert into feedback (tenant_id, source_type, rating, comment, session_id, agent_id, chat_id, created_by, created_at,
                      occurred_at)
select t.id, 'chat', (array['negative', 'positive', 'neutral'])[1 + n %% 3],
       'the answer ' || (array['was wrong', 'missed a figure', 'took too long', 'named another deal'])[1 + n %% 4]
       || ' in case ' || n || case when n %% 100 = 0 then ' about ebitda' else '' end,
       s.id, s.agent_id, c.id, u.id, now() - n * interval '4 seconds', now() - n * interval '4 seconds'
from tenants t, users u, generate_series(1, %(last)s) n
join c on c.place = n %% (select count(*) from chats)
join s on s.place = n %% (select count(*) from sessions)
where t.slug = 'bench' and u.email = 'b@example.test'
"""


def fill(admin: Any, wanted: tuple[int, ...]) -> None:
    """Make the rows. Triggers that look at each new event are left out: they slow filling, not reading."""
    admin.execute("set session_replication_role = replica")
    admin.execute(AGENTS)
    for statement, place in ((CHATS, 0), (MESSAGES, 0), (SESSIONS, 1), (EVENTS, 2), (FEEDBACK, 3)):
        admin.execute(statement, {"last": wanted[place], "events": wanted[2]})
    admin.execute("set session_replication_role = origin")
    admin.execute("vacuum analyze")


@contextmanager
def browsing(
    place: Path, wanted: tuple[int, ...], fill: Callable[[Any, Any], None] = fill
) -> Iterator[tuple[Any, Any]]:
    """An app with so many rows, and the browser of an admin."""
    from app import create_app
    from app.config import Settings
    from app.db import db
    from app.db.boot import Opened

    place.mkdir()
    with database(place) as (app_url, owner_url, superuser):
        app = create_app(Settings(data_dir_text=str(place)), Opened(app_url, "x" * 40, owner_url))
        client = signed_in(app)
        with as_superuser(superuser) as admin:
            fill(admin, wanted)
        yield app, client
        with app.app_context():
            db.engine.dispose()


def measure() -> dict[str, Any]:
    with folder() as place, browsing(place / "small", SMALL) as small, browsing(place / "large", LARGE) as large:
        pages = {path: in_turn(small, large, path) for path in PATHS}
    return {"small": SMALL, "large": LARGE, "pages": pages}


def in_turn(small: tuple[Any, Any], large: tuple[Any, Any], path: str) -> dict[str, float]:
    """How long a page takes in the one and in the other, asked for alternately."""
    seen = max(queries(*small, path), queries(*large, path))
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(WARMING + RUNS):
        for spent, (_, client) in zip(times, (small, large), strict=True):
            began = time.perf_counter()
            ok(client, path)
            if turn >= WARMING:
                spent.append((time.perf_counter() - began) * 1000)
    return compared(statistics.median(times[0]), statistics.median(times[1]), seen)


def compared(small: float, large: float, seen: int) -> dict[str, float]:
    return {
        "small_ms": round(small, 1),
        "large_ms": round(large, 1),
        "ratio": round(large / small, 2),
        "ratio_at_most": RATIO_AT_MOST,
        "queries": seen,
        "queries_at_most": QUERIES_AT_MOST,
    }


def signed_in(app: Any) -> Any:
    """A browser of an admin in a workspace of its own."""
    from app.actor import Actor
    from app.db import acting_as, transaction
    from app.services.workspaces import logins, people
    from app.services.workspaces import store as workspace_store

    with app.app_context():
        with transaction():
            tenant, system = workspace_store.create_workspace(slug="bench", name="Bench")
        with acting_as(system), transaction():
            user = people.create_person(email="b@example.test", name="B", role="admin", actor=system)
            token = logins.begin_login(actor=Actor(user.id, tenant.id, "admin", user.name), user_agent="bench")
    client = app.test_client()
    client.set_cookie("upshot", token, domain="localhost")
    return client


def queries(app: Any, client: Any, path: str) -> int:
    """How many statements a page takes besides sign-in and binding."""
    from sqlalchemy import event

    from app.db import db, direct

    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if not re.search(r"bind_credential|set_config\('app\.tenant_id'", statement):
            seen.append(statement)

    def execute(connection: Any, statement: str, *rest: Any, **more: Any) -> Any:
        note(connection, None, statement)
        return really(connection, statement, *rest, **more)

    with app.app_context():
        engine = db.engine
    really = direct.execute
    event.listen(engine, "before_cursor_execute", note)
    direct.execute = execute
    try:
        ok(client, path)
    finally:
        direct.execute = really
        event.remove(engine, "before_cursor_execute", note)
    return len(seen)


def ok(client: Any, path: str) -> None:
    answer = client.get(f"{BASE}/{path}")
    assert answer.status_code == 200, answer.get_data(as_text=True)[:500]
