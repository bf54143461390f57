"""Eval runs over the API: started, listed, read, cancelled, tried again; and the hook after a deployment."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from app.services import agents
from tests.agents.test_replays import Bench, bench
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
        slug = agents.get_agent(bench.agent_id, actor=bench.admin).slug
    hooked = admin.post("/api/hooks/post-deploy", {"agent": slug, "ref": "4f2c1e9"})
    assert hooked.status_code == 202
    runs = [admin.get(f"{RUNS}/{one}").json for one in hooked.json["ids"]]
    assert sorted(run["set_name"] for run in runs) == ["one", "two"]
    assert {(run["triggered_by"], run["ref"]) for run in runs} == {("post-deploy", "4f2c1e9")}
    assert admin.post("/api/hooks/post-deploy", {"agent": "nobody"}).status_code == 404
