"""Runs and diffs as pages: started, followed, cancelled, tried again, read step by step, and a replay that takes the
place of its golden."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select, text, update

from app.db import db
from app.jobs.process import start_due_tasks
from app.models import Agent, AgentSession, AuditEntry, EvalRun, Feedback, SessionEvent, Task
from app.services.agents import versions
from app.services.evals import golden as eval_golden
from app.services.evals import promotion
from app.services.sessions import store as session_store
from app.services.sessions.events import NewEvent
from app.services.sessions.store import NewSession
from app.views import format
from tests.agents.test_replays import CONFIG, Bench, bench
from tests.conftest import Workspace, soup

__all__ = ["bench"]
SignIn = Callable[..., FlaskClient]
HOME = "/admin/agent-review/evals"
RUNS = f"{HOME}/runs"
DIFF = "/admin/agent-review/evals/diff"
WON = 'Find the deal "Halden". Then update entity Halden: set stage to won'
HTMX = {"HX-Request": "true", "HX-Request-Type": "partial"}


@pytest.fixture
def client(workspace: Workspace, sign_in: SignIn) -> FlaskClient:
    return sign_in(workspace.actor("admin"))


def post(client: FlaskClient, url: str, **form: Any) -> Any:
    return client.post(url, data={"csrf_token": _token(client), **form})


def _token(client: FlaskClient) -> str:
    return str(soup(client.get(RUNS)).select_one("meta[name=csrf]")["content"])


def words(node: Any) -> str:
    return " ".join(node.get_text(" ", strip=True).split())


def test_a_set_is_replayed_from_the_form_and_its_page_tells_how_it_went(
    bench: Bench, client: FlaskClient, count_queries: Callable[[], Any]
) -> None:
    golden = bench.golden(WON, set_name="deals")
    form = soup(client.get(f"{RUNS}/new?set=deals"))
    assert form.select_one("input[name=set][value=deals]").has_attr("checked")
    assert [one["value"] for one in form.select("input[name=version]")]

    answer = post(client, RUNS, set="deals", trials="2", context="frozen")
    assert answer.status_code == 303
    page = soup(client.get(answer.location))
    assert "2 of 2 replays left" in words(page.select_one("#run"))
    assert page.select_one("#run-more")["hx-get"] == answer.location
    bench.drain()
    page = soup(client.get(answer.location, headers=HTMX))
    assert page.select_one("#run-more") is None
    line = page.select_one(f"#case-{golden}")
    assert "✓ pass" in words(line)
    assert len(line.select(".u-trial")) == 2
    assert "pass^2 100%" in words(page)
    with count_queries() as seen:
        listed = soup(client.get(RUNS))
    assert len(seen) <= 8
    assert "deals" in words(listed.select_one("[data-row]"))
    assert "100%" in words(listed.select_one("[data-row]"))
    with count_queries() as seen:
        client.get(answer.location)
    assert len(seen) <= 12


def test_sets_by_versions_are_runs_of_their_own(bench: Bench, client: FlaskClient) -> None:
    bench.golden("how many deals are open?", set_name="one")
    bench.golden("show me the deals", set_name="two")
    worse = bench.worse()
    with bench.acting():
        first = versions.version_id(versions.get_agent(bench.agent_id, actor=bench.admin), 1)
    answer = post(client, RUNS, set=["one", "two"], version=[str(first), str(worse)])
    assert answer.location == RUNS
    with bench.acting():
        made = db.session.execute(select(EvalRun.set_name, EvalRun.agent_version_id)).all()
    assert sorted(map(tuple, made)) == sorted((name, v) for name in ("one", "two") for v in (first, worse))


def test_an_invalid_start_is_reported(bench: Bench, client: FlaskClient) -> None:
    assert post(client, RUNS).status_code == 422
    assert post(client, RUNS, set="nothing-here").status_code == 404
    golden = bench.golden("show me the deals")
    wrong = post(client, RUNS, set="default", trials="0", context="live", plus=str(uuid4()))
    assert wrong.status_code == 422
    text = words(soup(wrong).select_one("form#replay-form"))
    assert "from 1 to 20" in text
    assert "removed from frozen knowledge" in text
    assert post(client, RUNS, golden="x").status_code in (400, 422)
    assert post(client, RUNS, golden=str(golden), agent="nobody").status_code == 422
    assert client.get(f"{RUNS}/{uuid4()}").status_code == 404
    with bench.acting():
        assert db.session.scalars(select(EvalRun)).all() == []


def test_where_a_goldens_own_agent_cannot_replay_it_the_page_offers_others(bench: Bench, client: FlaskClient) -> None:
    events = [NewEvent("user.message", {"text": "Hi"}), NewEvent("agent.message", {"text": "Hello"})]
    with bench.acting():
        far = session_store.create_session(
            NewSession(agent="far-away", status="completed", events=events), actor=bench.admin
        )[0].id  # fmt: skip
        promotion.promote_session(far, promotion.Promotion(set_name="far"), actor=bench.admin)
    for url in (HOME, f"{HOME}/sets/far", f"{HOME}/{far}"):
        shown = soup(client.get(url))
        assert not shown.select(f"form[action='{RUNS}'], [formaction$=replay]"), url
        assert shown.select(f"a[href^='{RUNS}/new?']"), url
    assert "external agents" in words(soup(client.get(HOME)).select_one("#sets li"))
    assert "far-away v1 external" in words(soup(client.get(f"{HOME}/sets/far")).select_one(f"#golden-{far}"))
    for asked in ("set=far", f"golden={far}"):
        assert "can’t replay here" in words(soup(client.get(f"{RUNS}/new?{asked}")).select_one(".form-hint"))
    refused = post(client, RUNS, set="far")
    assert refused.status_code == 409
    form = soup(refused).select_one("form#replay-form")
    assert "runs outside Upshot" in words(form)
    [version] = [one["value"] for one in form.select("input[name=version]")]
    started = post(client, RUNS, set="far", version=version)
    assert started.status_code == 303
    assert "Trial run." in words(soup(client.get(started.location)))
    bench.golden(WON, set_name="far")
    page = soup(client.get(post(client, RUNS, set="far").location))
    assert "Left out: 1 golden of external or archived agents" in words(page)
    bench.drain()
    for url, offered in ((HOME, 1), (f"{HOME}/sets/far", 2)):
        assert len(soup(client.get(url)).select(f"form[action='{RUNS}']")) == offered, url
    assert "Default: each golden’s agent" in words(soup(client.get(f"{RUNS}/new?set=far")).select_one(".form-hint"))


def test_nothing_offers_a_replay_where_no_agent_could_do_it(bench: Bench, client: FlaskClient) -> None:
    own = bench.golden(WON, set_name="deals")
    other = bench.golden('Find the deal "Halden"', set_name="deals")
    with bench.acting():
        db.session.execute(update(Agent).where(~Agent.is_system).values(archived_at=datetime.now(UTC)))
    for url in (HOME, f"{HOME}/sets/deals", f"{HOME}/{own}"):
        assert not soup(client.get(url)).select(f"form[action='{RUNS}'], a[href^='{RUNS}/new']"), url
    assert "archived agents" in words(soup(client.get(HOME)).select_one("#sets li"))
    refused = post(client, f"{HOME}/sets/deals/replay", ids=f"{own},{other}")
    assert refused.status_code == 409
    assert "Nothing to replay. " in refused.get_data(as_text=True)


def test_replays_stay_with_their_run(bench: Bench, client: FlaskClient, workspace: Workspace, api: Any) -> None:
    bench.golden(WON)
    waiting = bench.run(set_name="default", drain=False)
    for run in (waiting, bench.run(set_name="default")):
        [replay] = bench.replays(run)
        refused = api(workspace.actor("admin"), "admin").delete(f"/api/v1/sessions/{replay.id}")
        assert (refused.status_code, "is a replay" in refused.json["detail"]) == (409, True)
        for step in ("", "/confirmed"):
            answer = post(client, f"/admin/agent-review/sessions/delete{step}", ids=str(replay.id))
            assert answer.status_code == 409
            assert "Delete their eval run instead" in words(soup(answer))
        assert len(bench.replays(run)) == 1
    alone = bench.desk.ask("Sing a song")
    bench.drain()
    assert api(workspace.actor("admin"), "admin").delete(f"/api/v1/sessions/{alone}").status_code == 204


def test_the_tab_says_how_all_sets_fare(bench: Bench, client: FlaskClient) -> None:
    """Not how the last run went, and nothing of trials, runs over one golden, and sets that are no longer there."""

    def tab_text() -> str:
        return words(soup(client.get(RUNS)).select_one("#count-evals"))

    bench.golden("List all deals", set_name="calm")
    bench.golden("List the kinds of records", set_name="calm")
    won = bench.golden(WON, set_name="deals")
    good = bench.desk.look(won).session.agent_version_id
    assert tab_text() == ""
    bench.run(set_name="deals")
    assert tab_text() == "100%"
    bench.run(set_name="calm")
    assert tab_text() == "100%"
    bench.worse()
    bench.run(golden_ids=[won])
    assert tab_text() == "100%", "one golden does not speak for its set"
    bench.run(set_name="deals")
    assert tab_text() == "67% ▾33 lower than before the last run"
    bench.run(set_name="deals", agent_version_id=good)
    assert tab_text().startswith("67%"), "a trial does not either"
    bench.run(set_name="calm")
    assert tab_text() == "67%", "nothing moved"
    with bench.acting():
        eval_golden.revoke_golden(won, actor=bench.admin)
    assert tab_text() == "100%"


def test_the_list_of_runs_follows_them_and_says_where_they_came_from(bench: Bench, client: FlaskClient) -> None:
    bench.golden(WON)
    bench.run(set_name="default", drain=False, command_line=True)
    follows = "#list [hx-trigger^=every]"
    page = soup(client.get(f"{RUNS}?set=default"))
    assert page.select_one(follows)["hx-get"] == f"{RUNS}?set=default"
    assert "from the command line" in words(page.select_one("#list table"))
    bench.drain()
    assert soup(client.get(RUNS)).select_one(follows) is None


def test_a_set_whose_golden_was_replayed_alone_is_not_called_never_replayed(bench: Bench, client: FlaskClient) -> None:
    bench.run(golden_ids=[bench.golden(WON)])
    evals = RUNS.removesuffix("/runs")
    for path in (evals, f"{evals}/sets/default"):
        text = words(soup(client.get(path)).select_one("main")).lower()
        assert "never replayed" not in text
        assert "no full run yet" in text


def test_a_failing_replay_is_reported_once_and_with_the_names_of_records(bench: Bench, client: FlaskClient) -> None:
    bench.golden(WON)
    bench.worse()
    bench.run(set_name="default")
    [row] = bench.complaints()
    assert row.comment is not None
    assert re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-", row.comment) is None, row.comment
    text = words(soup(client.get("/admin/agent-review/feedback")).select_one("#list")).lower()
    assert "“find the deal" in text
    assert text.count(" fails: ") == 1, text


def test_what_is_planned_is_never_just_now() -> None:
    at = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)
    assert format.due(at + timedelta(seconds=40), at) == "in less than a minute"
    assert format.due(at, at) == "due now"
    assert format.due(at - timedelta(minutes=3), at) == "due now"
    assert format.due(at + timedelta(hours=2), at) == "in 2 h"


def test_htmx_is_led_to_the_run(bench: Bench, client: FlaskClient) -> None:
    golden = bench.golden("show me the deals")
    with bench.acting():
        slug = versions.get_agent(bench.agent_id, actor=bench.admin).slug
    form = {"csrf_token": _token(client), "golden": str(golden), "agent": slug, "version": "1"}
    answer = client.post(RUNS, data=form, headers=HTMX)
    assert answer.status_code == 204
    assert answer.headers["HX-Redirect"].startswith(RUNS)


def test_a_run_is_cancelled_and_only_then(bench: Bench, client: FlaskClient) -> None:
    bench.golden("show me the deals")
    run = bench.run(set_name="default", drain=False)
    bar = soup(client.get(f"{RUNS}/{run.id}/progress", headers=HTMX)).select_one(".u-run")
    assert bar["hx-trigger"] == "every 2s"
    assert "1 left" in words(bar)
    assert post(client, f"{RUNS}/{run.id}/cancel").status_code == 303
    assert post(client, f"{RUNS}/{run.id}/cancel").status_code == 303
    page = soup(client.get(f"{RUNS}/{run.id}"))
    assert "Cancelled." in words(page)
    assert page.select_one("#run-more") is None
    assert not soup(client.get(f"{RUNS}/{run.id}/progress", headers=HTMX)).select_one(".u-run").has_attr("hx-get")
    assert post(client, f"{RUNS}/{run.id}/retry").status_code == 409
    done = bench.run(set_name="default")
    assert post(client, f"{RUNS}/{done.id}/cancel").status_code == 409


def failing(bench: Bench) -> tuple[UUID, UUID, EvalRun]:
    golden = bench.golden(WON)
    bench.worse()
    run = bench.run(set_name="default")
    return golden, bench.replays(run)[0].id, run


def test_the_diff_says_the_verdict_first_and_what_it_rests_on(
    bench: Bench, client: FlaskClient, count_queries: Callable[[], Any]
) -> None:
    golden, replay, run = failing(bench)
    with count_queries() as seen:
        page = soup(client.get(f"{DIFF}/{golden}/{replay}"))
    assert len(seen) <= 14
    verdict = words(page.select_one(".u-verdict"))
    assert verdict.startswith("✗ Fails: ")
    assert "of 1.00" in verdict
    first = page.select(".u-sect")[0]
    assert "missing" in words(first)
    assert "won" in words(first)
    steps = page.select_one("#steps")
    assert steps.select_one("tr.u-fold details summary") is not None
    assert any("updateEntity" in words(row) for row in steps.select("tr.is-missing"))
    dimensions = {words(row.select_one("td")): words(row) for row in page.select(".u-table.u-keep tbody tr")}
    assert "✗ fail 0.00 0.30 yes" in dimensions["entities_updated"]
    cells = [[words(cell) for cell in row.select("td")[2:4]] for row in page.select(".u-table.u-keep tbody tr")]
    numbers = words(page.select_one(".u-after")).split()
    assert float(numbers[1]) == pytest.approx(sum(float(score) * float(weight) for score, weight in cells), abs=0.02)
    assert numbers[3].rstrip(",.") == f"{sum(float(weight) for _, weight in cells):.2f}"
    assert page.select_one(f'a[href$="/sessions/{golden}"]')
    assert page.select_one(f'a[href$="/sessions/{replay}"]')
    assert page.select_one(f'a[href$="/runs/{run.id}"]') is not None
    assert "Live comparison, not saved." not in words(page)
    session = soup(client.get(f"/admin/agent-review/sessions/{replay}"))
    assert "✗ fail" in words(session.select_one(".u-replayed"))
    row = bench.complaints()[0]
    moment = soup(client.get(f"/admin/agent-review/feedback/{row.id}"))
    assert moment.select_one(f'a[href="{DIFF}/{golden}/{replay}"]') is not None


def test_neighbours_of_a_case_are_the_runs_next_and_previous(bench: Bench, client: FlaskClient) -> None:
    for asked in ("show me the deals", "how many deals are open?", "set the stage of Kestrel to won"):
        bench.golden(asked)
    run = bench.run(set_name="default")
    order = [row["id"].removeprefix("case-") for row in soup(client.get(f"{RUNS}/{run.id}")).select("[data-row]")]
    by_golden = {one.meta["eval_source"]: one.id for one in bench.replays(run)}
    page = soup(client.get(f"{DIFF}/{order[1]}/{by_golden[order[1]]}"))
    assert "2 of 3" in words(page.select_one(".u-acts"))
    assert page.select_one('[data-key="j"]')["href"] == f"{DIFF}/{order[2]}/{by_golden[order[2]]}"
    assert page.select_one('[data-key="k"]')["href"] == f"{DIFF}/{order[0]}/{by_golden[order[0]]}"


def test_any_two_sessions_can_be_compared(bench: Bench, client: FlaskClient) -> None:
    one = bench.desk.ask("show me the deals")
    other = bench.desk.ask("show me the deals")
    bench.drain()
    chosen = soup(client.get(f"{DIFF}/with/{one}"))
    assert chosen.select_one(f'a[href="{DIFF}/{one}/{other}"]') is not None
    assert client.get(f"{DIFF}/with/{one}?other={other}").location == f"{DIFF}/{one}/{other}"
    assert client.get(f"{DIFF}/with/{one}?other=nothing").status_code == 422
    page = soup(client.get(f"{DIFF}/{one}/{other}"))
    assert words(page.select_one(".u-verdict h2")).startswith("Passes")
    assert "Live comparison, not saved." in words(page)
    assert client.get(f"{DIFF}/{one}/{uuid4()}").status_code == 404


@pytest.mark.exhaustive
def test_a_long_pair_answers_in_parts(bench: Bench, client: FlaskClient) -> None:
    ids = [bench.desk.ask("show me the deals") for _ in range(2)]
    bench.drain()
    with bench.acting():
        for place, session_id in enumerate(ids):
            db.session.add_all(
                SessionEvent(
                    tenant_id=bench.workspace.id, session_id=session_id, sequence=100 + number,
                    event_type="agent.message",
                    payload={"text": f"{number} {place if number % 2 else ''} " + "x " * 300},
                )
                for number in range(2000)
            )  # fmt: skip
    first = client.get(f"{DIFF}/{ids[0]}/{ids[1]}")
    assert len(first.data) < 300_000
    further = soup(first).select_one("#steps tr.u-fold:last-child a")["hx-get"]
    part = client.get(further, headers=HTMX)
    assert part.status_code == 200
    assert "<html" not in part.text
    assert "is-changed" in part.text


def test_the_replay_takes_the_place_of_its_golden(bench: Bench, client: FlaskClient) -> None:
    golden, replay, _ = failing(bench)
    answer = post(client, f"{DIFF}/{golden}/{replay}/promote", note="the new way is right")
    assert answer.status_code == 303
    made = UUID(answer.location.rsplit("/", 1)[1])
    with bench.acting():
        old, new = (db.session.get_one(AgentSession, one) for one in (golden, made))
        assert old.golden_set is None
        assert new.golden_set == "default"
        assert new.eval_source is None
        assert new.meta["copied_from"] == str(replay)
        assert new.meta["golden"]["note"] == "the new way is right"
        done = db.session.scalars(select(AuditEntry.action).where(AuditEntry.subject_id.in_([golden, made]))).all()
        assert {"session.copied", "session.promoted", "golden.revoked"} <= set(done)
        assert db.session.scalars(select(Feedback.status).where(Feedback.kind == "replay_failure")).all() == ["applied"]
    assert bench.messages_of(made) == bench.messages_of(replay)
    run = bench.run(set_name="default")
    assert (run.passed_count, run.failed_count) == (1, 0)
    assert post(client, f"{DIFF}/{golden}/{replay}/promote").status_code == 409


def test_a_run_is_deleted_after_a_question(bench: Bench, client: FlaskClient) -> None:
    golden, replay, run = failing(bench)
    ask = soup(client.get(f"{RUNS}/{run.id}")).find("a", string="Delete run…")
    dialog = soup(client.get(ask["href"], headers=HTMX)).select_one("dialog[open]")
    assert "and its 1 replay." in words(dialog)
    form = soup(client.get(ask["href"])).select_one("section.u-confirm form")
    assert post(client, form["action"]).location == RUNS
    page = soup(client.get(RUNS))
    assert "Deleted the run and 1 replay." in words(page)
    assert str(run.id) not in str(page.select_one("main"))
    assert client.get(f"{RUNS}/{run.id}").status_code == 404
    assert client.get(f"{DIFF}/{golden}/{replay}").status_code == 404
    (row,) = bench.complaints()
    text = words(soup(client.get(f"/admin/agent-review/feedback/{row.id}")))
    assert "It was deleted with the run." in text
    waiting = bench.run(set_name="default", drain=False)
    assert soup(client.get(f"{RUNS}/{waiting.id}")).find("a", string="Delete run…") is None
    assert post(client, f"{RUNS}/{waiting.id}/delete").status_code == 409


def test_members_do_not_see_runs(bench: Bench, workspace: Workspace, sign_in: SignIn) -> None:
    member = sign_in(workspace.actor("member"))
    assert member.get(RUNS).status_code in (403, 404)
    assert member.get(f"{DIFF}/{uuid4()}/{uuid4()}").status_code in (403, 404)


def test_an_errored_case_is_tried_again(app: Flask, bench: Bench, client: FlaskClient) -> None:
    bench.golden("show me the deals")
    with bench.acting():
        broken = versions.save_version(bench.agent_id, CONFIG | {"model": "nowhere:none"}, actor=bench.admin).id
    run = bench.run(set_name="default", agent_version_id=broken)
    page = soup(client.get(f"{RUNS}/{run.id}"))
    assert "! errored" in words(page.select_one("[data-row]"))
    assert page.select_one(f'form[action="{RUNS}/{run.id}/retry"]') is not None
    assert post(client, f"{RUNS}/{run.id}/retry").status_code == 303
    assert bench.look(run.id).status == "running"


def test_a_set_is_replayed_on_a_schedule_and_what_fails_is_red(bench: Bench, client: FlaskClient) -> None:
    bench.golden(WON, set_name="deals")
    form = soup(client.get("/tasks/new?set=deals"))
    assert form.select_one("select[name=set] option[selected]")["value"] == "deals"
    assert post(client, "/tasks", name="Nightly", set="nothing", cron="0 3 * * *").status_code == 422
    assert post(client, "/tasks", name="Nightly", set="deals", cron="0 3 * * *").status_code == 303
    with bench.acting():
        task = db.session.scalars(select(Task).where(Task.name == "Nightly")).one()
        db.session.execute(update(Task).where(Task.id == task.id).values(next_run_at=text("now() - interval '1 hour'")))
    with bench.app.app_context():
        assert start_due_tasks("test") == 1
        assert start_due_tasks("test") == 0
    bench.drain()
    row = soup(client.get("/tasks")).find("a", string="Nightly").find_parent("tr")
    assert "replays deals" in words(row)
    assert "✓ done" in words(row)
    with bench.acting():
        run = db.session.scalars(select(EvalRun)).one()
    assert (run.triggered_by, run.passed_count) == ("scheduled", 1)
    bench.worse()
    assert post(client, "/admin/agent-review/evals/sets/deals/rename", name="wins").status_code == 303
    assert "replays wins" in words(soup(client.get("/tasks")).find("a", string="Nightly").find_parent("tr"))
    with bench.acting():
        changed = db.session.scalars(select(AuditEntry).where(AuditEntry.action == "task.changed")).one()
        assert (changed.subject_id, changed.details["after"]) == (task.id, {"set": "wins"})
    led = post(client, f"/tasks/{task.id}/run")
    assert led.location.startswith(RUNS)
    assert post(client, f"/tasks/{task.id}/run").status_code == 409
    bench.drain()
    assert "1 of 1 golden fails." in words(soup(client.get("/tasks")).select_one("tr.u-failed"))
    page = soup(client.get(f"/tasks/{task.id}"))
    assert page.select_one(f'a[href="{led.location}"]') is not None
    tab = words(soup(client.get(RUNS)).select_one('nav[aria-label="Agent Review"] a[href$="/evals"]'))
    assert tab == "Evals 0% ▾100 lower than before the last run ▾ 1 set dropped since the last scheduled run"
    with bench.acting():
        first = versions.version_id(versions.get_agent(bench.agent_id, actor=bench.admin), 1)
    assert bench.run(set_name="wins", agent_version_id=first).passed_count == 1
    again = words(soup(client.get(RUNS)).select_one('nav[aria-label="Agent Review"] a[href$="/evals"]'))
    assert again == tab, "a trial of an old version is no headline"


def test_without_goldens_the_form_says_where_they_come_from(client: FlaskClient) -> None:
    page = soup(client.get(f"{RUNS}/new"))
    assert "No goldens yet." in words(page.select_one("main"))
    assert not page.select("main form")
