"""`/api/feedback`: give, read, decide; one's own and the workspace's; and nothing that is not a client's to say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from sqlalchemy import func, select

from app.db import acting_as, db, transaction
from app.models.feedback import Feedback
from app.models.people import AuditEntry
from app.services.agents import versions
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from tests.conftest import Api, Workspace

PATH = "/api/feedback"
GOOD = {"source_type": "chat", "rating": "negative", "comment": "The multiple is wrong."}


@pytest.fixture
def member(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("member"), "feedback")


@pytest.fixture
def admin(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("admin"), "admin")


@pytest.fixture
def count(app: Flask, workspace: Workspace) -> Callable[..., int]:
    """How many rows of a kind the workspace has."""

    def counting(model: Any = Feedback, *where: Any) -> int:
        with app.app_context(), acting_as(workspace.actor("admin")):
            return db.session.scalar(select(func.count()).select_from(model).where(*where)) or 0

    return counting


def give(key: Api, **more: Any) -> dict[str, Any]:
    response = key.post(PATH, GOOD | more)
    assert response.status_code == 201, response.get_data(as_text=True)
    answer: dict[str, Any] = response.get_json()
    return answer


def test_what_is_given_is_stored_and_given_back(member: Api, workspace: Workspace, count: Callable[..., int]) -> None:
    said = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    answer = give(
        member,
        comment='Ünï\u202e😀 <b>"quoted"</b>\n\ttwice',
        context={"chat_id": "c-1", "message_index": 3},
        details={"error_categories": ["hallucination"], "quality_scores": {"accuracy": 20}},
        ts=said.isoformat(),
        trace_id="a" * 32,
        message_id="m-1",
        turn_id="t-1",
        project="deals",
    )
    assert answer["comment"] == 'Ünï\u202e😀 <b>"quoted"</b>\n\ttwice'
    assert answer["context"] == {"chat_id": "c-1", "message_index": 3}
    assert answer["details"] == {"error_categories": ["hallucination"], "quality_scores": {"accuracy": 20}}
    assert answer["occurred_at"] == "2026-01-02T03:04:05.678901Z"
    assert (answer["chat_id"], answer["message_id"], answer["turn_id"]) == ("c-1", "m-1", "t-1")
    assert (answer["trace_id"], answer["project"]) == ("a" * 32, "deals")
    assert (answer["status"], answer["origin"], answer["confidence"]) == ("pending", "user", 1)
    assert answer["created_by"] == str(workspace.actor("member").id)
    read = member.get(f"{PATH}/{answer['id']}").get_json()
    assert {name: read[name] for name in answer} == answer
    assert count(AuditEntry, AuditEntry.action == "feedback.created", AuditEntry.subject_id == answer["id"]) == 1


def test_a_row_costs_few_statements(member: Api, count_queries: Callable[..., Any]) -> None:
    give(member)
    with count_queries() as seen:
        give(member)
    assert len(seen) <= 3, seen


def test_what_only_the_product_decides_is_refused(member: Api, count: Callable[..., int]) -> None:
    forbidden = {
        "status": "applied",
        "tenant_id": str(uuid4()),
        "created_by": str(uuid4()),
        "created_at": "2026-01-01T00:00:00Z",
        "origin": "machine",
        "confidence": 0.9,
        "kind": "flag",
        "signal": "unsafe",
        "outcome": {},
        "reviewed_by_user_id": str(uuid4()),
        "reviewed_at": "2026-01-01T00:00:00Z",
        "review_notes": "mine",
        "id": str(uuid4()),
        "is_system": True,
    }
    for name, value in forbidden.items():
        response = member.post(PATH, GOOD | {name: value})
        assert response.status_code == 400, name
        assert [error["field"] for error in response.get_json()["errors"]] == [name]
    assert count() == 0


def test_errors_in_a_context_name_their_place(member: Api, count: Callable[..., int]) -> None:
    whole = "Send a whole number from 0 to 2,147,483,647."
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({"context": {"chat_id": "c-1", "message_index": 2**31}}, "context.message_index", whole),
        ({"context": {"chat_id": "c-1", "message_index": -(10**30)}}, "context.message_index", whole),
        ({"context": {"chat_id": "c-1", "message_index": True}}, "context.message_index", whole),
        ({"context": {"other": 1}}, "context.other", "Unknown field. Leave it out."),
        ({"source_type": "response", "context": {"response_id": "1"}}, "context.response_id", "Send an ID (a UUID)."),
        ({"source_type": "tool"}, "context.tool_slug", "This is required."),
    ]
    for given, field, sentence in wrong:
        response = member.post(PATH, GOOD | given)
        assert response.status_code == 400, given
        assert response.get_json()["detail"] == f"{field}: {sentence}"
        assert response.get_json()["errors"] == [{"field": field, "message": sentence}]
    assert count() == 0


def test_what_does_not_fit_is_refused_and_not_stored(member: Api, count: Callable[..., int]) -> None:
    ahead = (datetime.now(UTC) + timedelta(minutes=6)).isoformat()
    wrong: list[dict[str, Any]] = [
        {"rating": "great"},
        {"rating": None},
        {"source_type": "mail"},
        {"comment": "x" * 4097},
        {"comment": 5},
        {"comment": "x\x00"},
        {"chat_id": ""},
        {"chat_id": "x" * 257},
        {"session_id": "1"},
        {"agent_id": 7},
        {"context": []},
        {"context": {"unknown": 1}},
        {"context": {"message_index": -1}},
        {"context": {"chat_id": "x\x00"}},
        {"details": {"quality_scores": {"accuracy": 101}}},
        {"details": {"error_categories": ["boredom"]}},
        {"occurred_at": ahead},
        {"ts": "now"},
        {"ts": "infinity"},
        {"ts": "2026-01-01T00:00:00"},
        {"ts": "2026-01-01T00:00:00Z", "occurred_at": "2026-01-01T00:00:00Z"},
        {"agent": "x", "agent_id": str(uuid4())},
    ]
    for change in wrong:
        response = member.post(PATH, GOOD | change)
        assert response.status_code == 400, change
        assert response.mimetype == "application/problem+json"
    assert member.post(PATH, {"rating": "positive"}).status_code == 400
    assert count() == 0
    for limit in (4095, 4096):
        assert len(give(member, comment="x" * limit)["comment"]) == limit


def test_another_workspaces_ids_are_unknown_ids(
    app: Flask, member: Api, make_workspace: Callable[..., Workspace], api: Callable[..., Api]
) -> None:
    other = make_workspace()
    theirs = give(api(other.actor("member"), "feedback"))["id"]
    with app.app_context(), acting_as(other.actor("admin")), transaction():
        agent = str(versions.ensure_agent("their-agent", actor=other.actor("admin")).id)
    unknown = str(uuid4())
    for name in ("agent_id", "session_id", "entity_id"):
        mine = [member.post(PATH, GOOD | {name: value}) for value in (agent, unknown)]
        assert [response.status_code for response in mine] == [400, 400]
        assert mine[0].get_json()["errors"] == mine[1].get_json()["errors"]
    assert [member.post(PATH, GOOD | {"agent": slug}).status_code for slug in ("their-agent", "nobody")] == [400, 400]
    found = [member.get(f"{PATH}/{row}") for row in (theirs, unknown)]
    assert [response.status_code for response in found] == [404, 404]
    assert found[0].get_json()["detail"] == found[1].get_json()["detail"]
    assert member.get(f"{PATH}?agent_id={agent}").get_json()["items"] == []


def test_members_see_their_own_and_admins_see_all(
    workspace: Workspace, member: Api, admin: Api, api: Callable[..., Api]
) -> None:
    other = api(workspace.actor("other"), "feedback", "admin")
    mine, theirs = give(member)["id"], give(other)["id"]

    def listed(key: Api) -> set[str]:
        return {row["id"] for row in key.get(PATH).get_json()["items"]}

    assert listed(member) == {mine}
    assert listed(other) == {theirs}
    assert listed(admin) == {mine, theirs}
    assert listed(api(workspace.actor("admin"), "feedback")) == set()
    assert member.get(f"{PATH}/{theirs}").status_code == 404
    assert admin.get(f"{PATH}/{theirs}").status_code == 200


def test_filters_narrow_and_nothing_else_is_taken(app: Flask, workspace: Workspace, member: Api) -> None:
    with app.app_context(), acting_as(workspace.actor("admin")), transaction():
        agent = versions.ensure_agent("deal-analyst", actor=workspace.actor("admin")).id
    first = give(member, rating="positive", agent="deal-analyst")["id"]
    second = give(member, source_type="tool", context={"tool_slug": "search"})["id"]

    def listed(query: str) -> list[str]:
        response = member.get(f"{PATH}?{query}")
        assert response.status_code == 200, (query, response.get_json())
        return [row["id"] for row in response.get_json()["items"]]

    assert listed("") == [second, first]
    assert listed("rating=positive") == listed(f"agent_id={agent}") == listed("source_type=chat") == [first]
    assert listed("source_type=tool&status=pending&origin=user") == [second]
    assert listed("status=applied") == listed("signal=helpful") == listed("origin=machine") == []
    item = member.get(f"{PATH}?rating=positive").get_json()["items"][0]
    assert (item["agent"], item["author"]) == ("deal-analyst", workspace.actor("member").name)
    assert listed("status=&rating=&agent_id=&limit=&cursor=") == [second, first]
    refused = (
        "status=open rating=%00 rating=%ff rating=+ agent_id=7 tenant_id=x q=x status=pending&status=applied limit=abc"
    )
    refused += " limit=1e3 limit=%EF%BC%91 cursor=x cursor=%00 cursor=" + "a" * 501
    for query in refused.split():
        response = member.get(f"{PATH}?{query}")
        assert response.status_code == 400, query
        assert response.mimetype == "application/problem+json"


def test_pages_follow_each_other_without_gap_or_repeat(member: Api) -> None:
    given = [give(member, comment=str(number))["id"] for number in range(5)]
    seen: list[str] = []
    cursor, pages = "", 0
    while True:
        answer = member.get(f"{PATH}?limit=2{cursor}").get_json()
        assert set(answer) == {"items", "next_cursor"}
        seen += [row["id"] for row in answer["items"]]
        pages += 1
        if answer["next_cursor"] is None:
            break
        cursor = f"&cursor={answer['next_cursor']}"
    assert (seen, pages) == (given[::-1], 3)
    assert len(member.get(f"{PATH}?limit=0").get_json()["items"]) == 1
    assert len(member.get(f"{PATH}?limit=99999999999999").get_json()["items"]) == 5


def test_an_admin_who_reads_someone_leaves_a_trace(member: Api, admin: Api, count: Callable[..., int]) -> None:
    theirs, own = give(member)["id"], give(admin)["id"]

    def traces(row: str) -> int:
        return count(AuditEntry, AuditEntry.action == "feedback.read", AuditEntry.subject_id == row)

    before = count(AuditEntry)
    member.get(f"{PATH}/{theirs}")
    admin.get(f"{PATH}/{own}")
    admin.get(PATH)
    assert count(AuditEntry) == before
    admin.get(f"{PATH}/{theirs}")
    assert (traces(theirs), traces(own)) == (1, 0)


def test_decisions_follow_the_states(member: Api, admin: Api, workspace: Workspace) -> None:
    path = f"{PATH}/{give(member)['id']}"

    def decide(action: str, **more: Any) -> tuple[int, str | None]:
        response = admin.patch(path, {"action": action, **more})
        return response.status_code, response.get_json().get("status") if response.status_code == 200 else None

    assert decide("reopen")[0] == 409
    assert decide("reviewed", notes="seen") == (200, "reviewed")
    assert decide("reviewed")[0] == 409
    assert decide("applied") == (200, "applied")
    read = admin.get(path).get_json()
    assert read["reviewed_by_user_id"] == str(workspace.actor("admin").id)
    assert read["reviewed_at"] is not None
    assert read["outcome"]["kind"] == "manual"
    assert decide("dismissed")[0] == 409
    assert decide("reopen") == (200, "pending")
    assert decide("dismissed") == (200, "dismissed")
    assert admin.get(path).get_json()["review_notes"]


def test_only_admins_decide_and_only_what_there_is_to_decide(
    member: Api, admin: Api, count: Callable[..., int]
) -> None:
    path = f"{PATH}/{give(member)['id']}"
    assert member.patch(path, {"action": "dismissed"}).status_code == 403
    refused: list[Any] = [
        {},
        [],
        {"notes": "x"},
        {"action": "delete"},
        {"action": "applied", "status": "applied"},
        {"action": "applied", "notes": 5},
        {"action": "dismissed", "notes": "x" * 4097},
    ]
    for body in refused:
        assert admin.patch(path, body).status_code == 400, body
    assert admin.patch(f"{PATH}/{uuid4()}", {"action": "applied"}).status_code == 404
    assert admin.delete(path).status_code == 405
    assert count(Feedback, Feedback.status == "pending") == 1


def test_an_observation_by_an_admin_is_a_flag(member: Api, admin: Api) -> None:
    assert give(admin, source_type="observation")["kind"] == "flag"
    assert give(member, source_type="observation")["kind"] == "comment"
    assert admin.post(PATH, {"source_type": "observation", "rating": "negative"}).status_code == 400


def test_a_hidden_author_is_hidden_here_too(member: Api, admin: Api, workspace: Workspace) -> None:
    row = give(member)["id"]
    assert admin.patch("/api/admin/settings", {"author_private": True}).status_code == 200
    for answer in (admin.get(f"{PATH}/{row}").get_json(), admin.get(PATH).get_json()["items"][0]):
        assert answer["created_by"] is None
        assert workspace.actor("member").name not in str(answer)
        assert str(workspace.actor("member").id) not in str(answer)


def test_members_read_what_came_of_it_and_nobody_s_name(
    app: Flask, workspace: Workspace, member: Api, admin: Api
) -> None:
    actor, given = workspace.actor("admin"), give(member)
    path, row_id = f"{PATH}/{given['id']}", UUID(given["id"])

    def read() -> dict[str, Any]:
        found: dict[str, Any] = member.get(path).get_json()
        [listed] = [one for one in member.get(PATH).get_json()["items"] if one["id"] == given["id"]]
        names = ("outcome", "review_notes", "reviewed_by_user_id", "reviewed_by_agent_id")
        assert {name: listed[name] for name in names} == {name: found[name] for name in names}
        assert found["reviewer"] is found["reviewed_by_user_id"] is None
        assert actor.name not in member.get(path).text
        return found

    assert admin.patch(path, {"action": "dismissed"}).status_code == 200
    assert read()["review_notes"] is None
    admin.patch(path, {"action": "reopen"})
    admin.patch(path, {"action": "dismissed", "notes": "The basis was right."})
    assert read()["review_notes"] == "The basis was right."
    admin.patch(path, {"action": "reopen"})
    with app.app_context(), acting_as(actor), transaction():
        new = NewRow(type="lesson", content="Quote the basis.", feedback_ids=[row_id])
        rule = knowledge_rows.add_row(new, actor=actor, proposed=True).id
    assert read()["knowledge"] == []
    with app.app_context(), acting_as(actor), transaction():
        knowledge_rows.set_state(rule, "active", actor=actor)
    assert [one["content"] for one in read()["knowledge"]] == ["Quote the basis."]
    assert (read()["status"], read()["outcome"]["kind"]) == ("applied", "knowledge")
    admin.patch(path, {"action": "reopen"})
    admin.patch(path, {"action": "applied"})
    assert read()["outcome"] == {"kind": "manual"}
