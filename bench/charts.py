"""The Evals tab, the matrix and the trend with 500 replays and with 10,000, of 200 goldens and 20 versions.

Each is a database of its own, and the same page is asked for in turn of the one and of the other. Once the rows are
there, every count that a page shows is counted again by SQL.
"""

from __future__ import annotations

import re
from typing import Any

from bench.places import folder
from bench.tabs import BASE, browsing, in_turn, ok

GOLDENS, VERSIONS = 200, 20
# Replays of each: runs, and goldens in each run.
SMALL, LARGE = (20, 25), (50, 200)
PATHS = (
    "evals",
    "evals/matrix?set=bench",
    "evals/matrix?set=bench&part=card",
    "evals/matrix?set=bench&by=knowledge&differ=1",
    "evals/matrix?set=bench&sort=golden&from=100",
    "evals/trend?set=bench",
    "evals/trend?set=bench&part=card",
    "evals/sets/bench",
)
AGENT = """
insert into agents (tenant_id, slug, name, kind, current_version)
select id, 'clerk', 'Clerk', 'builtin', %(versions)s from tenants where slug = 'bench'
"""
AGENT_VERSIONS = """
insert into agent_versions (tenant_id, agent_id, version, config, created_at)
select a.tenant_id, a.id, n, jsonb_build_object('instructions', 'Version ' || n),
       now() - (%(versions)s - n) * interval '25 hours'
  from agents a, generate_series(1, %(versions)s) n where a.slug = 'clerk'
"""
GOLDEN_SESSIONS = """
insert into sessions (tenant_id, title, session_type, status, agent_id, created_by, created_at, metadata)
select a.tenant_id, 'Compare deal ' || n, 'agent', 'completed', a.id, u.id, now() - n * interval '1 minute',
       jsonb_build_object('golden', jsonb_build_object('set', 'bench', 'promoted_at', now(), 'promoted_by', u.id,
           'snapshot', jsonb_build_object('turns', jsonb_build_array('Compare deal ' || n),
                                          'shared_context', jsonb_build_object('row_ids', jsonb_build_array()))))
  from agents a, users u, generate_series(1, %(goldens)s) n
 where a.slug = 'clerk' and u.email = 'b@example.test'
"""
RUNS = """
insert into eval_runs (tenant_id, name, set_name, agent_id, agent_version_id, triggered_by, status, config_hash,
                       started_at, created_at, completed_at, golden_session_count, results)
select a.tenant_id, 'bench', 'bench', a.id, v.id, case when n %% 5 = 0 then 'scheduled' else 'manual' end, 'completed',
       'h' || n, d.at, d.at, d.at + interval '5 minutes', %(goldens)s, '{}'
  from agents a cross join generate_series(1, %(runs)s) n
  join lateral (select now() - (%(runs)s - n) * interval '10 hours' - interval '6 minutes' as at) d on true
  join agent_versions v on v.agent_id = a.id and v.version = 1 + (n - 1) * %(versions)s / %(runs)s
 where a.slug = 'clerk'
"""
REPLAYS = """
insert into sessions (tenant_id, title, session_type, status, agent_id, agent_version_id, created_by, created_at,
                      metadata)
select r.tenant_id, g.title, 'agent', 'completed', r.agent_id, r.agent_version_id, g.created_by, r.started_at,
       jsonb_build_object('eval_source', g.id, 'eval_run_id', r.id, 'eval_trial', '1', 'eval_result',
           jsonb_build_object('verdict', case when hashtext(g.id::text || r.id) % 4 = 0 then 'fail' else 'pass' end))
  from eval_runs r
  join lateral (select *, row_number() over (order by created_at desc, id) as place from sessions
                 where golden_set = 'bench') g on g.place <= r.golden_session_count
"""
VERDICTS = """
insert into eval_verdicts (tenant_id, run_id, golden_id, agent_version_id, context_mode, trial, verdict, accuracy,
                           replay_session_id, ended_at, latest)
select s.tenant_id, s.eval_run_id, s.eval_source::uuid, s.agent_version_id, 'frozen', false, f.verdict,
       case f.verdict when 'pass' then 1.0 else 0.5 end, s.id, r.completed_at,
       row_number() over (partition by s.eval_source, s.agent_version_id order by r.completed_at desc) = 1
  from sessions s join eval_runs r on r.id = s.eval_run_id
  join lateral (select s.metadata #>> '{eval_result,verdict}' as verdict) f on true
"""
RESULTS = """
update eval_runs r set passed_count = f.passed, failed_count = f.judged - f.passed,
       results = jsonb_build_object('accuracy', f.passed::float / f.judged, 'passed', f.passed, 'judged', f.judged,
           'verdicts', jsonb_build_object('pass', f.passed, 'fail', f.judged - f.passed), 'models', '[]'::jsonb,
           'agents', jsonb_build_object(r.agent_id::text, jsonb_build_object('passed', f.passed, 'judged', f.judged)))
  from (select run_id, count(*) as judged, count(*) filter (where verdict = 'pass') as passed
          from eval_verdicts group by 1) f where f.run_id = r.id
"""
COUNT_CELLS = """
select v.version, count(*) filter (where e.verdict = 'pass'), count(*) filter (where e.verdict = 'fail')
  from (select distinct on (s.eval_source, s.agent_version_id) s.agent_version_id,
               s.metadata #>> '{eval_result,verdict}' as verdict
          from sessions s join eval_runs r on r.id = s.eval_run_id
         order by s.eval_source, s.agent_version_id, r.completed_at desc) e
  join agent_versions v on v.id = e.agent_version_id group by 1 order by 1
"""
COUNT_RUNS = """
select count(*) filter (where s.metadata #>> '{eval_result,verdict}' = 'pass'), count(*)
  from sessions s join eval_runs r on r.id = s.eval_run_id group by r.id, r.started_at order by r.started_at
"""
Wanted = tuple[int, int]
# What SQL counted, by the size of the database.
COUNTED: dict[Wanted, tuple[list[Any], list[Any]]] = {}
# The head of a column with its counts, one count, and how many passed of how many in a run.
HEAD = re.compile(r'title="v(\d+)">v\d+</a>(.*?)</th>', re.DOTALL)
COUNT = re.compile(r'title="(\d+) (?:pass|fail)"')
RUN = re.compile(r'<td class="u-num">([\d,]+) of ([\d,]+)</td>')


def fill(admin: Any, wanted: Wanted) -> None:
    """Make the rows. Triggers are left out: they slow filling, not reading."""
    runs, goldens = wanted
    asked = {"versions": VERSIONS, "runs": runs, "goldens": goldens}
    admin.execute("set session_replication_role = replica")
    for statement in (AGENT, AGENT_VERSIONS, RUNS):
        admin.execute(statement, asked)
    admin.execute(GOLDEN_SESSIONS, {"goldens": GOLDENS})
    for statement in (REPLAYS, VERDICTS, RESULTS):
        admin.execute(statement)
    admin.execute("set session_replication_role = origin")
    admin.execute("vacuum analyze")
    COUNTED[wanted] = (admin.execute(COUNT_CELLS).fetchall(), admin.execute(COUNT_RUNS).fetchall())


def measure() -> dict[str, Any]:
    with (
        folder() as place,
        browsing(place / "small", SMALL, fill) as small,
        browsing(place / "large", LARGE, fill) as large,
    ):
        pages = {path: in_turn(small, large, path) for path in PATHS}
        for wanted, (_, client) in ((SMALL, small), (LARGE, large)):
            check(client, *COUNTED[wanted])
    return {"replays": [runs * goldens for runs, goldens in (SMALL, LARGE)], "pages": pages}


def check(client: Any, cells: list[Any], runs: list[Any]) -> None:
    """Compare every count of the matrix and the trend with what SQL counted."""
    from app.views.evals.trend import MAX_RUNS

    heads = {int(version): told for version, told in HEAD.findall(page_of(client, "matrix?set=bench"))}
    heads |= {int(version): told for version, told in HEAD.findall(page_of(client, "matrix?set=bench&skip=10"))}
    said = [(version, *map(int, COUNT.findall(heads[version]))) for version in sorted(heads)]
    assert said == cells, (said, cells)
    rows = [tuple(map(int, one)) for one in RUN.findall(page_of(client, "trend?set=bench"))]
    assert rows == runs[::-1][: len(rows)], (rows, runs)
    assert len(rows) == min(len(runs), MAX_RUNS)


def page_of(client: Any, path: str) -> str:
    ok(client, f"evals/{path}")
    text: str = client.get(f"{BASE}/evals/{path}").get_data(as_text=True)
    return text
