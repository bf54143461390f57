"""Passes, fails, flaky, errored and rejected goldens are kept apart wherever a set is counted, as SQL counts them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import psycopg
import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.evals.stats import pass_power_k, wilson
from app.services.evals import promotion
from app.services.evals.promotion import Promotion
from tests.agents.test_replays import CONFIG, Bench, bench
from tests.conftest import Api, Workspace, soup
from tests.evals.test_baselines import words
from tests.evals.test_charts import figure_of
from tests.evals.test_golden import complain
from tests.scripted_model import scripted

__all__ = ["bench"]
PAGES = "/admin/agent-review/evals"
SONG = "Sing a song"
# A golden's verdict and whether its recording was complained about, from its trials that were not tried again.
GOLDENS = """
SELECT CASE WHEN v @> '{pass,fail}' THEN 'flaky' ELSE v[1] END, s.metadata #>> '{golden,baseline_rejected}' = 'true', v
  FROM (SELECT eval_source, array_agg(metadata #>> '{eval_result,verdict}') AS v FROM sessions
         WHERE eval_run_id = %(run)s AND NOT metadata ? 'eval_retried' GROUP BY 1) AS r
  JOIN sessions AS s ON s.id = r.eval_source::uuid
"""
# Only of this workspace: other tests leave runs in the same database.
TRIALS = (
    "SELECT golden_id::text, trials_passed, trials_judged FROM eval_verdicts WHERE tenant_id = %s ORDER BY run_id, 1"
)
COUNT_TRIALS = """
SELECT eval_source, count(*) FILTER (WHERE v = 'pass')::int, count(*) FILTER (WHERE v IN ('pass', 'fail'))::int
  FROM (SELECT eval_run_id, eval_source, metadata #>> '{eval_result,verdict}' AS v FROM sessions
         WHERE tenant_id = %s AND eval_run_id IS NOT NULL AND NOT metadata ? 'eval_retried') AS s
 GROUP BY eval_run_id, 1 ORDER BY eval_run_id, 1
"""


def test_every_page_keeps_them_apart(
    app: Flask,
    bench: Bench,
    workspace: Workspace,
    sign_in: Callable[..., FlaskClient],
    api: Callable[..., Api],
    superuser_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for asked in (SONG, "List entities"):
        bench.golden(asked)
    rejected = bench.desk.ask("Search entities Halden")
    bench.drain()
    complain(app, workspace.actor("member"), rejected)
    golden_of(bench, rejected)
    for agent in ("moody", "broken"):
        bench.desk.agent(agent, **CONFIG)
        asked_of = bench.desk.ask(SONG, agent=agent)
        bench.drain()
        golden_of(bench, asked_of)
    right = bench.desk.look(asked_of).payloads("agent.message")[-1]["text"]
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    bench.desk.agent("broken", **CONFIG | {"model": "openai:gpt-5"})
    with scripted(app, right, "La la la, 42 times.") as script:
        bench.desk.agent("moody", **CONFIG | {"model": script.name})
        run = bench.run(set_name="default", trials=2, triggered_by="scheduled")

    with psycopg.connect(superuser_url) as connection:
        goldens = connection.execute(GOLDENS, {"run": run.id}).fetchall()
    counted = [verdict for verdict, apart, _ in goldens if not apart]
    found = {verdict: counted.count(verdict) for verdict in ("pass", "fail", "flaky", "errored")}
    assert found == {"pass": 2, "fail": 0, "flaky": 1, "errored": 1}
    assert len(goldens) - len(counted) == 1
    passed, judged = found["pass"], found["pass"] + found["fail"] + found["flaky"]
    low, high = wilson(passed, judged)
    power = pass_power_k([trials for _, apart, trials in goldens if not apart], 2)
    said = {
        "share": f"{passed / judged * 100:.0f}%",
        "interval": f"{low * 100:.0f}–{high * 100:.0f}%",
        "flaky": "~ 1 flaky",
        "errored": "! 1 errored",
        "noise": "3 goldens: too few to tell drops from noise.",
    }
    counts = f"{passed} of {judged}"
    apart = "1 golden has a rejected baseline and is not counted."
    together = f"pass^2 {power * 100:.0f}%" if power is not None else ""
    assert together == "pass^2 67%"

    client = sign_in(workspace.actor("admin"))
    pages = {
        f"/runs/{run.id}": [*said.values(), apart, together],
        "/sets/default": [*said.values(), counts, apart, together],
        "": [said["share"], said["interval"], said["flaky"], said["errored"], counts],
        "/trend?set=default": [*said.values(), counts, "1 not counted"],
    }
    for path, sentences in pages.items():
        text = words(soup(client.get(f"{PAGES}{path}")).select_one("main"))
        missing = [one for one in sentences if one not in text]
        assert not missing, (path, missing, text)

    matrix = soup(client.get(f"{PAGES}/matrix?set=default"))
    heads = {words(one).split(" ✓")[0]: words(one) for one in matrix.select(".u-matrix thead th")[1:]}
    assert "~ flaky 1" in heads["moody v2"]
    assert "pass^2 0%" in heads["moody v2"]
    assert "pass^2 100%" in heads["assistant v1"]
    assert "pass^" not in heads["broken v2"], "no trial of it was judged"
    assert words(matrix.select_one(".u-matrix td .is-warn")) == "~ 1/2"
    assert "~ 1/2" in {text for line in figure_of(matrix)["data"][0]["text"] for text in line}
    assert "! errored 1" in heads["broken v2"]
    assert "✓ pass 2 ✗ fail 0 100% 95% CI 34–100% pass^2 100% 1 not counted" in heads["assistant v1"]
    assert "baseline was rejected" in words(matrix.select_one(f"a[href$='{rejected}']").find_parent("th"))
    drawn = figure_of(matrix)["layout"]["xaxis"]["ticktext"]
    assert [text.split("<br>")[1] for text in drawn] == ["✓ 2", "! 1", "~ 1"]

    # The same as the trials that SQL counts, and as what an upgrade reads from the results of runs.
    with psycopg.connect(superuser_url) as connection:
        stored = connection.execute(TRIALS, [workspace.id]).fetchall()
        assert stored == connection.execute(COUNT_TRIALS, [workspace.id]).fetchall()
        connection.execute("UPDATE eval_verdicts SET trials_passed = 0, trials_judged = 0")
        connection.execute(import_module("migrations.versions.0045_verdict_trials").FILL)
        assert connection.execute(TRIALS, [workspace.id]).fetchall() == stored
    cells = api(workspace.actor("admin"), "admin").get("/api/admin/evals/matrix?set=default").get_json()["cells"]
    [flaky] = [cell for line in cells for cell in line if cell and cell["verdict"] == "flaky"]
    assert (flaky["trials_passed"], flaky["trials_judged"]) == (1, 2)

    results = api(workspace.actor("admin"), "admin").get(f"/api/admin/evals/runs/{run.id}").get_json()["results"]
    assert {name: results[name] for name in ("passed", "judged", "rejected", "pass_power_k")} == {
        "passed": passed, "judged": judged, "rejected": 1, "pass_power_k": power,
    }  # fmt: skip
    assert (results["low"], results["high"], results["smallest_regression"]) == (low, high, None)
    assert results["verdicts"] == {"pass": 3, "fail": 0, "flaky": 1, "errored": 1, "unknown": 0}


def golden_of(bench: Bench, session_id: Any) -> None:
    with bench.acting():
        promotion.promote_session(session_id, Promotion(), actor=bench.admin)
