"""What a replay must not do: repeat an endpoint's real actions, speak for others in a trial run, or give up because a
process was lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from click.testing import CliRunner
from flask import Flask
from sqlalchemy import select, text

from app.cli import command
from app.db import db
from app.errors import Invalid, Refused
from app.jobs.executor import Executor
from app.models import Agent, AuditEntry
from app.services.agents import versions
from app.services.analytics import tab_counts
from app.services.evals import promotion, run_lists
from app.services.evals import replays as eval_replays
from app.services.evals import results as eval_results
from app.services.evals.promotion import Promotion
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from app.services.tasks import schedules as task_schedules
from app.services.tasks.schedules import Plan
from tests.agents.running import Desk
from tests.agents.test_replays import CONFIG, Bench, bench
from tests.conftest import Api, Workspace, soup
from tests.loopback import Loopback, as_json
from tests.loopback_model import LoopbackModel, say

__all__ = ["bench"]
RUNS = "/api/admin/evals/runs"
PAGE = "/admin/agent-review/evals"
BOOKED = {"events": [{"event_type": "agent.message", "payload": {"text": "I booked a table for two."}}]}
WON = 'Find the deal "Halden". Then update entity Halden: set stage to won'


class Booking:
    """An endpoint that books something for real each time it is asked, and goldens of its work."""

    def __init__(self, bench: Bench, server: Loopback) -> None:
        self.bench, self.server = bench, server
        config = {"endpoint_url": f"{server.url}/run"}
        with bench.acting():
            self.agent = versions.ensure_agent("booker", actor=bench.admin, kind="endpoint", config=config).id
        self.executor = Executor(bench.app, slots=2)
        self.executor.settings = replace(self.executor.settings, outbound_allow=server.host)
        bench.drain = self.executor.drain

    def golden(self, set_name: str = "booking") -> UUID:
        session_id = self.bench.desk.ask("Book a table", agent="booker")
        self.executor.drain()
        with self.bench.acting():
            promotion.promote_session(session_id, Promotion(set_name=set_name), actor=self.bench.admin)
        return session_id


@pytest.fixture
def booking(bench: Bench) -> Iterator[Booking]:
    with Loopback(lambda asked: as_json(BOOKED)) as server:
        one = Booking(bench, server)
        yield one
        one.executor.stop()


def test_no_way_leads_to_a_replay_of_an_endpoint(
    booking: Booking, sign_in: Callable[..., Any], api: Callable[..., Api]
) -> None:
    bench, server = booking.bench, booking.server
    golden_id, own = booking.golden(), bench.golden("List entities")
    asked = len(server.asked)
    with bench.acting():
        version = versions.version_id(versions.get_agent(booking.agent, actor=bench.admin), None)
    sentence = "Booker is an endpoint: a replay would repeat its real actions. Choose an agent that runs in Upshot."
    admin = api(bench.admin, "admin")
    for url, body in (
        (RUNS, {"goldenSessionId": str(golden_id)}),
        (RUNS, {"goldenSessionId": str(golden_id), "tools": "live"}),
        (RUNS, {"goldenSessionId": str(golden_id), "toolPolicies": {"*": "refuse"}, "trials": 5}),
        (RUNS, {"setName": "booking", "context": "live"}),
        (RUNS, {"goldenSessionId": str(own), "agentId": str(booking.agent)}),
        (RUNS, {"goldenSessionId": str(own), "agentVersionId": str(version)}),
        (f"{RUNS}/set", {"setName": "booking"}),
        (f"{RUNS}/set", {"setName": "default", "agentId": str(booking.agent)}),
        ("/api/hooks/post-deploy", {"agent": "booker"}),
        ("/api/hooks/post-deploy", {"agent": "booker", "sets": ["booking"]}),
    ):
        answer = admin.post(url, body)
        assert (answer.status_code, answer.json["detail"]) == (409, sentence), (url, body)
    client = sign_in(bench.admin)
    for form in ({"set": "booking"}, {"golden": str(golden_id)}, {"set": "default", "version": str(version)}):
        answer = client.post(f"{PAGE}/runs", data={"csrf_token": client.csrf, **form})
        assert answer.status_code == 409
        assert sentence in soup(answer).text
    with bench.acting(), pytest.raises(Invalid, match="Choose an agent that runs in Upshot"):
        task_schedules.create_task(Plan("Nightly", "booker", "", "0 3 * * *", set="default"), actor=bench.admin)
    with bench.acting():
        task = task_schedules.create_task(Plan("Nightly", "", "", "0 3 * * *", set="booking"), actor=bench.admin)
        with pytest.raises(Refused, match="repeat its real actions"):
            task_schedules.start_task(task.id, actor=bench.admin)
    offered = soup(client.get(f"{PAGE}/runs/new?set=booking"))
    assert str(version) not in {one["value"] for one in offered.select("input[name=version]")}
    assert not soup(client.get(f"{PAGE}/{golden_id}")).select(f"form[action='{PAGE}/runs']")
    bench.drain()
    assert len(server.asked) == asked


def test_the_command_line_refuses_it_too(
    booking: Booking, app_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking.golden()
    asked = len(booking.server.asked)
    monkeypatch.setenv("UPSHOT_DATABASE_URL", app_url)
    monkeypatch.setenv("UPSHOT_DATA_DIR", str(tmp_path))
    for more in ([], ["--agent", "booker"]):
        args = ["evals", "run", "--tenant", booking.bench.workspace.slug, "--set", "booking", *more]
        done = CliRunner().invoke(command, args)
        assert done.exit_code == 3, done.output
        assert "repeat its real actions" in done.output
    assert len(booking.server.asked) == asked


def test_goldens_of_endpoints_are_left_out_of_a_mixed_set(booking: Booking) -> None:
    bench = booking.bench
    booking.golden("mixed")
    own = bench.golden("List entities", set_name="mixed")
    asked = len(booking.server.asked)
    run = bench.run(set_name="mixed")
    assert list(run.results["bySession"]) == [str(own)]
    assert run.options["left_out"] == {"elsewhere": 1}
    assert len(booking.server.asked) == asked


@pytest.mark.parametrize("kind", ["endpoint", "external"])
def test_what_is_queued_when_an_agent_moves_away_errors_without_a_call(bench: Bench, kind: str) -> None:
    golden_id = bench.golden("List entities")
    with Loopback(lambda asked: as_json(BOOKED)) as server:
        run = bench.run(drain=False, set_name="default", trials=2)
        with bench.acting():
            db.session.get_one(Agent, bench.agent_id).kind = kind
            versions.save_version(bench.agent_id, {**CONFIG, "endpoint_url": f"{server.url}/run"}, actor=bench.admin)
        bench.drain()
        ended = bench.look(run.id)
        one = ended.results["bySession"][str(golden_id)]
        assert (ended.status, one["verdict"]) == ("completed", "errored")
        assert one["reason"] == "Assistant no longer runs in Upshot, so this golden was not replayed."
        assert server.asked == []
        assert len(bench.replays(run)) == 2, "what cannot be replayed is not tried again"
        with bench.acting(), pytest.raises(Refused, match="archived or external"):
            eval_results.retry_errored(run.id, actor=bench.admin)


@pytest.fixture
def model() -> Iterator[LoopbackModel]:
    with LoopbackModel(say("There are two deals.")) as one:
        yield one


@pytest.fixture
def modelled(app: Flask, workspace: Workspace, bench: Bench, model: LoopbackModel) -> Iterator[Bench]:
    """The bench with an agent that asks a model, one session after the other."""
    executor = Executor(app, slots=1)
    executor.settings = replace(executor.settings, openai_base_url=model.base_url)
    Desk(app, workspace).agent(model="openai:loopback", instructions="Be brief.")
    bench.drain = executor.drain
    yield bench
    executor.stop()


def test_a_flaky_golden_is_explained_by_a_trial_that_failed(
    modelled: Bench, model: LoopbackModel, api: Callable[..., Api]
) -> None:
    golden_id = modelled.golden("How many deals?")
    good, bad = say("There are two deals."), say("I am sorry, nobody here can help with anything of that kind.")
    model.script = [good, good, bad, good]
    run = modelled.run(set_name="default", trials=3)
    replays = {str(replay.id): replay.meta["eval_result"]["verdict"] for replay in modelled.replays(run)}
    assert sorted(replays.values()) == ["fail", "pass", "pass"]
    told = api(modelled.admin, "admin").get(f"{RUNS}/{run.id}").json["results"]["bySession"][str(golden_id)]
    assert told["verdict"] == "flaky"
    assert replays[told["replay_session_id"]] == "fail"
    assert told["divergences"]
    (failing,) = [one for one in modelled.replays(run) if replays[str(one.id)] == "fail"]
    assert told["reason"] == failing.meta["eval_result"]["reason"]


def test_a_diff_of_a_replay_that_runs_lists_no_failures(
    bench: Bench, sign_in: Callable[..., Any], api: Callable[..., Api]
) -> None:
    golden_id = bench.golden(WON)
    (replay,) = bench.replays(bench.run(drain=False, set_name="default"))
    client, admin = sign_in(bench.admin), api(bench.admin, "admin")
    url = f"{PAGE}/diff/{golden_id}/{replay.id}"
    pair = {"goldenSessionId": str(golden_id), "replaySessionId": str(replay.id)}
    for status in ("pending", "running"):
        with bench.acting():
            held = "UPDATE sessions SET status = :status, lease_until = now() + interval '1 minute' WHERE id = :id"
            db.session.execute(text(held), {"status": status, "id": replay.id})
        page = soup(client.get(url))
        verdict = page.select_one(".u-verdict")
        assert verdict.h2.text == "This replay is still running."
        assert verdict["hx-trigger"] == "every 2s"
        assert not page.select(".is-fail, .u-sbs, .u-sect")
        assert not client.get(f"{url}?part=state", headers={"HX-Request": "true"}).headers.get("HX-Refresh")
        told = admin.post("/api/admin/evals/compare", pair).json
        assert (told["verdict"], told["passed"], told["reason"]) == ("unknown", None, "This replay is still running.")
        assert (told["divergences"], told["dimensions"], told["effects"]) == ([], {}, {"golden": [], "replay": []})
    with bench.acting():
        change = text("UPDATE sessions SET status = 'pending', lease_until = NULL WHERE id = :id")
        db.session.execute(change, {"id": replay.id})
    bench.drain()
    assert client.get(f"{url}?part=state", headers={"HX-Request": "true"}).headers["HX-Refresh"] == "true"
    assert soup(client.get(url)).select(".u-sbs")


def test_trial_runs_write_no_feedback_and_count_nowhere(bench: Bench) -> None:
    """Another version, another agent, other knowledge, a part of the set: none of them speaks for the agents."""
    golden_id = bench.golden(WON)
    assert bench.run(set_name="default").passed_count == 1
    worse = bench.worse()
    with bench.acting():
        versions.save_version(bench.agent_id, CONFIG, actor=bench.admin)
        row = knowledge_rows.add_row(NewRow(type="routing", content="Never use updateEntity."), actor=bench.admin)
        figures = tab_counts.count_tabs(actor=bench.admin)
    stranger = bench.desk.agent("stranger", **CONFIG | {"instructions": "Never use updateEntity."})
    for asked in (
        {"set_name": "default", "agent_version_id": worse},
        {"set_name": "default", "agent_id": stranger},
        {"set_name": "default", "plus_rows": [row.id]},
    ):
        run = bench.run(**asked)
        assert (run.failed_count, run.options["trial"]) == (1, True), asked
    bench.worse()
    assert bench.run(golden_ids=[golden_id]).failed_count == 1
    assert bench.complaints() == []
    with bench.acting():
        course = run_lists.trends_of(["default"], actor=bench.admin)["default"]
        assert course.accuracies == [1.0]
        assert tab_counts.count_tabs(actor=bench.admin) == figures
    assert bench.run(set_name="default").failed_count == 1
    assert len(bench.complaints()) == 1, "a run that counts says what fails"


def test_what_errored_is_tried_once_more_at_the_end_of_a_run(modelled: Bench, model: LoopbackModel) -> None:
    golden_id = modelled.golden("How many deals?")
    before = len(model.asked)
    model.mode = "status 401"
    run = modelled.run(drain=False, set_name="default", trials=2)
    answer = model.answer

    def recover(asked: Any) -> Any:
        if len(model.asked) - before > 2:
            model.mode = "script"
        return answer(asked)

    model.answer = recover
    modelled.drain()
    ended = modelled.look(run.id)
    assert (ended.status, ended.passed_count) == ("completed", 1)
    assert [one["verdict"] for one in ended.results["bySession"][str(golden_id)]["trials"]] == ["pass", "pass"]
    assert len(modelled.replays(run)) == 4
    with modelled.acting():
        told = select(AuditEntry.details).where(AuditEntry.action == "eval_run.retried")
        (details,) = db.session.scalars(told)
        assert (details["cases"], details["automatic"]) == (2, True)


def test_what_errors_again_ends_the_run(modelled: Bench, model: LoopbackModel) -> None:
    golden_id = modelled.golden("How many deals?")
    model.mode = "status 401"
    run = modelled.run(set_name="default")
    assert (run.status, run.results["bySession"][str(golden_id)]["verdict"]) == ("completed", "errored")
    assert len(modelled.replays(run)) == 2


@pytest.mark.parametrize(
    ("lost", "attempt", "passes"),
    [(9, 9, True), (10, 10, True), (11, 11, False), (0, 2, True), (0, 3, False), (5, 8, False)],
)
def test_lost_processes_are_counted_apart_from_failures(bench: Bench, lost: int, attempt: int, passes: bool) -> None:
    bench.golden("List entities")
    run = bench.run(drain=False, set_name="default")
    (replay,) = bench.replays(run)
    with bench.acting():
        change = text("UPDATE sessions SET attempt = :attempt, lost_count = :lost WHERE id = :id")
        db.session.execute(change, {"id": replay.id, "attempt": attempt, "lost": lost})
    bench.drain()
    first = next(one for one in bench.replays(run) if one.id == replay.id)
    assert (first.status == "completed") is passes, first.error
    assert bench.look(run.id).passed_count == 1, "what gave up is tried once more at the end"


def test_replays_of_a_lost_process_come_back_one_by_one(bench: Bench, superuser_url: str) -> None:
    """Right after their leases ended only some of them can be claimed; after a quarter of a lease all can."""
    bench.golden("List entities")
    run = bench.run(drain=False, set_name="default", trials=20)
    person = bench.desk.ask("List entities")
    held = (
        "UPDATE sessions SET status = 'running', attempt = 1, lease_owner = 'gone', started_at = now(),"
        " lease_until = now() - %s * interval '1 second' WHERE (eval_run_id = %s OR id = %s)"
    )
    claim = "SELECT session_id FROM door_claim('me', 1000, interval '60 seconds')"
    claimed = []
    for seconds in (0.1, 7.5, 15.1):
        with psycopg.connect(superuser_url) as connection:
            connection.execute(held, (seconds, run.id, person))
            claimed.append({row[0] for row in connection.execute(claim)})
            counted = "SELECT DISTINCT lost_count FROM sessions WHERE lease_owner = 'me' AND eval_run_id = %s"
            lost = connection.execute(counted, (run.id,)).fetchall()
            connection.rollback()
    replays = {replay.id for replay in bench.replays(run)}
    assert all(person in some for some in claimed), "people do not wait"
    few, some, every = (len(some & replays) for some in claimed)
    assert few < 4 <= some < 17
    assert (every, lost) == (20, [(1,)])
    with bench.acting():
        eval_results.cancel_run(run.id, actor=bench.admin)
    bench.drain()


def during_comparison(monkeypatch: pytest.MonkeyPatch, look: Callable[[], None]) -> None:
    """Call `look` in the thread and at the moment in which a replay is compared with its golden."""
    compare = eval_replays.compare_replay

    def looked_at(*given: Any) -> dict[str, Any]:
        look()
        return compare(*given)

    monkeypatch.setattr(eval_replays, "compare_replay", looked_at)


def test_no_transaction_is_open_while_a_replay_is_compared(
    bench: Bench, superuser_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge that takes a minute must not hold the lock on a session's row for a minute."""
    golden_id = bench.golden(WON)
    run = bench.run(drain=False, set_name="default")
    seen: list[Any] = []

    def look() -> None:
        with psycopg.connect(superuser_url) as other:
            lock = "SELECT count(*) FROM (SELECT id FROM sessions WHERE id = ANY(%s) FOR UPDATE NOWAIT) AS s"
            (free,) = other.execute(lock, ([replay.id, golden_id],)).fetchone() or (0,)
            other.rollback()
        seen.append((db.session().in_transaction(), free))

    (replay,) = bench.replays(run)
    during_comparison(monkeypatch, look)
    bench.drain()
    assert seen == [(False, 2)]
    assert bench.look(run.id).passed_count == 1


def test_a_replay_that_loses_its_lease_while_it_is_compared_stores_nothing(
    bench: Bench, superuser_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.golden(WON)
    bench.worse()
    run = bench.run(drain=False, set_name="default")
    (replay,) = bench.replays(run)

    def lose() -> None:
        with psycopg.connect(superuser_url) as other:
            other.execute(
                "UPDATE sessions SET lease_owner = 'another', attempt = attempt + 1,"
                " lease_until = now() + interval '1 hour' WHERE id = %s",
                (replay.id,),
            )

    during_comparison(monkeypatch, lose)
    bench.drain()
    (after,) = bench.replays(run)
    assert (after.status, after.lease_owner, "eval_result" in after.meta) == ("running", "another", False)
    assert "session.completed" not in bench.desk.look(replay.id).types
    assert bench.complaints() == []
    assert bench.look(run.id).status == "running"
