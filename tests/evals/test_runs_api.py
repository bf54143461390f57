"""Eval runs over the API: started, listed, read, cancelled, tried again; and the hook after a deployment."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import func, select

from app.db import db
from app.errors import NotFound, Refused
from app.models import AuditEntry, SessionEvent
from app.services.agents import versions
from app.services.evals import golden as eval_golden
from app.services.evals import golden_lists, promotion, run_lists
from app.services.evals import results as eval_results
from app.services.evals.runs import left_out_notes
from tests.agents.test_replays import CONFIG, Bench, bench
from tests.conftest import Api, Workspace

__all__ = ["bench"]
RUNS = "/api/admin/evals/runs"
WON = 'Find the deal "Halden". Then update entity Halden: set stage to won'


@pytest.fixture
def admin(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("admin"), "admin")


def test_a_golden_is_replayed_and_its_verdict_read(bench: Bench, admin: Api) -> None:
    golden = bench.golden(WON)
    bench.worse()
    started = admin.post(RUNS, {"goldenSessionId": str(golden)})
    assert (started.status_code, started.json["status"]) == (202, "queued")
    url = f"{RUNS}/{started.json['id']}"
    assert admin.get(url).json["progress"]["total"] == 1
    bench.drain()
    run = admin.get(url).json
    assert (run["status"], run["passed_count"], run["failed_count"]) == ("completed", 0, 1)
    case = run["results"]["bySession"][str(golden)]
    assert (case["passed"], case["verdict"]) == (False, "fail")
    assert case["divergences"]
    assert case["replay_session_id"]
    assert [one["id"] for one in admin.get(RUNS).json["items"]] == [started.json["id"]]
    assert admin.get(f"{RUNS}?set=default").json["items"] == []
    assert admin.post(f"{url}/cancel", {}).status_code == 409
    assert admin.post(f"{url}/retry", {}).status_code == 409


def test_a_run_is_deleted_with_its_replays(bench: Bench, admin: Api) -> None:
    golden_id = bench.golden(WON)
    bench.worse()
    run, other = bench.run(set_name="default"), bench.run(set_name="default")
    waiting = bench.run(set_name="default", drain=False)
    assert "in progress" in admin.delete(f"{RUNS}/{waiting.id}").json["detail"]
    admin.post(f"{RUNS}/{waiting.id}/cancel", {})
    gone = [replay.id for replay in bench.replays(run)]
    for replay in gone:
        assert admin.delete(f"/api/v1/sessions/{replay}").status_code == 409
    for one in (run, waiting):
        assert admin.delete(f"{RUNS}/{one.id}").status_code == 204
        assert admin.delete(f"{RUNS}/{one.id}").status_code == 404
    assert [one["id"] for one in admin.get(RUNS).json["items"]] == [str(other.id)]
    (row,) = bench.complaints()
    assert (row.session_id, row.replay_session_id) == (None, gone[0])
    with bench.acting():
        left = select(func.count()).select_from(SessionEvent).where(SessionEvent.session_id.in_(gone))
        assert db.session.scalar(left) == 0
        told = select(AuditEntry.details).where(
            AuditEntry.action == "eval_run.deleted", AuditEntry.subject_id == run.id
        )
        (details,) = db.session.scalars(told)
        assert (details["set"], details["replays"], details["failed"]) == ("default", 1, 1)
        assert golden_lists.get_golden(golden_id, actor=bench.admin).set_name == "default"
        (course,) = run_lists.trends_of(["default"], actor=bench.admin).values()
        assert len(course.accuracies) == 1


def test_a_run_whose_replay_was_promoted_instead_stays(bench: Bench, admin: Api) -> None:
    golden_id = bench.golden(WON)
    bench.worse()
    run = bench.run(set_name="default")
    (replay,) = bench.replays(run)
    with bench.acting():
        copy = promotion.promote_replay(golden_id, replay.id, actor=bench.admin).session.id
    refused = admin.delete(f"{RUNS}/{run.id}")
    assert refused.status_code == 409
    assert str(replay.id) in refused.json["detail"]
    assert len(bench.replays(run)) == 1
    with bench.acting():
        eval_golden.revoke_golden(copy, actor=bench.admin)
    assert admin.delete(f"{RUNS}/{run.id}").status_code == 204


def test_who_deletes_and_who_promotes_at_once_leave_nothing_half_done(bench: Bench) -> None:
    """Either the run is gone and nothing was copied from it, or its replay is golden and the run stays."""

    def delete(run_id: UUID) -> str:
        with bench.acting():
            eval_results.delete_run(run_id, actor=bench.admin)
        return "deleted"

    def promote(golden_id: UUID, replay_id: UUID) -> str:
        with bench.acting():
            promotion.promote_replay(golden_id, replay_id, actor=bench.admin)
        return "promoted"

    def outcome(future: Any) -> str:
        wrong = future.exception()
        assert wrong is None or isinstance(wrong, (NotFound, Refused)), wrong
        return "" if wrong else str(future.result())

    for number in range(6):
        golden_id = bench.golden("List entities", set_name=f"set-{number}")
        run = bench.run(golden_ids=[golden_id])
        (replay,) = bench.replays(run)
        acts: list[Callable[[], str]] = [lambda r=run: delete(r.id)] * 3  # type: ignore[misc]
        acts.insert(number % 4, lambda g=golden_id, r=replay: promote(g, r.id))  # type: ignore[misc]
        with ThreadPoolExecutor(4) as pool:
            done = sorted(filter(None, map(outcome, [pool.submit(act) for act in acts])))
        assert done in (["deleted"], ["promoted"])
        with bench.acting():
            told = select(func.count()).where(AuditEntry.action == "eval_run.deleted", AuditEntry.subject_id == run.id)
            assert db.session.scalar(told) == done.count("deleted")
        assert len(bench.replays(run)) == done.count("promoted")


def test_a_run_is_cancelled_twice_without_harm(bench: Bench, admin: Api) -> None:
    bench.golden(WON)
    started = admin.post(f"{RUNS}/set", {"setName": "default", "trials": 3}).json
    for _ in range(2):
        assert admin.post(f"{RUNS}/{started['id']}/cancel", {}).json["status"] == "cancelled"
    assert bench.drain() == 0


def test_what_cannot_be_run_is_refused(bench: Bench, admin: Api, workspace: Workspace, api: Callable[..., Api]) -> None:
    golden = str(bench.golden(WON))
    assert admin.post(RUNS, {}).status_code == 400
    assert admin.post(RUNS, {"goldenSessionId": golden, "trials": 0}).status_code == 400
    assert admin.post(RUNS, {"goldenSessionId": golden, "context": "thawed"}).status_code == 400
    assert admin.post(RUNS, {"setName": "nothing"}).status_code == 404
    assert admin.post(RUNS, {"goldenSessionId": golden, "agentId": str(uuid4())}).status_code == 404
    assert admin.get(f"{RUNS}/{uuid4()}").status_code == 404
    assert api(workspace.actor("admin"), "feedback").post(RUNS, {"goldenSessionId": golden}).status_code == 403


def test_a_deployment_replays_every_set_of_its_agent(bench: Bench, admin: Api) -> None:
    bench.golden(WON, set_name="one")
    bench.golden("Sing a song", set_name="two")
    with bench.acting():
        slug = versions.get_agent(bench.agent_id, actor=bench.admin).slug
    hooked = admin.post("/api/hooks/post-deploy", {"agent": slug, "ref": "4f2c1e9"})
    assert hooked.status_code == 202
    runs = [admin.get(f"{RUNS}/{one}").json for one in hooked.json["ids"]]
    assert sorted(run["set_name"] for run in runs) == ["one", "two"]
    assert {(run["triggered_by"], run["ref"]) for run in runs} == {("post-deploy", "4f2c1e9")}
    assert admin.post("/api/hooks/post-deploy", {"agent": "nobody"}).status_code == 404


def stranger(bench: Bench, prompt: str, **given: Any) -> UUID:
    """A golden of another agent."""
    bench.desk.agent("stranger", **CONFIG)
    session_id = bench.desk.ask(prompt, agent="stranger")
    bench.drain()
    with bench.acting():
        promotion.promote_session(session_id, promotion.Promotion(**given), actor=bench.admin)
    return session_id


def test_a_deployment_replays_what_its_agent_recorded_and_says_what_it_left_out(bench: Bench, admin: Api) -> None:
    mine = bench.golden(WON)
    stranger(bench, "Sing a song")
    stranger(bench, "Sing a song", set_name="theirs")
    hook = "/api/hooks/post-deploy"
    hooked = admin.post(hook, {"agent": "assistant", "sets": ["default", "theirs"]})
    assert hooked.status_code == 202
    [run_id] = hooked.json["ids"]
    assert hooked.json["left_out"] == 1
    assert [one["set"] for one in hooked.json["skipped"]] == ["theirs"]
    bench.drain()
    run = admin.get(f"{RUNS}/{run_id}").json
    assert (run["golden_session_count"], list(run["results"]["bySession"])) == (1, [str(mine)])
    assert admin.post(hook, {"agent": "assistant", "sets": ["nothing"]}).status_code == 404
    bench.desk.agent("newcomer", **CONFIG)
    refused = admin.post(hook, {"agent": "newcomer"})
    assert (refused.status_code, "no golden" in refused.json["detail"]) == (404, True)
    wrong = admin.post(hook, {"agent": "assistant", "version": 9})
    assert [one["field"] for one in wrong.json["errors"]] == ["version"]


def test_an_empty_name_is_no_set(bench: Bench, admin: Api) -> None:
    golden_id = bench.golden(WON, set_name="other")
    path = "/api/admin/evals/golden"
    refused = [
        admin.patch(f"{path}/{golden_id}", json={"set": ""}),
        admin.post(path, {"sessionId": str(golden_id), "set": ""}),
        admin.post("/api/hooks/post-deploy", {"agent": "assistant", "sets": [""]}),
        admin.post(f"{RUNS}/set", {"setName": ""}),
        admin.post(RUNS, {"setName": " "}),
    ]
    for answer in refused:
        assert answer.status_code == 400
        assert "lowercase letters, digits and hyphens" in answer.json["detail"]
    assert admin.get(f"{path}/{golden_id}").json["set"] == "other"


def test_a_trial_of_another_version_does_not_speak_for_the_set(bench: Bench, admin: Api) -> None:
    golden_id = bench.golden(WON)
    bench.run(set_name="default")
    with bench.acting():
        first = versions.version_id(versions.get_agent(bench.agent_id, actor=bench.admin), 1)
    bench.worse()
    now = bench.run(set_name="default")
    bench.run(set_name="default", agent_version_id=first)
    for more in ({"agent_id": bench.desk.agent("stranger", **CONFIG)}, {"golden_ids": [golden_id], "set_name": None}):
        bench.run(**{"set_name": "default", **more})
    with bench.acting():
        [row] = run_lists.list_set_rows(actor=bench.admin)
    assert row["course"] is not None
    assert row["course"].last.id == now.id
    assert row["score"] is not None
    assert (row["score"].passed, row["score"].judged) == (0, 1)
    assert row["course"].accuracies == [1.0, 0.0]


def test_a_golden_of_an_agent_that_runs_elsewhere_blocks_no_set(bench: Bench, admin: Api) -> None:
    mine = bench.golden(WON)
    said = [{"event_type": "user.message", "payload": {"text": "Hi"}}]
    said += [{"event_type": "agent.message", "payload": {"text": "Hello"}}]
    made = admin.post("/api/v1/sessions", {"agent": "far-away", "status": "completed", "events": said}).json["id"]
    assert admin.post("/api/admin/evals/golden", {"sessionId": made}).status_code == 201
    run = bench.run(set_name="default")
    assert (run.golden_session_count, list(run.results["bySession"])) == (1, [str(mine)])
    assert left_out_notes(run.options)[0].startswith("Left out: 1 golden of external or archived agents")
    assert admin.post(RUNS, {"goldenSessionId": made}).status_code == 409
    with bench.acting():
        offered = run_lists.list_versions(actor=bench.admin, golden_id=UUID(made))
    assert [(one.agent, one.own) for one in offered] == [("assistant", False)]
    both = bench.run(set_name="default", agent_version_id=offered[0].id)
    assert both.golden_session_count == 2
