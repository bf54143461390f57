"""Every run has a baseline: over the API, on its page, in lists and in files; and every figure can be counted again."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4
from xml.etree import ElementTree

import psycopg
import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.evals.stats import wilson
from app.formats.run_reports import safe_cell
from app.models import EvalRun
from app.services.agents import versions
from app.services.evals import results as eval_results
from tests.agents.test_replays import CONFIG, Bench, bench
from tests.conftest import Api, Workspace, soup
from tests.scripted_model import scripted

__all__ = ["bench"]
RUNS = "/api/admin/evals/runs"
PAGES = "/admin/agent-review/evals/runs"
DIFF = "/admin/agent-review/evals/diff"
WON = 'Find the deal "Halden". Then update entity Halden: set stage to won'
HOSTILE = '=HYPERLINK("https://evil.example")'
# A golden that `bench.worse()` fails, and one that it does not.
UPDATE = "Update entity Kestrel: set stage to won"


@pytest.fixture
def admin(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("admin"), "admin")


@pytest.fixture
def client(workspace: Workspace, sign_in: Callable[..., FlaskClient]) -> FlaskClient:
    return sign_in(workspace.actor("admin"))


def words(node: Any) -> str:
    return " ".join(node.get_text(" ", strip=True).split())


def text_of(node: Any) -> str:
    return " ".join(node.get_text("").split())


def counts_of(run: dict[str, Any]) -> tuple[int, ...] | None:
    found = run["baseline"]
    return found and tuple(found[name] for name in ("worse", "better", "same", "new"))


def read(admin: Api, run: EvalRun | UUID, query: str = "") -> dict[str, Any]:
    answer = admin.get(f"{RUNS}/{getattr(run, 'id', run)}{query}")
    assert answer.status_code == 200, answer.get_json()
    found: dict[str, Any] = answer.get_json()
    return found


def test_a_run_is_compared_with_the_score_of_its_set(bench: Bench, admin: Api) -> None:
    won, song = bench.golden(WON), bench.golden("Sing a song")
    good = bench.desk.look(won).session.agent_version_id
    first = bench.run(set_name="default")
    alone = read(admin, first)
    assert alone["baseline"] is None
    assert [one["before"] for one in alone["results"]["bySession"].values()] == [None, None]

    bench.worse()
    added = bench.golden("Sing another song")
    worse = bench.run(set_name="default")
    found = read(admin, worse)
    assert (found["baseline"]["run_id"], counts_of(found)) == (str(first.id), (1, 0, 1, 1))
    results = found["results"]["bySession"]
    assert results[str(won)]["before"] == {
        "verdict": "pass",
        "overall_accuracy": 1.0,
        "replay_session_id": str(next(one.id for one in bench.replays(first) if one.eval_source == str(won))),
        "run_id": str(first.id),
    }
    assert results[str(added)]["before"] is None
    assert results[str(song)]["before"]["verdict"] == "pass"

    # A trial run is compared with the set's score and never becomes one.
    trial = bench.run(set_name="default", agent_version_id=good)
    assert read(admin, trial)["baseline"]["run_id"] == str(worse.id)
    assert counts_of(read(admin, trial)) == (0, 1, 2, 0)
    single = bench.run(golden_ids=[won], agent_version_id=good)
    assert counts_of(read(admin, single)) == (0, 1, 0, 0)
    again = bench.run(set_name="default")
    assert (read(admin, again)["baseline"]["run_id"], counts_of(read(admin, again))) == (str(worse.id), (0, 0, 3, 0))

    # Any other completed run can be chosen.
    chosen = read(admin, again, f"?baseline={trial.id}")
    assert (chosen["baseline"]["run_id"], counts_of(chosen)) == (str(trial.id), (1, 0, 2, 0))
    cancelled = bench.run(set_name="default", drain=False)
    assert admin.get(f"{RUNS}/{again.id}?baseline={cancelled.id}").status_code == 400, "it has not ended"
    assert admin.get(f"{RUNS}/{again.id}?baseline={again.id}").status_code == 400
    assert admin.get(f"{RUNS}/{again.id}?baseline={uuid4()}").status_code == 404
    assert admin.get(f"{RUNS}/{again.id}?baseline=x").status_code == 400

    listed = {one["id"]: one for one in admin.get(f"{RUNS}?set=default").get_json()["items"]}
    assert counts_of(listed[str(worse.id)]) == (1, 0, 1, 1)
    assert counts_of(listed[str(trial.id)]) == (0, 1, 2, 0)
    assert listed[str(first.id)]["baseline"] is None
    assert (listed[str(trial.id)]["trial"], listed[str(worse.id)]["trial"]) == (True, False)
    assert listed[str(worse.id)]["agent_version"] == 2

    with bench.acting():
        eval_results.delete_run(worse.id, actor=bench.admin)
    assert read(admin, again)["baseline"]["run_id"] == str(first.id), "the one before takes its place"


def test_what_could_not_be_judged_is_not_compared(
    bench: Bench, admin: Api, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.golden(WON)
    bench.run(set_name="default")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with bench.acting():
        versions.save_version(bench.agent_id, CONFIG | {"model": "openai:gpt-5"}, actor=bench.admin)
    errored = bench.run(set_name="default")
    assert counts_of(read(admin, errored)) == (0, 0, 0, 0)
    page = soup(client.get(f"{PAGES}/{errored.id}"))
    assert text_of(page.select_one(".u-changes h2")) == "0 worse, 0 better, 0 same, 0 new, 1 errored"
    assert "✓ pass 1.00 → now ! errored" in words(page.select_one("[data-row]"))
    assert len(soup(client.get(f"{PAGES}/{errored.id}?change=errored")).select("[data-row]")) == 1
    assert words(soup(client.get(PAGES)).select_one("[data-row] td:nth-child(2)")) == ""
    bench.worse()
    assert counts_of(read(admin, bench.run(set_name="default"))) == (0, 0, 0, 1), "nothing to compare a failure with"


def test_the_page_opens_with_what_got_worse_and_leads_to_three_columns(
    bench: Bench, client: FlaskClient, count_queries: Callable[[], Any]
) -> None:
    won, song = bench.golden(WON), bench.golden("Sing a song")
    first = bench.run(set_name="default")
    assert "No baseline." in words(soup(client.get(f"{PAGES}/{first.id}")).select_one(".u-changes"))
    bench.worse()
    run = bench.run(set_name="default", ref="4f2c1e9")
    with count_queries() as seen:
        page = soup(client.get(f"{PAGES}/{run.id}"))
    assert len(seen) <= 9, [one[:150] for one in seen]
    assert text_of(page.select_one(".u-changes h2")) == "1 worse, 0 better, 1 same, 0 new"
    assert str(first.id) in page.select_one(".u-changes p a")["href"]
    assert [row["id"] for row in page.select("[data-row]")] == [f"case-{won}", f"case-{song}"]
    line = words(page.select_one(f"#case-{won}"))
    assert line.startswith("▾ worse Find the deal")
    assert "✓ pass 1.00 → now ✗ fail 0." in line
    worse = soup(client.get(page.select_one(".u-changes h2 a.is-fail")["href"]))
    assert [row["id"] for row in worse.select("[data-row]")] == [f"case-{won}"]
    assert "worse 1" in words(worse.select_one("[aria-current=page][href*=change]"))
    for change, shown in (("same", [song]), ("better", []), ("new", []), ("errored", [])):
        rows = soup(client.get(f"{PAGES}/{run.id}?change={change}")).select("[data-row]")
        assert [row["id"] for row in rows] == [f"case-{one}" for one in shown]
    both = soup(client.get(f"{PAGES}/{run.id}?verdict=pass&baseline={first.id}"))
    assert [row["id"] for row in both.select("[data-row]")] == [f"case-{song}"]
    assert f"baseline={first.id}" in both.select_one("[data-go]")["href"]
    assert client.get(f"{PAGES}/{run.id}?baseline=x").status_code == 404
    assert client.get(f"{PAGES}/{run.id}?baseline={uuid4()}").status_code == 404

    diff = soup(client.get(page.select_one(f"#case-{won} [data-go]")["href"]))
    assert [words(one) for one in diff.select("#steps thead th")][1:] == [
        "Golden, assistant v1", "Before, assistant v1", "Now, assistant v2",
    ]  # fmt: skip
    assert "Before: ✓ pass 1.00" in words(diff.select_one(".u-verdict"))
    assert "before ✓ same now − missing" in words(diff.select_one("#page"))
    following = diff.select_one('[data-key="j"]')["href"]
    assert f"/{song}/" in following
    assert "before=" in following
    replay = next(one.id for one in bench.replays(run) if one.eval_source == str(won))
    two = soup(client.get(f"{DIFF}/{won}/{replay}"))
    assert len(two.select("#steps thead th")) == 3
    stranger = next(one.id for one in bench.replays(first) if one.eval_source == str(song))
    for before in (stranger, uuid4(), "x"):
        assert client.get(f"{DIFF}/{won}/{replay}?before={before}").status_code == 404

    with count_queries() as seen:
        listed = soup(client.get(PAGES))
    assert len(seen) <= 8, seen
    rows = [words(row) for row in listed.select("[data-row]")]
    for said in ("default · assistant v2", "▾ 1 worse", "manually"):
        assert said in rows[0]
    latest = words(soup(client.get("/admin/agent-review/evals/sets/default")).select_one("#runs-title").parent)
    assert "▾ 1 worse" in latest


def test_every_figure_of_the_page_is_one_that_sql_counts(bench: Bench, client: FlaskClient, superuser_url: str) -> None:
    bench.golden(WON)
    bench.golden(UPDATE)
    bench.golden("Sing a song")
    first = bench.run(set_name="default")
    bench.worse()
    bench.golden("Search entities Halden")
    run = bench.run(set_name="default", trials=2)
    with psycopg.connect(superuser_url) as connection:
        verdicts = dict(connection.execute(BY_VERDICT, {"run": run.id}).fetchall())
        changes = dict(connection.execute(BY_CHANGE, {"run": run.id, "before": first.id}).fetchall())
        [power] = connection.execute(ALL_TRIALS_PASS, {"run": run.id}).fetchone() or [None]
    passed, judged = verdicts.get("pass", 0), sum(verdicts.get(one, 0) for one in ("pass", "fail", "flaky"))
    low, high = wilson(passed, judged)
    assert judged == 4
    assert 0 < passed < 4

    page = soup(client.get(f"{PAGES}/{run.id}"))
    assert text_of(page.select_one(".u-changes h2")) == ", ".join(
        f"{changes.get(one, 0)} {one}" for one in ("worse", "better", "same", "new")
    )
    progress = words(page.select_one(".u-run-now"))
    for verdict, glyph in (("pass", "✓"), ("fail", "✗")):
        assert f"{glyph} {verdicts.get(verdict, 0)} {verdict}" in progress
    assert f"{passed / judged * 100:.0f}% 95% CI {low * 100:.0f}–{high * 100:.0f}%" in progress
    assert f"pass^2 {power * 100:.0f}%" in progress
    narrow = {words(one).rsplit(" ", 1)[0]: int(words(one).rsplit(" ", 1)[1]) for one in page.select(".u-seg a")}
    assert narrow == {"All": 4} | verdicts | changes


# As the tables have it, without any of the application's own statements.
BY_VERDICT = """
SELECT verdict, count(*) FROM (
    SELECT CASE WHEN bool_and(v = 'pass') THEN 'pass' WHEN bool_and(v = 'fail') THEN 'fail' ELSE 'flaky' END AS verdict
      FROM (SELECT eval_source, metadata #>> '{eval_result,verdict}' AS v FROM sessions
             WHERE eval_run_id = %(run)s) AS c
     GROUP BY eval_source) AS g GROUP BY verdict
"""
BY_CHANGE = """
SELECT CASE WHEN o.verdict IS NULL THEN 'new' WHEN o.verdict = n.verdict THEN 'same'
            WHEN o.verdict = 'pass' OR n.verdict = 'fail' THEN 'worse' ELSE 'better' END, count(*)
  FROM eval_verdicts AS n LEFT JOIN eval_verdicts AS o ON o.run_id = %(before)s AND o.golden_id = n.golden_id
 WHERE n.run_id = %(run)s GROUP BY 1
"""
ALL_TRIALS_PASS = """
SELECT avg(whole::int)::float FROM (
    SELECT bool_and(metadata #>> '{eval_result,verdict}' = 'pass') AS whole
      FROM sessions WHERE eval_run_id = %(run)s GROUP BY eval_source) AS g
"""


def test_a_run_leaves_as_a_file(bench: Bench, admin: Api, client: FlaskClient) -> None:
    won = bench.golden(WON)
    hostile = bench.golden(HOSTILE)
    bench.run(set_name="default")
    bench.worse()
    run = bench.run(set_name="default")

    answers = {kind: admin.get(f"{RUNS}/{run.id}/export?format={kind}") for kind in ("csv", "json", "junit")}
    for kind, ending in (("csv", "csv"), ("json", "json"), ("junit", "xml")):
        named = answers[kind].headers["Content-Disposition"]
        assert re.fullmatch(rf'attachment; filename="default-[-0-9a-f]+\.{ending}"', named)
        page = client.get(f"{PAGES}/{run.id}/export?format={kind}")
        assert (page.data, page.headers["Content-Disposition"]) == (answers[kind].data, named)

    assert answers["csv"].content_type == "text/csv; charset=utf-8"
    rows = {row["golden_id"]: row for row in csv.DictReader(io.StringIO(answers["csv"].data.decode("utf-8-sig")))}
    assert {name: rows[str(won)][name] for name in ("verdict", "change", "before", "before_accuracy", "trials")} == {
        "verdict": "fail", "change": "worse", "before": "pass", "before_accuracy": "1.0", "trials": "fail",
    }  # fmt: skip
    assert rows[str(hostile)]["golden"].startswith("'=HYPERLINK")

    told = json.loads(answers["json"].data)
    api = read(admin, run)
    for golden_id, one in told["results"]["bySession"].items():
        assert one.pop("title")
        assert one == api["results"]["bySession"][golden_id]
    assert told["baseline"] == api["baseline"]

    suite = ElementTree.fromstring(answers["junit"].data)  # noqa: S314 - written just before.
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")

    for query in ("", "?format=", "?format=pdf"):
        assert admin.get(f"{RUNS}/{run.id}/export{query}").status_code == 400
        assert client.get(f"{PAGES}/{run.id}/export{query}").status_code == 400
    assert admin.get(f"{RUNS}/{uuid4()}/export?format=csv").status_code == 404
    links = [one["href"] for one in soup(client.get(f"{PAGES}/{run.id}")).select("a[download]")]
    assert links == [f"{PAGES}/{run.id}/export?format={kind}" for kind in ("csv", "json", "junit")]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_is_a_formula(start: str) -> None:
    assert safe_cell(f"{start}1+1") == f"'{start}1+1"
    assert safe_cell(-0.5) == "-0.5"
    assert (safe_cell(None), safe_cell("deal = won")) == ("", "deal = won")


def test_a_flaky_golden_is_explained_by_a_trial_that_failed(app: Flask, bench: Bench, admin: Api) -> None:
    golden = bench.golden("Sing a song")
    bench.run(set_name="default")
    right = bench.desk.look(golden).payloads("agent.message")[-1]["text"]
    with scripted(app, right, "La la la, 42 times.") as script:
        with bench.acting():
            versions.save_version(bench.agent_id, CONFIG | {"model": script.name}, actor=bench.admin)
        run = bench.run(set_name="default", trials=2)
    found = read(admin, run)
    one = found["results"]["bySession"][str(golden)]
    assert (one["verdict"], one["passed"], counts_of(found)) == ("flaky", False, (1, 0, 0, 0))
    [failed] = [trial for trial in one["trials"] if trial["verdict"] == "fail"]
    assert one["replay_session_id"] == failed["replay_session_id"]
    replay = next(each for each in bench.replays(run) if str(each.id) == failed["replay_session_id"])
    assert one["reason"] == replay.meta["eval_result"]["reason"]
    assert found["results"]["pass_power_k"] == 0.0
    assert bench.complaints() == [], "some trials passed"
