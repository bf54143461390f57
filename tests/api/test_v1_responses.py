"""`PATCH /api/v1/responses/{id}`: decided once; a rejection is one row of feedback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.models import Feedback
from app.services import agents, entities, responses
from tests.conftest import Api, Workspace


@pytest.fixture
def submit(app: Flask, workspace: Workspace) -> Callable[..., UUID]:
    def make(*, extracted: bool = False) -> UUID:
        admin = workspace.actor("admin")
        with app.app_context(), acting_as(admin), transaction():
            slug = f"deal-{uuid4().hex[:8]}"
            entities.create_type(slug=slug, name="Deal", fields={}, actor=admin)
            entity = entities.create_entity(entity_type=slug, name="Kestrel", fields={}, actor=admin)
            agent = agents.ensure_agent("extractor", actor=admin)
            new = responses.NewResponse(
                entity_id=entity.id, values={"ebitda": {"value": 18.4}}, agent_id=agent.id, extracted=extracted
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
