"""Loading the knowledge of a prompt, in a small, a large and a huge workspace, against a bare `SELECT 1`.

Everything runs on one connection, as the app's role, in rounds of which each takes its turn: a machine that gets
slower for a moment is slower for all of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from bench.places import as_superuser, database, folder

SIZES = {"small": 1_000, "large": 100_000, "huge": 1_000_000}
ROUNDS = 400
WARMING = 20
# Two rows in five are the workspace's own, the others belong to one of five agents, two entity types, or both.
FILL = """
INSERT INTO shared_context (tenant_id, type, content, context, agent_id, entity_type_id, rank)
SELECT %(tenant)s,
       (ARRAY['correction', 'lesson', 'routing', 'insight', 'guideline'])[1 + n %% 5],
       'Rule ' || n || ': use the figures of the last twelve months when deals of that size are compared.',
       CASE WHEN n %% 2 = 0 THEN 'comparing deals of size ' || n %% 50 END,
       CASE WHEN n / 5 %% 5 IN (2, 4) THEN (SELECT id FROM agents WHERE tenant_id = %(tenant)s
                                            ORDER BY slug OFFSET n / 25 %% 5 LIMIT 1) END,
       CASE WHEN n / 5 %% 5 IN (3, 4) THEN (SELECT id FROM entity_types WHERE tenant_id = %(tenant)s
                                            ORDER BY slug OFFSET n / 25 %% 2 LIMIT 1) END,
       1.0 / (1 + n %% 9973)
  FROM generate_series(1, %(rows)s) AS n
"""


def measure() -> dict[str, Any]:
    from app import create_app
    from app.config import Settings
    from app.db import db
    from app.db.boot import Opened

    with folder() as place, database(place) as (app_url, owner_url, superuser):
        with as_superuser(superuser) as admin:
            places = {name: _fill(admin, name, rows) for name, rows in SIZES.items()}
            admin.execute("vacuum analyze shared_context")
        app = create_app(Settings(data_dir_text=str(place)), Opened(app_url, "x" * 40, owner_url))
        with app.app_context():
            spent = _measured(places)
            db.engine.dispose()
    return _told(spent)


def _told(spent: dict[str, dict[str, float]]) -> dict[str, Any]:
    large = spent["large"]
    told: dict[str, Any] = {f"{name}_{what}_ms": round(ms, 3) for name in spent for what, ms in spent[name].items()}
    ratios = {
        "query_to_select_1": (large["query"] / large["select_1"], 4),
        "function_to_select_1": (large["function"] / large["select_1"], 10),
        "huge_to_small": (spent["huge"]["function"] / spent["small"]["function"], 1.3),
    }
    for name, (ratio, most) in ratios.items():
        told |= {name: round(ratio, 2), f"{name}_at_most": most}
    # The other is sent through SQLAlchemy, as the app sends what it does not send straight to libpq.
    told["query_to_select_1_sent_as_the_query"] = round(large["query"] / large["select_1_straight"], 2)
    return told


def _fill(admin: Any, name: str, rows: int) -> tuple[UUID, UUID, UUID]:
    tenant = admin.execute("insert into tenants (slug, name) values (%s, %s) returning id", (name, name)).fetchone()[0]
    for number in range(5):
        admin.execute(
            "insert into agents (tenant_id, slug, name) values (%s, %s, %s)", (tenant, f"a{number}", f"A {number}")
        )
    for number in range(2):
        admin.execute(
            "insert into entity_types (tenant_id, slug, name) values (%s, %s, %s)",
            (tenant, f"t{number}", f"T {number}"),
        )
    admin.execute(FILL, {"tenant": tenant, "rows": rows})
    agent = admin.execute("select id from agents where tenant_id = %s and slug = 'a0'", (tenant,)).fetchone()[0]
    kind = admin.execute("select id from entity_types where tenant_id = %s and slug = 't0'", (tenant,)).fetchone()[0]
    return tenant, agent, kind


def _measured(places: dict[str, tuple[UUID, UUID, UUID]]) -> dict[str, dict[str, float]]:
    """Medians in milliseconds, for an admin of each workspace in turn."""
    from app.actor import Actor
    from app.db import db, run
    from app.db.connect import BIND, bound
    from app.services.knowledge import prompt as knowledge_prompt

    connection = db.session().connection()
    spent: dict[str, dict[str, list[float]]] = {name: {} for name in places}
    for _ in range(ROUNDS):
        for name, (tenant, agent, kind) in places.items():
            connection.exec_driver_sql(BIND, bound(Actor(UUID(int=1), tenant, "admin")))
            _time(spent[name], "select_1", lambda: connection.exec_driver_sql("SELECT 1").fetchall())
            _time(spent[name], "select_1_straight", lambda: run("SELECT 1", {}))
            _time(spent[name], "query", partial(_query, tenant, agent, kind))
            _time(spent[name], "function", partial(knowledge_prompt.load_shared_context_prompt, tenant, agent, kind))
    return {name: {what: statistics.median(times[WARMING:]) for what, times in spent[name].items()} for name in places}


def _query(tenant: UUID, agent: UUID, kind: UUID) -> None:
    from app.services.knowledge.prompt import read_rows

    assert len(read_rows(tenant, agent, kind)) == 40


def _time(spent: dict[str, list[float]], what: str, work: Callable[[], object]) -> None:
    began = time.perf_counter()
    work()
    spent.setdefault(what, []).append((time.perf_counter() - began) * 1000)
