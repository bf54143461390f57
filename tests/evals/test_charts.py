"""The matrix and the trend of a set: over the API and as tables, each figure the one that SQL counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from flask.testing import FlaskClient

from app.evals.stats import wilson
from app.services.evals import revisions
from app.services.evals.charts.dropped import list_dropped_sets
from app.services.evals.revisions import Revision
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from tests.agents.test_replays import Bench, bench
from tests.conftest import Api, Workspace, soup
from tests.evals.test_baselines import words

__all__ = ["bench"]
WON = 'Find the deal "Halden". Then update entity Halden: set stage to won'
UPDATE = "Update entity Kestrel: set stage to won"
SONG = "Sing a song"
CHARTS = "/api/admin/evals"
PAGES = "/admin/agent-review/evals"


@pytest.fixture
def admin(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("admin"), "admin")


@pytest.fixture
def client(workspace: Workspace, sign_in: Callable[..., FlaskClient]) -> FlaskClient:
    return sign_in(workspace.actor("admin"))


def read(admin: Api, path: str) -> dict[str, Any]:
    answer = admin.get(f"{CHARTS}/{path}")
    assert answer.status_code == 200, answer.get_json()
    found: dict[str, Any] = answer.get_json()
    return found


def figure_of(page: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.select_one("[data-chart] script").string)
    return found


def test_the_matrix_has_the_latest_verdict_of_each_version(bench: Bench, admin: Api, client: FlaskClient) -> None:
    won, song = bench.golden(WON), bench.golden(SONG)
    first = bench.run(set_name="default")
    bench.worse()
    with bench.acting():
        row = knowledge_rows.add_row(NewRow(type="routing", content="Never use updateEntity."), actor=bench.admin).id
    bench.run(set_name="default")
    live = bench.run(golden_ids=[won], context_mode="live")
    tried = bench.run(set_name="default", agent_version_id=first.agent_version_id, plus_rows=[row])

    found = read(admin, "matrix?set=default")
    assert [(one["agent"], one["version"]) for one in found["versions"]] == [("assistant", 1), ("assistant", 2)]
    assert found["versions"][0]["id"] == str(first.agent_version_id)
    assert [one["id"] for one in found["goldens"]] == [str(won), str(song)]
    shape = [[cell and cell["verdict"] for cell in line] for line in found["cells"]]
    assert shape == [["pass", "fail"], ["pass", "pass"]], "what a trial did with another row is not in it"
    replay = next(one for one in bench.replays(live))
    assert found["cells"][0][1]["replay_session_id"] == str(replay.id), "the newest, with live knowledge"
    frozen = read(admin, "matrix?set=default&context=frozen")
    assert frozen["cells"][0][1]["replay_session_id"] != str(replay.id)
    only_live = read(admin, "matrix?set=default&context=live")
    assert [[bool(cell) for cell in line] for line in only_live["cells"]] == [[True], [False]]

    pages = [read(admin, f"matrix?set=default&limit=1{after}") for after in ("", f"&after={won}")]
    assert [one["cells"] for one in pages] == [found["cells"][:1], found["cells"][1:]]
    assert [one["next_after"] for one in pages] == [str(won), None]
    assert found["next_after"] is None

    by_row = read(admin, f"matrix?set=default&row={row}")
    columns = [(one["version"], one["context"], one["knowledge"]) for one in by_row["versions"]]
    assert columns == [(1, "frozen", []), (1, "frozen", [f"+{row}"]), (2, "frozen", []), (2, "live", [])]
    assert by_row["cells"][0][1]["replay_session_id"] in {str(one.id) for one in bench.replays(tried)}
    page = soup(client.get(f"{PAGES}/matrix?set=default&row={row}"))
    heads = [words(one) for one in page.select(".u-matrix thead th")]
    assert "v1 frozen + “Never use updateEntity.”" in heads[2]

    for wrong in ("set=nothing", "set=default&context=x", "set=default&row=x", "set=default&by=x", ""):
        status = 404 if wrong == "set=nothing" else 400
        assert admin.get(f"{CHARTS}/matrix?{wrong}").status_code == status, wrong
    for wrong, status in (
        ("nothing", 404),
        ("default&context=x", 400),
        ("default&row=x", 400),
        ("default&baseline=x", 400),
    ):
        assert client.get(f"{PAGES}/matrix?set={wrong}").status_code == status, wrong


def test_the_table_of_a_matrix_sorts_and_narrows_without_a_script(
    bench: Bench, client: FlaskClient, count_queries: Callable[[], Any]
) -> None:
    won, update, song = bench.golden(WON), bench.golden(UPDATE), bench.golden(SONG)
    bench.run(set_name="default")
    worse = bench.worse()
    bench.run(set_name="default")

    with count_queries() as seen:
        page = soup(client.get(f"{PAGES}/matrix?set=default"))
    assert len(seen) <= 8, seen
    rows = [one.select_one("th a")["href"].rsplit("/", 1)[1] for one in page.select(".u-matrix tbody tr")]
    assert rows == [str(won), str(song), str(update)], "by title"
    heads = [words(one) for one in page.select(".u-matrix thead th")]
    assert heads[1].startswith("v1 ✓ pass 3 ✗ fail 0")
    assert heads[2].startswith("v2 ✓ pass 1 ✗ fail 2 33% 95% CI 6–79% better +0 worse −2")

    link = page.select(".u-matrix thead a")[2]["href"]
    assert f"sort={worse}" in link
    sorted_page = soup(client.get(link))
    assert sorted_page.select(".u-matrix thead th")[2]["aria-sort"] == "ascending"
    verdicts = [words(one.select("td")[1]) for one in sorted_page.select(".u-matrix tbody tr")]
    assert [one.split()[-1] for one in verdicts] == ["fail", "fail", "pass"]
    turned = soup(client.get(sorted_page.select(".u-matrix thead a")[2]["href"]))
    assert turned.select(".u-matrix thead th")[2]["aria-sort"] == "descending"
    assert "pass" in words(turned.select_one(".u-matrix tbody tr td:last-child"))
    differ = soup(client.get(f"{PAGES}/matrix?set=default&differ=1"))
    assert len(differ.select(".u-matrix tbody tr")) == 2
    turned_baseline = soup(client.get(f"{PAGES}/matrix?set=default&baseline={worse}"))
    assert "better +2 worse −0" in words(turned_baseline.select(".u-matrix thead th")[1])

    # The figure says what the table says, and every cell leads to its diff.
    figure = figure_of(page)
    heat = figure["data"][0]
    shown = [[words(cell) for cell in line.select("td")] for line in page.select(".u-matrix tbody tr")]
    assert [[cell.split()[0] for cell in line] for line in heat["text"]] == [
        [c.split()[0] for c in line] for line in shown
    ]
    links = [[cell.select_one("a")["href"] for cell in line.select("td")] for line in page.select(".u-matrix tbody tr")]
    assert heat["customdata"] == links
    assert client.get(links[0][1]).status_code == 200


def test_every_figure_of_matrix_and_trend_is_one_that_sql_counts(
    bench: Bench, admin: Api, client: FlaskClient, superuser_url: str
) -> None:
    for asked in (WON, UPDATE, SONG, "List entities"):
        bench.golden(asked)
    bench.run(set_name="default")
    bench.worse()
    run = bench.run(set_name="default", trials=2)
    with psycopg.connect(superuser_url) as connection:
        counted = {
            (version, verdict): number
            for version, verdict, number in connection.execute(BY_VERSION, {"tenant": bench.workspace.id})
        }
        points = connection.execute(BY_RUN, {"tenant": bench.workspace.id}).fetchall()

    page = soup(client.get(f"{PAGES}/matrix?set=default"))
    for place, head in enumerate(page.select(".u-matrix thead th")[1:], 1):
        for verdict, glyph in (("pass", "✓"), ("fail", "✗")):
            assert f"{glyph} {verdict} {counted.get((place, verdict), 0)}" in words(head)
    assert sum(counted.values()) == 8
    found = read(admin, "trend?set=default")["points"]
    assert [(one["run_id"], one["passed"], one["judged"]) for one in found] == [
        (str(run_id), passed, judged) for run_id, passed, judged in points
    ]
    for one in found:
        assert one["accuracy"] == one["passed"] / one["judged"]
        assert (one["low"], one["high"]) == wilson(one["passed"], one["judged"])
    trend = soup(client.get(f"{PAGES}/trend?set=default"))
    newest = words(trend.select_one(".u-trend tbody tr"))
    passed, judged = points[-1][1:]
    low, high = wilson(passed, judged)
    for said in (f"{passed} of {judged}", f"{passed / judged * 100:.0f}%", f"{low * 100:.0f}–{high * 100:.0f}%"):
        assert said in newest
    figure = figure_of(trend)
    assert figure["data"][2]["y"] == [one["accuracy"] * 100 for one in found]
    assert figure["data"][2]["customdata"][-1] == f"{PAGES}/runs/{run.id}"
    assert [figure["data"][place]["y"][-1] for place in (0, 1)] == [high * 100, low * 100]


# As the tables have it, without any of the application's own statements.
BY_VERSION = """
SELECT n.version, CASE WHEN bool_and(v = 'pass') THEN 'pass' WHEN bool_and(v = 'fail') THEN 'fail' ELSE 'flaky' END, 1
  FROM (SELECT 1) AS one
  JOIN LATERAL (SELECT eval_source, agent_version_id, metadata #>> '{eval_result,verdict}' AS v FROM sessions
                 WHERE tenant_id = %(tenant)s AND eval_source IS NOT NULL) AS s ON true
  JOIN agent_versions AS n ON n.id = s.agent_version_id
 GROUP BY n.version, eval_source
"""
BY_VERSION = f"SELECT version, kind, count(*) FROM ({BY_VERSION}) AS g(version, kind, one) GROUP BY 1, 2"
BY_RUN = """
SELECT run, count(*) FILTER (WHERE whole), count(*) FROM (
    SELECT s.eval_run_id AS run, s.eval_source, bool_and(s.metadata #>> '{eval_result,verdict}' = 'pass') AS whole
      FROM sessions AS s WHERE s.tenant_id = %(tenant)s AND s.eval_run_id IS NOT NULL GROUP BY 1, 2) AS g
  JOIN eval_runs AS r ON r.id = g.run GROUP BY run, r.started_at ORDER BY r.started_at
"""


def test_the_trend_marks_what_changed_between_runs(
    bench: Bench, admin: Api, client: FlaskClient, count_queries: Callable[[], Any]
) -> None:
    won = bench.golden(WON)
    first = bench.run(set_name="default")
    worse = bench.worse()
    with bench.acting():
        row = knowledge_rows.add_row(NewRow(type="lesson", content="Look at Halden first."), actor=bench.admin).id
        revisions.revise_expectations(
            won, Revision(expected={"mentions": ["Halden"]}, reason="Named"), actor=bench.admin
        )
    second = bench.run(set_name="default")
    trial = bench.run(set_name="default", agent_version_id=first.agent_version_id)

    found = read(admin, "trend?set=default")
    assert [(one["run_id"], one["trial"]) for one in found["points"]] == [
        (str(first.id), False), (str(second.id), False), (str(trial.id), True),
    ]  # fmt: skip
    assert [(one["kind"], one["id"], one["title"]) for one in found["markers"]] == [
        ("agent", str(worse), "assistant v2"),
        ("knowledge", str(row), "Look at Halden first."),
        ("golden", str(won), WON),
    ]
    assert all(found["points"][0]["at"] < one["at"] < found["points"][1]["at"] for one in found["markers"])

    with count_queries() as seen:
        page = soup(client.get(f"{PAGES}/trend?set=default"))
    assert len(seen) <= 8, seen
    lines = [words(one) for one in page.select(".u-trend tbody tr")]
    assert "trial run" in lines[0]
    assert lines[1].endswith("1 knowledge change, assistant v2, 1 edited golden")
    assert lines[2].endswith("nothing")
    figure = figure_of(page)
    ends = {one["text"][0]: one for one in figure["data"] if one["mode"] == "markers+text"}
    assert list(ends) == ["1 rule", "v2", "1 edit"]
    assert all(0 < one["x"][0] < 1 for one in ends.values()), "between the runs"
    assert figure["data"][3]["x"] == [2], "the trial run is a mark of its own"
    hidden = figure_of(soup(client.get(f"{PAGES}/trend?set=default&trials=hide")))
    assert hidden["data"][3]["x"] == []

    for label, told in (
        ("v2", "Never use updateEntity."), ("1 rule", "Look at Halden first."), ("1 edit", "Must mention Halden"),
    ):  # fmt: skip
        changed = words(soup(client.get(ends[label]["customdata"][0])).select_one("#changes"))
        assert told in changed
        assert bench.admin.name in changed
    for wrong in (f"before={uuid4()}", "before=x"):
        assert client.get(f"{PAGES}/trend/changes?set=default&{wrong}").status_code == 404

    by_dimension = read(admin, "trend?set=default&dimension=tool_calls")["points"]
    assert len(by_dimension) == 3
    assert len(read(admin, "trend?set=default&agent=assistant")["points"]) == 3
    bench.desk.agent(slug="other")
    other = read(admin, "trend?set=default&agent=other")
    assert other["points"] == []
    assert [one["title"] for one in other["markers"]] == ["Look at Halden first."], "only what every agent gets"
    for part in ("agent=nobody", "dimension=nothing"):
        assert admin.get(f"{CHARTS}/trend?set=default&{part}").status_code == 404
        page = soup(client.get(f"{PAGES}/trend?set=default&{part}"))
        assert words(page.select_one("#trend .u-note")).endswith("Showing the whole set.")
        assert len(page.select(".u-trend tbody tr")) == 3
    for wrong in ("row", "after"):
        assert admin.get(f"{CHARTS}/matrix?set=default&{wrong}={uuid4()}").status_code == 404
    for wrong, status in (("set=nothing", 404), ("set=default&agent=a&dimension=b", 400)):
        assert admin.get(f"{CHARTS}/trend?{wrong}").status_code == status
        assert client.get(f"{PAGES}/trend?{wrong}").status_code == status


def test_a_set_that_dropped_since_its_last_scheduled_run_raises_an_alert(
    bench: Bench, admin: Api, client: FlaskClient, sign_in: Callable[..., FlaskClient], count_queries: Callable[[], Any]
) -> None:
    bench.golden(WON)
    bench.golden(SONG)
    bench.golden("List entities", set_name="other")
    bench.run(set_name="other", triggered_by="scheduled")
    good = bench.run(set_name="default", triggered_by="scheduled")
    with bench.acting():
        assert list_dropped_sets(actor=bench.admin) == []
    bench.worse()
    last = bench.run(set_name="default")
    bench.run(set_name="default", agent_version_id=good.agent_version_id)
    with bench.acting():
        [dropped] = list_dropped_sets(actor=bench.admin)
    assert (dropped.set_name, dropped.run_id, dropped.points) == ("default", last.id, 50)
    assert (dropped.before.passed, dropped.before.judged, dropped.now.passed, dropped.now.judged) == (2, 2, 1, 2)
    said = "Dropped from 100% (2 of 2) to 50% (1 of 2) since the last scheduled run."
    for path, where in (
        ("/tasks", "section[aria-labelledby=dropped]"),
        (PAGES, "#sets"),
        (f"{PAGES}/sets/default", "#page"),
    ):
        with count_queries() as seen:
            page = soup(client.get(path))
        assert len(seen) <= 8, (path, [" ".join(one.split())[:90] for one in seen])
        assert said in words(page.select_one(where)), path
    assert "▾ 1 set dropped since the last scheduled run" in words(page.select_one("#count-evals"))
    assert "▾ 50" in words(page.select_one(".u-head"))
    member = sign_in(bench.workspace.actor("member"))
    assert "Dropped" not in words(soup(member.get("/tasks")).select_one("#page"))

    # The next scheduled run is compared with the one before it, and the one after that starts from there.
    bench.run(set_name="default", triggered_by="scheduled")
    with bench.acting():
        assert len(list_dropped_sets(actor=bench.admin)) == 1
    bench.run(set_name="default", triggered_by="scheduled")
    with bench.acting():
        assert list_dropped_sets(actor=bench.admin) == []
