"""A full-text search for a word in 1 % of 500,000 rows: the app through its door, against a role without policies."""

from __future__ import annotations

from typing import Any

import psycopg

from bench.places import as_superuser, database, folder, median_ms

ROWS = 500_000
FILL = """
with t as (select id from tenants where slug = 'bench'), u as (select id from users where email = 'b@example.test')
insert into feedback (tenant_id, source_type, rating, comment, created_by, created_at, occurred_at)
select t.id, 'chat', 'negative',
       'the answer ' || (array['was wrong', 'missed a figure', 'took too long', 'named another deal'])[1 + n %% 4]
       || ' in case ' || n || case when n %% 100 = 0 then ' about ebitda' else '' end,
       u.id, now() - n * interval '1 second', now() - n * interval '1 second'
from t, u, generate_series(1, %s) n
"""
DIRECT = """
select id from feedback where tenant_id = %s and search @@ websearch_to_tsquery('english', 'ebitda')
order by created_at desc, id desc limit 1000
"""
DOOR = "select * from door_search('feedback', 'ebitda', 1000)"


def measure() -> dict[str, float]:
    with folder() as place, database(place) as (app_url, _, superuser):
        with as_superuser(superuser) as admin:
            admin.execute("insert into tenants (slug, name) values ('bench', 'Bench')")
            admin.execute("insert into users (email, name) values ('b@example.test', 'B')")
            admin.execute(FILL, (ROWS,))
            admin.execute("vacuum analyze feedback")
            tenant = _one(admin, "select id from tenants")
            user = _one(admin, "select id from users")
            direct = median_ms(lambda: admin.execute(DIRECT, (tenant,)).fetchall())
            found = len(admin.execute(DIRECT, (tenant,)).fetchall())
        with psycopg.connect(app_url) as app:
            app.execute(
                "select set_config('app.tenant_id', %s, true), set_config('app.user_id', %s, true),"
                " set_config('app.role', 'admin', true)",
                (str(tenant), str(user)),
            )
            assert len(app.execute(DOOR).fetchall()) == found
            through = median_ms(lambda: app.execute(DOOR).fetchall())
    return {
        "rows": ROWS,
        "found": found,
        "owner_ms": round(direct, 2),
        "app_ms": round(through, 2),
        "ratio": round(through / direct, 2),
        "ratio_at_most": 3,
    }


def _one(connection: psycopg.Connection[Any], statement: str) -> Any:
    row = connection.execute(statement).fetchone()
    assert row is not None
    return row[0]
