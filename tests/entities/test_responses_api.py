"""`/api/v1/responses`: submitted by people and agents, decided once; a rejection is one row of feedback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.models import AuditEntry, Feedback
from app.services.agents import versions
from app.services.entities import responses
from app.services.entities import store as entity_store
from app.services.sessions import store as session_store
from app.services.sessions.store import NewSession
from tests.conftest import Api, Workspace


@pytest.fixture
def submit(app: Flask, workspace: Workspace) -> Callable[..., UUID]:
    def make(*, extracted: bool = False) -> UUID:
        admin = workspace.actor("admin")
        with app.app_context(), acting_as(admin), transaction():
            slug = f"deal-{uuid4().hex[:8]}"
            entity_store.create_type(slug=slug, name="Deal", fields={}, actor=admin)
            entity = entity_store.create_entity(entity_type=slug, name="Kestrel", fields={}, actor=admin)
            wanted = NewSession(agent="extractor", status="completed", output_type="field" if extracted else None)
            session, _ = session_store.create_session(wanted, actor=admin)
            new = responses.NewResponse(
                entity_id=entity.id,
                values={"ebitda": {"value": 18.4}},
                agent_id=session.agent_id,
                session_id=session.id,
            )
            return responses.submit_response(new, actor=admin).id

    return make


def test_decided_once_and_a_rejection_is_feedback(
    app: Flask, workspace: Workspace, api: Callable[..., Api], submit: Callable[..., UUID]
) -> None:
    key = api(workspace.actor("member"), "feedback")
    good, bad, extracted = (f"/api/v1/responses/{submit(extracted=flag)}" for flag in (False, False, True))
    accepted = key.patch(good, {"status": "accepted"})
    assert (accepted.status_code, accepted.json["status"]) == (200, "accepted")
    for wrong in (
        {},
        {"status": "submitted"},
        {"status": "rejected"},
        {"status": "rejected", "rejection_reason": " "},
        {"status": "rejected", "rejection_reason": "x" * 4097},
        {"status": "accepted", "decided_by": "x"},
    ):
        assert key.patch(bad, wrong).status_code == 400, wrong
    for url in (bad, extracted):
        rejected = key.patch(url, {"status": "rejected", "rejection_reason": "That is revenue."})
        assert (rejected.status_code, rejected.json["rejection_reason"]) == (200, "That is revenue.")
        assert key.patch(url, {"status": "accepted"}).status_code == 409
    with app.app_context(), acting_as(workspace.actor("admin")):
        rows: Any = db.session.scalars(select(Feedback).order_by(Feedback.created_at)).all()
        assert [(row.kind, row.status, row.comment) for row in rows] == [
            ("response_rejection", "pending", "That is revenue."),
            ("extraction_rejection", "applied", "That is revenue."),
        ]


def test_unknown_foreign_and_without_scope(
    make_workspace: Callable[..., Workspace], workspace: Workspace, api: Callable[..., Api], submit: Callable[..., UUID]
) -> None:
    made = submit()
    stranger = api(make_workspace().actor("owner"), "admin")
    for unknown in (made, uuid4()):
        assert stranger.patch(f"/api/v1/responses/{unknown}", {"status": "accepted"}).status_code == 404
    without = api(workspace.actor("admin"), "ingest")
    assert without.patch(f"/api/v1/responses/{made}", {"status": "accepted"}).status_code == 403


@pytest.fixture
def terms(workspace: Workspace, api: Callable[..., Api]) -> dict[str, Any]:
    """A criteria set, made over the API."""
    admin = api(workspace.actor("admin"), "admin")
    sent = {"slug": "terms", "name": "Terms", "dimensions": {"ebitda": {"kind": "numeric"}, "fit": {"kind": "select"}}}
    made = admin.post("/api/admin/criteria-sets", sent)
    assert made.status_code == 201, made.get_data(as_text=True)
    assert admin.post("/api/admin/criteria-sets", sent).status_code == 409
    assert admin.post("/api/admin/criteria-sets", {**sent, "slug": "x", "dimensions": {"a": {}}}).status_code == 400
    assert [row["slug"] for row in admin.get("/api/admin/criteria-sets").json["items"]] == ["terms"]
    found: dict[str, Any] = made.json
    return found


@pytest.fixture
def deal(app: Flask, workspace: Workspace) -> str:
    admin = workspace.actor("admin")
    with app.app_context(), acting_as(admin), transaction():
        entity_store.create_type(slug="deal", name="Deal", fields={}, actor=admin)
        return str(entity_store.create_entity(entity_type="deal", name="Kestrel", fields={}, actor=admin).id)


def test_people_and_agents_submit_responses(
    app: Flask, workspace: Workspace, api: Callable[..., Api], terms: dict[str, Any], deal: str
) -> None:
    member = workspace.actor("member")
    key, feedback_key = api(member, "ingest"), api(member, "feedback")
    sent = {"entity_id": deal, "criteria_set_id": terms["id"], "values": {"ebitda": 18.4}}
    cases = []
    for session in ({}, {"output_type": "field"}, {"session_type": "response"}):
        session_id = None
        if session:
            made = key.post("/api/v1/sessions", {"agent": "extractor", "status": "completed", **session})
            assert made.status_code == 201, made.get_data(as_text=True)
            session_id = made.json["id"]
        answer = key.post("/api/v1/responses", sent | {"session_id": session_id})
        assert answer.status_code == 201, answer.get_data(as_text=True)
        body = answer.json
        assert (body["values"], body["status"]) == ({"ebitda": {"value": 18.4}}, "submitted")
        assert (body["session_id"], body["agent_id"] is not None) == (session_id, session_id is not None)
        cases.append((body["id"], body["extracted"]))
    assert [extracted for _, extracted in cases] == [False, True, False]
    for response, _ in cases:
        rejected = feedback_key.patch(
            f"/api/v1/responses/{response}", {"status": "rejected", "rejection_reason": "That is revenue."}
        )
        assert rejected.status_code == 200
    with app.app_context(), acting_as(workspace.actor("admin")):
        rows: Any = db.session.scalars(select(Feedback).order_by(Feedback.created_at)).all()
        assert [(row.source_type, row.kind, row.status) for row in rows] == [
            ("response", "response_rejection", "pending"),
            ("extraction", "extraction_rejection", "applied"),
            ("response", "response_rejection", "pending"),
        ]
        assert rows[2].context == {
            "response_id": cases[2][0], "criteria_set_id": terms["id"], "field_name": "ebitda",
        }  # fmt: skip
        submitted = select(AuditEntry.id).where(AuditEntry.action == "response.submitted")
        assert len(db.session.scalars(submitted).all()) == 3


def test_what_does_not_fit_is_refused(
    app: Flask,
    make_workspace: Callable[..., Workspace],
    workspace: Workspace,
    api: Callable[..., Api],
    terms: dict[str, Any],
    deal: str,
) -> None:
    key = api(workspace.actor("member"), "ingest")
    good = {"entity_id": deal, "criteria_set_id": terms["id"], "values": {"ebitda": {"value": 1, "confidence": 0.5}}}
    foreign = api(make_workspace().actor("owner"), "admin")
    assert foreign.post("/api/v1/responses", good).status_code == 400, "another workspace's ids are unknown"
    for wrong, field in (
        ({"values": {}}, "values"),
        ({"values": {"colour": "red"}}, "values.colour"),
        ({"values": {"ebitda": "18.4"}}, "values.ebitda"),
        ({"values": {"ebitda": {"value": 1, "confidence": 2}}}, "values.ebitda"),
        ({"values": {"ebitda": {"value": 1, "page": 2}}}, "values.ebitda"),
        ({"entity_id": str(uuid4())}, "entity_id"),
        ({"criteria_set_id": str(uuid4())}, "criteria_set_id"),
        ({"criteria_set_id": None}, "criteria_set_id"),
        ({"session_id": str(uuid4())}, "session_id"),
        ({"agent_id": str(uuid4())}, "agent_id"),
    ):
        answer = key.post("/api/v1/responses", good | wrong)
        assert answer.status_code == 400, wrong
        assert field in answer.get_data(as_text=True)
    with app.app_context(), acting_as(workspace.actor("admin")), transaction():
        versions.ensure_agent("ours", actor=workspace.actor("admin"), kind="builtin")
    run = key.post("/api/v1/sessions", {"agent": "ours", "status": "pending"}).json["id"]
    assert key.post("/api/v1/responses", good | {"session_id": run}).status_code == 409, "its agent speaks for itself"
    assert api(workspace.actor("admin"), "context").post("/api/v1/responses", good).status_code == 403
    assert key.post("/api/admin/criteria-sets", {}).status_code == 403
    assert key.post("/api/v1/responses", good).status_code == 201
