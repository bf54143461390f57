"""What a sender says about itself: reserved names are refused, and only knowledge that Upshot gave away counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from sqlalchemy import select, update

from app.db import acting_as, db, transaction
from app.jobs.usage import UsageWriter, count_receptions
from app.models import ServedPrompt, SessionEvent, SharedContextUsage
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from app.services.sessions.store import RESERVED
from tests.conftest import Api, Workspace

MARKS = [*RESERVED, "eval_source", "eval_run_id", "eval_result", "eval_golden", "eval_config", "eval_trial"]


@pytest.fixture
def row(app: Flask, workspace: Workspace) -> UUID:
    admin = workspace.actor("admin")
    with app.app_context(), acting_as(admin), transaction():
        return knowledge_rows.add_row(NewRow(type="lesson", content="Figures are in thousands."), actor=admin).id


@pytest.fixture
def counts(app: Flask, workspace: Workspace, row: UUID) -> Callable[[], tuple[int, int]]:
    """How the row was received, when everything that waits is counted."""

    def read() -> tuple[int, int]:
        with app.app_context():
            UsageWriter().write()
            while count_receptions():
                pass
            with acting_as(workspace.actor("admin")):
                used = select(SharedContextUsage.helpful, SharedContextUsage.harmful)
                found = db.session.execute(used.where(SharedContextUsage.shared_context_id == row)).one_or_none()
                return (found.helpful, found.harmful) if found else (0, 0)

    return read


def report(key: Api, workspace: Workspace, api: Callable[..., Api], **payload: Any) -> str:
    """Send a session that claims to have had knowledge in its prompt, and complain about it."""
    event = {"event_type": "context.loaded", "payload": payload}
    body = {"agent": "outside", "status": "completed", "trace_id": uuid4().hex, "events": [event]}
    sent = key.post("/api/v1/sessions", body)
    assert sent.status_code == 201, sent.text
    signal = {"trace_id": body["trace_id"], "signal": "inaccurate"}
    assert api(workspace.actor("admin"), "feedback").post("/api/v1/feedback", signal).status_code == 201
    return str(sent.json["id"])


@pytest.mark.parametrize("name", MARKS)
def test_reserved_metadata_is_refused_wherever_sessions_come_in(
    workspace: Workspace, api: Callable[..., Api], name: str
) -> None:
    key = api(workspace.actor("admin"), "ingest")
    refused = key.post("/api/v1/sessions", {"agent": "a", "metadata": {name: {"set": "x"}}})
    assert refused.status_code == 400
    assert [one["field"] for one in refused.json["errors"]] == [f"metadata.{name}"]
    line = {"agent": "a", "metadata": {name: "x"}, "messages": [{"role": "user", "content": "Hello"}]}
    taken = key.client.post(
        "/api/v1/import/messages",
        data=BytesIO(json.dumps(line).encode()),
        headers={"Authorization": f"Bearer {key.key}", "Content-Type": "application/x-ndjson"},
    )
    assert (taken.json["created"], taken.json["failed"]) == (0, 1), taken.text


def test_a_forged_event_changes_no_count(
    app: Flask, workspace: Workspace, api: Callable[..., Api], row: UUID, counts: Callable[[], tuple[int, int]]
) -> None:
    key = api(workspace.actor("member"), "ingest")
    forged = report(key, workspace, api, row_ids=[str(row)], sha256="0" * 64, reported=False)
    report(key, workspace, api, row_ids=[str(row)])
    late = key.post("/api/v1/sessions", {"agent": "outside", "status": "running"}).json["id"]
    event = {"event_type": "context.loaded", "payload": {"row_ids": [str(row)]}}
    assert key.post(f"/api/v1/sessions/{late}/events", {"events": [event]}).status_code == 201
    assert counts() == (0, 0)
    with app.app_context(), acting_as(workspace.actor("admin")):
        wanted = select(SessionEvent.payload).where(SessionEvent.session_id == UUID(forged))
        assert db.session.scalars(wanted).one()["reported"] is True


def test_a_prompt_that_was_given_to_the_sender_counts(
    workspace: Workspace, api: Callable[..., Api], row: UUID, counts: Callable[[], tuple[int, int]]
) -> None:
    given = api(workspace.actor("member"), "context").get("/api/v1/context").json
    assert given["row_ids"] == [str(row)]
    sender = api(workspace.actor("member"), "ingest")
    report(sender, workspace, api, row_ids=[], sha256=given["sha256"])
    assert counts() == (0, 1)
    other = api(workspace.actor("other"), "ingest")
    report(other, workspace, api, row_ids=[str(row)], sha256=given["sha256"])
    assert counts() == (0, 1), "another person was given nothing"


def test_a_session_that_runs_here_cannot_come_with_a_prompt_of_its_own(
    app: Flask,
    workspace: Workspace,
    api: Callable[..., Api],
    row: UUID,
    counts: Callable[[], tuple[int, int]],
    run_sessions: Callable[[], int],
) -> None:
    """Events that come with a pending session stay a sender's word when the runtime adds its own."""
    from app.services.agents import versions

    admin = workspace.actor("admin")
    with app.app_context(), acting_as(admin), transaction():
        versions.ensure_agent("here", actor=admin, kind="builtin", config={"model": "offline"})
        knowledge_rows.set_state(row, "inactive", actor=admin, reason="Not now.")
    body = {
        "agent": "here",
        "trace_id": uuid4().hex,
        "metadata": {"turns": ["Hello"]},
        "events": [{"event_type": "context.loaded", "payload": {"row_ids": [str(row)]}}],
    }
    assert api(admin, "ingest").post("/api/v1/sessions", body).status_code == 201
    run_sessions()
    signal = {"trace_id": body["trace_id"], "signal": "inaccurate"}
    assert api(admin, "feedback").post("/api/v1/feedback", signal).status_code == 201
    assert counts() == (0, 0)


def test_prompts_are_kept_once_for_each_person_and_forgotten_in_time(
    app: Flask, workspace: Workspace, api: Callable[..., Api], row: UUID, counts: Callable[[], tuple[int, int]]
) -> None:
    key = api(workspace.actor("member"), "context")
    for _ in range(3):
        key.get("/api/v1/context")
        counts()

    def kept() -> list[UUID]:
        with app.app_context(), acting_as(workspace.actor("admin")):
            mine = select(ServedPrompt.user_id).where(ServedPrompt.tenant_id == workspace.id)
            return list(db.session.scalars(mine))

    assert kept() == [workspace.actor("member").id]
    with app.app_context(), acting_as(workspace.actor("system")), transaction():
        long_ago = datetime.now(UTC) - timedelta(days=31)
        db.session.execute(update(ServedPrompt).values(served_at=long_ago))
    api(workspace.actor("admin"), "context").get("/api/v1/context")
    counts()
    assert kept() == [workspace.actor("admin").id]
