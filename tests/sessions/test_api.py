"""`/api/v1/sessions`: told once, filled in order, ended once, removed by admins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from app.db import acting_as, db, transaction
from app.formats import session_limits as limits
from app.models import AgentSession, Feedback, SessionEvent
from tests.conftest import Api, Workspace, golden_mark
from tests.threads import run_at_once

PATH = "/api/v1/sessions"
SAID = {"event_type": "user.message", "payload": {"text": "Compare Kestrel and Bluefin"}}
FAR = "2999-01-01T00:00:00Z"


@pytest.fixture
def ingest(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("member"), "ingest")


@pytest.fixture
def admin(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("admin"), "admin")


def make(key: Api, **more: Any) -> Any:
    answer = key.post(PATH, {"agent": "deal-analyst", **more})
    assert answer.status_code in (200, 201), answer.text
    return answer.json


def counted(app: Flask, workspace: Workspace, model: Any) -> int:
    with app.app_context(), acting_as(workspace.actor("admin")):
        return db.session.scalar(select(func.count()).select_from(model)) or 0


def test_a_session_is_stored_once_with_its_columns(ingest: Api) -> None:
    sent = {
        "agent": "brand-new",
        "external_id": "run-1",
        "session_type": "chat",
        "status": "completed",
        "model": "m-1",
        "input_tokens": 12,
        "output_tokens": 3,
        "cost": 0.125,
        "duration_ms": 900,
        "environment": "prod",
        "tags": ["vip", "vip", "eu"],
        "metadata": {"tools": [{"name": "look", "annotations": {"readOnlyHint": True}}]},
        "events": [SAID, {"event_type": "agent.message", "payload": {"text": "Done."}}],
    }
    first = ingest.post(PATH, sent)
    assert first.status_code == 201
    made = first.json
    assert (made["agent"], made["title"], made["event_count"]) == ("brand-new", "Compare Kestrel and Bluefin", 2)
    assert {name: made[name] for name in sent.keys() - {"events", "tags"}} == {
        name: value for name, value in sent.items() if name not in ("events", "tags")
    }
    assert made["tags"] == ["vip", "eu"]
    again = ingest.post(PATH, {**sent, "title": "Other", "agent": "other"})
    assert (again.status_code, again.json) == (200, made)

    read = ingest.get(f"{PATH}/{made['id']}").json
    assert [(event["sequence"], event["event_type"]) for event in read["events"]] == [
        (1, "user.message"),
        (2, "agent.message"),
    ]
    assert made["agent_id"] == read["agent_id"]


def test_lists_by_agent_status_type_and_trace(ingest: Api) -> None:
    ids = [
        make(ingest, agent=agent, status=status)["id"] for agent in ("a", "b") for status in ("running", "completed")
    ]
    traced = make(ingest, trace_id="t" * 32, session_type="tool", metadata={"k": 1})

    def found(query: str) -> list[str]:
        answer = ingest.get(f"{PATH}?{query}")
        assert answer.status_code == 200, answer.text
        return [item["id"] for item in answer.json["items"]]

    assert found("agent=a") == [ids[1], ids[0]]
    assert found("agent=a&status=running") == [ids[0]]
    assert found("type=tool") == found(f"trace_id={'t' * 32}") == [traced["id"]]
    assert found("agent=nobody") == []
    item = ingest.get(f"{PATH}?type=tool").json["items"][0]
    assert {"id", "external_id", "trace_id", "agent", "agent_id", "session_type", "status", "metadata"} <= item.keys()
    assert item["metadata"] == {"k": 1}
    first = ingest.get(f"{PATH}?limit=3").json
    rest = ingest.get(f"{PATH}?limit=3&cursor={first['next_cursor']}").json
    assert [len(page["items"]) for page in (first, rest)] == [3, 2]
    assert rest["next_cursor"] is None
    for wrong in ("status=done", "type=dance", "limit=x", "cursor=zzz", "golden=yes", "agent=a&agent=b"):
        assert ingest.get(f"{PATH}?{wrong}").status_code == 400, wrong


def test_events_are_numbered_by_the_server_and_read_by_time(ingest: Api) -> None:
    session = make(ingest, events=[{**SAID, "occurred_at": "2026-03-01T10:00:00Z"}])
    url = f"{PATH}/{session['id']}/events"
    late = {"event_type": "context.loaded", "payload": {"row_ids": []}, "occurred_at": "2026-03-01T09:00:00+00:00"}
    tool = {"event_type": "tool.result", "payload": {"call_id": "c", "output": "Traceback …"}}
    added = ingest.post(url, {"events": [late, tool]})
    assert added.status_code == 201
    assert (len(added.json["ids"]), added.json["event_count"], added.json["status"]) == (2, 3, "pending")
    events = ingest.get(f"{PATH}/{session['id']}").json["events"]
    assert [event["sequence"] for event in events] == [2, 3, 1]
    assert (events[1]["payload"]["is_error"], events[1]["payload"]["is_error_inferred"]) == (True, True)

    key = {"Idempotency-Key": uuid4().hex}
    once = [ingest.post(url, {"events": [SAID]}, headers=key).json for _ in range(2)]
    assert once[0] == once[1]
    ended = ingest.post(url, {"events": [{"event_type": "session.failed", "payload": {"reason": "Out of fuel"}}]})
    assert (ended.json["event_count"], ended.json["status"]) == (5, "failed")


def test_the_duration_is_what_lies_between_both_times(ingest: Api) -> None:
    times = {"started_at": "2026-03-01T10:00:00Z", "finished_at": "2026-03-01T10:00:02.500+00:00"}
    assert make(ingest, status="completed", **times)["duration_ms"] == 2500
    assert make(ingest, status="completed", duration_ms=7, **times)["duration_ms"] == 7
    assert make(ingest, status="completed", started_at=times["started_at"])["duration_ms"] is None
    turned = {"started_at": times["finished_at"], "finished_at": times["started_at"]}
    refused = ingest.post(PATH, {"agent": "a", "status": "completed", **turned})
    assert (refused.status_code, refused.json["errors"][0]["field"]) == (400, "finished_at")


def test_the_duration_is_computed_when_a_session_ends(ingest: Api) -> None:
    url = f"{PATH}/{make(ingest)['id']}"
    began = ingest.patch(url, {"status": "running", "started_at": "2026-03-01T10:00:00Z"})
    assert began.status_code == 200, began.text
    refused = ingest.patch(url, {"status": "completed", "finished_at": "2026-03-01T09:59:59Z"})
    assert (refused.status_code, refused.json["errors"][0]["field"]) == (400, "finished_at")
    assert "not before" in refused.json["detail"]
    ended = ingest.patch(url, {"status": "completed", "finished_at": "2026-03-01T10:01:00Z"})
    assert (ended.json["duration_ms"], ended.json["finished_at"]) == (60_000, "2026-03-01T10:01:00Z")
    misplaced = [{"status": "running", "finished_at": "2026-03-01T10:01:00Z"}]
    misplaced += [{"status": "completed", "started_at": "2026-03-01T10:01:00Z"}]
    assert [ingest.patch(url, one).status_code for one in misplaced] == [400, 400]


def test_the_time_of_the_last_event_is_when_a_session_ends(ingest: Api) -> None:
    session = make(ingest, status="running", started_at="2026-03-01T10:00:00Z")
    events = [{**SAID, "occurred_at": "2026-03-01T10:00:03Z"}, {"event_type": "session.completed"}]
    assert ingest.post(f"{PATH}/{session['id']}/events", {"events": events}).json["status"] == "completed"
    read = ingest.get(f"{PATH}/{session['id']}").json
    assert (read["finished_at"], read["duration_ms"]) == ("2026-03-01T10:00:03Z", 3000)


def test_writers_at_once_leave_no_gap(app: Flask, ingest: Api) -> None:
    session = make(ingest)
    answers: list[int] = []

    def write() -> None:
        key = Api(app.test_client(), ingest.key)
        for _ in range(3):
            answers.append(key.post(f"{PATH}/{session['id']}/events", {"events": [SAID] * 5}).status_code)

    run_at_once(*[write] * 4)
    assert answers == [201] * 12
    events = ingest.get(f"{PATH}/{session['id']}").json["events"]
    assert sorted(event["sequence"] for event in events) == list(range(1, 61))


def test_a_session_begins_and_ends_once(app: Flask, workspace: Workspace, ingest: Api) -> None:
    url = f"{PATH}/{make(ingest)['id']}"
    assert ingest.patch(url, {"status": "running"}).json["status"] == "running"
    assert ingest.patch(url, {"status": "running"}).status_code == 200
    failed = ingest.patch(url, {"status": "failed", "error": "The key sk-a1b2c3d4e5f6g7h8i9 was refused"})
    assert (failed.json["status"], failed.json["error"]) == ("failed", "The key [masked:key] was refused")
    assert ingest.patch(url, {"status": "failed"}).status_code == 200
    again = ingest.patch(url, {"status": "failed", "error": "The key sk-a1b2c3d4e5f6g7h8i9 was refused"})
    assert again.status_code == 200
    differs = ingest.patch(url, {"status": "failed", "error": "Timed out"})
    assert (differs.status_code, differs.json["error"]) == (200, failed.json["error"])
    assert ingest.get(url).json["error"] == failed.json["error"]
    for status in ("completed", "cancelled", "running"):
        refused = ingest.patch(url, {"status": status})
        assert (refused.status_code, refused.json["current"]) == (409, "failed")
    for wrong in ({}, {"status": "pending"}, {"status": "completed", "error": "x"}, {"error": "x"}, {"title": "x"}):
        assert ingest.patch(url, wrong).status_code == 400, wrong
    assert counted(app, workspace, Feedback) == 1


def test_a_failure_that_arrives_writes_its_feedback(app: Flask, workspace: Workspace, ingest: Api) -> None:
    made = make(ingest, status="failed", error="e" * limits.ERROR)
    with app.app_context(), acting_as(workspace.actor("admin")):
        row = db.session.scalars(select(Feedback)).one()
        assert (row.kind, row.origin, str(row.session_id), row.comment) == (
            "session_failure",
            "system",
            made["id"],
            "e" * limits.ERROR,
        )


def test_a_failure_always_has_a_reason(ingest: Api) -> None:
    ended = {"event_type": "session.failed", "payload": {"reason": "The search timed out."}}
    assert make(ingest, status="failed")["error"] == "The session failed without a reason."
    assert make(ingest, status="failed", events=[SAID, ended])["error"] == "The search timed out."
    assert make(ingest, status="completed")["error"] is None
    url = f"{PATH}/{make(ingest)['id']}"
    assert ingest.patch(url, {"status": "failed"}).json["error"] == "The session failed without a reason."
    began = make(ingest, status="running", started_at="2026-01-01T00:00:01Z")
    late = {**ended, "occurred_at": "2026-01-01T00:00:00Z"}
    assert ingest.post(f"{PATH}/{began['id']}/events", {"events": [late]}).status_code == 201
    read = ingest.get(f"{PATH}/{began['id']}").json
    assert (read["error"], read["finished_at"]) == ("The search timed out.", "2026-01-01T00:00:01Z")


def test_only_admins_delete_and_never_a_golden(app: Flask, workspace: Workspace, ingest: Api, admin: Api) -> None:
    kept, gone = (make(ingest, status="completed", events=[SAID])["id"] for _ in range(2))
    assert ingest.delete(f"{PATH}/{gone}").status_code == 403
    with app.app_context(), acting_as(workspace.actor("admin")), transaction():
        golden = golden_mark("default", "Compare Kestrel and Bluefin")
        db.session.execute(update(AgentSession).where(AgentSession.id == kept).values({AgentSession.meta: golden}))
    assert admin.delete(f"{PATH}/{kept}").status_code == 409
    assert admin.post(f"{PATH}/{kept}/events", {"events": [SAID]}).status_code == 409
    assert admin.delete(f"{PATH}/{gone}").status_code == 204
    assert admin.delete(f"{PATH}/{gone}").status_code == 404
    assert (counted(app, workspace, AgentSession), counted(app, workspace, SessionEvent)) == (1, 1)


def test_another_workspace_is_nowhere(make_workspace: Callable[..., Workspace], api: Callable[..., Api]) -> None:
    here, there = (api(make_workspace().actor("owner"), "admin") for _ in range(2))
    made = make(here, external_id="same", trace_id="same")
    assert make(there, external_id="same")["id"] != made["id"]
    for unknown in (made["id"], uuid4()):
        url = f"{PATH}/{unknown}"
        answers = [there.get(url), there.patch(url, {"status": "running"}), there.delete(url)]
        answers.append(there.post(f"{url}/events", {"events": [SAID]}))
        assert [answer.status_code for answer in answers] == [404] * 4
    assert there.get(f"{PATH}?trace_id=same").json["items"] == []
    links = [make(here)["id"]]
    for name in ("chat_id", "entity_id"):
        assert there.post(PATH, {"agent": "a", name: links[0]}).status_code == 400


def test_every_limit_at_its_edge(app: Flask, workspace: Workspace, ingest: Api) -> None:
    edges: dict[str, Callable[[int], Any]] = {
        "external_id": lambda n: "x" * n,
        "trace_id": lambda n: "x" * n,
        "title": lambda n: "x" * n,
        "error": lambda n: "x" * n,
        "model": lambda n: "x" * n,
        "environment": lambda n: "x" * n,
        "output_type": lambda n: "x" * n,
        "agent": lambda n: "x" * n,
        "tags": lambda n: [f"t{i}" for i in range(n)],
        "events": lambda n: [SAID] * n,
        "input_tokens": lambda n: n,
        "output_tokens": lambda n: n,
        "duration_ms": lambda n: n,
        "cost": lambda n: n,
        "metadata": lambda n: {"k": "x" * (n - 8)},
    }
    most = {
        "external_id": limits.NAME, "trace_id": limits.NAME, "title": limits.TITLE, "error": limits.ERROR,
        "model": limits.MODEL, "environment": limits.ENVIRONMENT, "output_type": limits.OUTPUT_TYPE, "agent": 120,
        "tags": limits.TAGS, "events": limits.EVENTS_AT_ONCE, "input_tokens": limits.TOKENS,
        "output_tokens": limits.TOKENS, "duration_ms": limits.DURATION_MS, "cost": limits.COST,
        "metadata": limits.METADATA_BYTES,
    }  # fmt: skip
    for name, value in edges.items():
        for step, status in ((-1, 201), (0, 201), (1, 400)):
            answer = ingest.post(PATH, {"agent": "edge", name: value(most[name] + step)})
            assert answer.status_code == status, (name, step, answer.text[:300])
            assert status == 201 or name in answer.json["errors"][0]["field"]
    assert ingest.post(PATH, {"agent": "edge", "tags": ["x" * limits.TAG]}).status_code == 201
    assert ingest.post(PATH, {"agent": "edge", "tags": ["x" * (limits.TAG + 1)]}).status_code == 400

    url = f"{PATH}/{make(ingest)['id']}/events"
    for step, status in ((-1, 201), (0, 201), (1, 400)):
        payload = {"text": "x" * (limits.PAYLOAD_BYTES - 11 + step)}
        answer = ingest.post(url, {"events": [{"event_type": "agent.message", "payload": payload}]})
        assert answer.status_code == status, (step, answer.text[:300])
        assert ingest.post(url, {"events": [SAID] * (limits.EVENTS_AT_ONCE + step)}).status_code == status
    assert ingest.post(url, {"events": []}).status_code == 400


def test_a_session_has_an_end_to_its_events(ingest: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVENTS_IN_SESSION", 5)
    url = f"{PATH}/{make(ingest, events=[SAID] * 3)['id']}/events"
    assert [ingest.post(url, {"events": [SAID] * n}).status_code for n in (1, 2, 1, 1)] == [201, 409, 201, 409]


def test_bad_input_is_refused_and_nothing_is_stored(app: Flask, workspace: Workspace, ingest: Api) -> None:
    wrong: list[dict[str, Any]] = [
        {},
        {"agent": "Not A Slug"},
        {"agent": "a\n"},
        {"agent": "a", "status": "done"},
        {"agent": "a", "session_type": "dance"},
        {"agent": "a", "agent_version": 7},
        {"agent": "a", "title": "nul \x00"},
        {"agent": "a", "metadata": {"k\x00": 1}},
        {"agent": "a", "metadata": {"golden": {"set": "x"}}},
        {"agent": "a", "metadata": {"eval_source": "x"}},
        {"agent": "a", "import_id": str(uuid4())},
        {"agent": "a", "created_by": str(uuid4())},
        {"agent": "a", "created_at": "2026-01-01T00:00:00"},
        {"agent": "a", "created_at": FAR},
        {"agent": "a", "started_at": "2026-01-01T00:00:01Z", "finished_at": "2026-01-01T00:00:00Z"},
        {"agent": "a", "chat_id": str(uuid4())},
        {"agent": "a", "cost": "1"},
        {"agent": "a", "cost": -1},
        {"agent": "a", "input_tokens": True},
        {"agent": "a", "tags": [""]},
        {"agent": "a", "events": [{"event_type": "made.up"}]},
        {"agent": "a", "events": [{"event_type": "user.message", "payload": {}}]},
        {"agent": "a", "events": [SAID, {**SAID, "sequence": 7}]},
        {"agent": "a", "events": [{**SAID, "occurred_at": FAR}]},
        {"agent": "a", "events": [{**SAID, "payload": {"text": "\x00"}}]},
    ]
    for body in wrong:
        answer = ingest.post(PATH, body)
        assert answer.status_code == 400, (body, answer.text[:200])
        assert answer.mimetype == "application/problem+json"
    raw = (
        b"{",
        b'{"agent": "a", "agent": "b"}',
        b'{"agent": "a", "cost": NaN}',
        b'{"agent": "a", "cost": 1e999}',
        b'{"agent": "a", "title": "\\ud800"}',
        b'{"agent": "a", "metadata": ' + b'{"a":' * 70 + b"1" + b"}" * 71,
    )
    for text in raw:
        headers = {"Authorization": f"Bearer {ingest.key}"}
        answer = ingest.client.post(PATH, data=text, content_type="application/json", headers=headers)
        assert answer.status_code == 400, text
    assert counted(app, workspace, AgentSession) == 0


def test_keys_need_the_scope(workspace: Workspace, api: Callable[..., Api]) -> None:
    without = api(workspace.actor("admin"), "feedback", "context")
    for answer in (
        without.get(PATH),
        without.post(PATH, {"agent": "a"}),
        without.post("/api/v1/chats", {"agent": "a"}),
    ):
        assert answer.status_code == 403


def test_what_runs_here_is_written_by_its_agent_alone(
    app: Flask, workspace: Workspace, api: Callable[..., Api], run_sessions: Callable[[], int]
) -> None:
    from tests.agents.running import Desk

    desk = Desk(app, workspace)
    desk.agent(model="offline", tool_groups=["entities-read"])
    asked = desk.ask("List entities", by="admin")
    run_sessions()
    forger = api(workspace.actor("member"), "ingest")
    forged = {"events": [{"event_type": "agent.message", "payload": {"text": "Forged."}}]}
    waiting = desk.ask("List entities", by="admin")
    for session_id in (asked, waiting):
        before = desk.look(session_id).types
        assert forger.post(f"/api/v1/sessions/{session_id}/events", forged).status_code == 409
        assert forger.patch(f"/api/v1/sessions/{session_id}", {"status": "completed"}).status_code == 409
        assert desk.look(session_id).types == before
    assert forger.patch(f"/api/v1/sessions/{waiting}", {"status": "cancelled"}).status_code == 403
    assert (
        api(workspace.actor("admin"), "admin")
        .patch(f"/api/v1/sessions/{waiting}", {"status": "cancelled"})
        .get_json()["status"]
        == "cancelled"
    )
    asked_of_ours = {"agent": "feedback-review-agent", "events": []}
    assert forger.post("/api/v1/sessions", asked_of_ours).status_code == 409
