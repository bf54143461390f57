"""Knowledge over the API: written, found, changed with a version, retired with a reason, deleted to a tombstone."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import func, select

from app.db import acting_as, db, transaction
from app.models import SharedContextEmbedding
from app.services.agents import versions
from app.services.entities import store as entity_store
from app.services.knowledge import rows as knowledge_rows
from tests.conftest import Api, Workspace

PATH = "/api/admin/shared-context"


@pytest.fixture
def admin(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("admin"), "admin")


def add(admin: Api, content: str, **more: object) -> dict[str, object]:
    answer = admin.post(PATH, {"type": "correction", "content": content, **more})
    assert answer.status_code == 201, answer.json
    found: dict[str, object] = answer.json
    return found


def test_a_row_is_active_at_once_and_says_what_the_checks_found(app: Flask, workspace: Workspace, admin: Api) -> None:
    first = add(admin, "Use LTM EBITDA when comparing deals.", context="comparing valuations")
    assert (first["state"], first["active"], first["version"], first["findings"]) == ("active", True, 1, [])
    second = admin.post(PATH, {"type": "lesson", "content": "Use the LTM EBITDA when comparing deals."}).json
    assert [(found["check"], found["other_id"]) for found in second["findings"]] == [("duplicate", first["id"])]
    assert "LTM EBITDA" in second["findings"][0]["reason"]
    assert second["findings"][0]["fix"]
    with app.app_context(), acting_as(workspace.actor("admin")):
        assert db.session.scalar(select(func.count()).select_from(SharedContextEmbedding)) == 2


def test_what_does_not_fit_is_refused(admin: Api) -> None:
    for body, word in (
        ({"type": "rumour", "content": "x"}, "type"),
        ({"type": "lesson"}, "content"),
        ({"type": "lesson", "content": "x" * 2001}, "content"),
        ({"type": "lesson", "content": " "}, "content"),
        ({"type": "lesson", "content": "x", "agent_id": str(uuid4())}, "agent"),
        ({"type": "lesson", "content": "x", "source_feedback_id": str(uuid4())}, "feedback"),
        ({"type": "lesson", "content": "x", "state": "active"}, "state"),
        ({"type": "lesson", "content": "Hid\u200bden"}, "U+200B"),
    ):
        answer = admin.post(PATH, body)
        assert answer.status_code == 400, body
        assert word in answer.get_data(as_text=True)
    add(admin, "Said once.")
    assert admin.post(PATH, {"type": "correction", "content": "said  ONCE."}).status_code == 409


def test_the_list_is_narrowed_and_comes_in_pages(app: Flask, workspace: Workspace, admin: Api) -> None:
    actor = workspace.actor("admin")
    with app.app_context(), acting_as(actor), transaction():
        agent_id = versions.ensure_agent("deal-analyst", actor=actor).id
        type_id = entity_store.create_type(slug="deal", name="Deal", fields={}, actor=actor).id
    mine = add(admin, "For the analyst.", agent_id=str(agent_id))
    deal = add(admin, "For deals.", entity_type_id=str(type_id), type="lesson")
    add(admin, "For all: mind the currency.")

    def ids(query: str) -> list[str]:
        return [item["id"] for item in admin.get(f"{PATH}?{query}").json["items"]]

    assert len(ids("")) == 3
    assert ids("agent=deal-analyst") == [mine["id"]]
    assert ids("entity_type=deal") == [deal["id"]]
    assert ids("type=lesson&state=active") == [deal["id"]]
    assert ids("q=currency") != []
    assert ids("state=proposed") == ids("agent=nobody") == []
    page = admin.get(f"{PATH}?limit=2").json
    rest = admin.get(f"{PATH}?limit=2&cursor={page['next_cursor']}").json
    assert len(page["items"]) == 2
    assert len(rest["items"]) == 1
    assert rest["next_cursor"] is None
    assert admin.get(f"{PATH}?colour=red").status_code == 400


def test_words_are_changed_on_the_version_that_was_read(admin: Api) -> None:
    row = add(admin, "First words.")
    path = f"{PATH}/{row['id']}"
    assert admin.patch(path, {"content": "Second words."}).status_code == 400, "which version was read?"
    changed = admin.patch(path, {"content": "Second words.", "version": 1, "reason": "Clearer."})
    assert (changed.json["version"], changed.json["content"]) == (2, "Second words.")
    stale = admin.patch(path, {"content": "Third words.", "version": 1})
    assert stale.status_code == 409
    assert stale.content_type == "application/problem+json"
    current = stale.json["current"]
    assert (current["content"], current["version"], current["id"]) == ("Second words.", 2, row["id"])
    assert admin.patch(path, {"pinned": True}).json["pinned"] is True
    assert admin.patch(path, {"type": "lesson", "context": None, "version": 3}).json["type"] == "lesson"
    for body in ({}, {"content": None, "version": 4}, {"active": None}, {"version": 4}):
        assert admin.patch(path, body).status_code == 400, body


def test_out_of_use_with_a_reason_and_back(app: Flask, workspace: Workspace, admin: Api) -> None:
    row = add(admin, "A rule.")
    path = f"{PATH}/{row['id']}"
    assert admin.patch(path, {"active": False}).status_code == 400
    off = admin.patch(path, {"active": False, "reason": "Outdated."}).json
    assert (off["state"], off["active"], off["findings"]) == ("inactive", False, [])
    assert admin.patch(path, {"active": True, "version": 1}).status_code == 409
    assert admin.patch(path, {"active": True, "version": 2}).json["state"] == "active"

    member = workspace.actor("member")
    with app.app_context(), acting_as(member), transaction():
        proposed = knowledge_rows.add_row(
            knowledge_rows.NewRow(type="lesson", content="Quote freight to Oslo in euros."), actor=member
        ).id
    assert admin.patch(f"{PATH}/{proposed}", {"active": True}).json["state"] == "active"


def test_deleting_leaves_a_tombstone(admin: Api) -> None:
    row = add(admin, "Gone soon.")
    path = f"{PATH}/{row['id']}"
    for _ in range(2):
        assert admin.delete(path).status_code == 204
    assert admin.get(path).json["state"] == "deleted"
    assert admin.get(PATH).json["items"] == []
    assert [item["id"] for item in admin.get(f"{PATH}?state=deleted").json["items"]] == [row["id"]]
    assert admin.patch(path, {"active": True}).status_code == 409
    assert admin.delete(f"{PATH}/{uuid4()}").status_code == 404


def test_only_admin_keys(workspace: Workspace, api: Callable[..., Api], admin: Api) -> None:
    row = add(admin, "A rule.")
    for key in (api(workspace.actor("admin"), "context"), api(workspace.actor("member"), "feedback")):
        for method, path in (
            ("GET", PATH), ("POST", PATH), ("GET", f"{PATH}/{row['id']}"), ("PATCH", f"{PATH}/{row['id']}"),
            ("DELETE", f"{PATH}/{row['id']}"),
        ):  # fmt: skip
            body = {"active": True} if method == "PATCH" else None
            assert key.request(method, path, body).status_code == 403, (method, path)
