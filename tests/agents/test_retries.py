"""What was rejected is extracted again, once, by an agent that runs here; others wait and say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.jobs.executor import Executor
from app.models import AgentSession, EntityResponse, Feedback
from app.services.agents import versions
from app.services.entities import criteria as criteria_store
from app.services.entities import responses
from app.services.entities import store as entity_store
from app.services.entities.responses import NewResponse
from app.services.sessions import store as session_store
from app.services.sessions.store import NewSession
from tests.agents.running import Desk
from tests.conftest import Workspace, soup
from tests.loopback_model import LoopbackModel, call, say

REASON = "That is revenue, not EBITDA."


@pytest.fixture
def model() -> Iterator[LoopbackModel]:
    with LoopbackModel(say("I read it again.")) as one:
        yield one


@pytest.fixture
def run(app: Flask, model: LoopbackModel) -> Iterator[Callable[[], int]]:
    one = Executor(app, slots=2)
    one.settings = replace(one.settings, openai_base_url=model.base_url)
    yield one.drain
    one.stop()


class Bench(Desk):
    """A record, two criteria sets, and values that an agent read."""

    def __init__(self, app: Flask, workspace: Workspace) -> None:
        super().__init__(app, workspace)
        admin = workspace.actor()
        with app.app_context(), acting_as(admin), transaction():
            entity_store.create_type(slug="deal", name="Deal", fields={"ebitda": {"type": "number"}}, actor=admin)
            self.entity = entity_store.create_entity(entity_type="deal", name="Kestrel", fields={}, actor=admin).id
            sets = [
                criteria_store.create_criteria_set(
                    slug=slug, name=slug.title(), dimensions={"ebitda": {"kind": "number"}}, actor=admin
                ).id
                for slug in ("figures", "tone")
            ]
            self.criteria = sets[1]

    def rejected(self, by: str = "member", **more: Any) -> UUID:
        """Reject what the agent `assistant` read."""
        admin, actor = self.workspace.actor(), self.workspace.actor(by)
        with self.app.app_context(), acting_as(admin), transaction():
            wanted = NewSession(agent="assistant", status="completed", output_type="field")
            session, _ = session_store.create_session(wanted, actor=admin)
            new = NewResponse(
                entity_id=self.entity,
                criteria_set_id=self.criteria,
                values={"ebitda": {"value": 118, "source": "p. 3"}},
                agent_id=session.agent_id,
                session_id=session.id,
            )
            made = responses.submit_response(new, actor=admin).id
        self.reject(made, actor)
        return made

    def reject(self, response_id: UUID, actor: Any) -> None:
        with self.app.app_context(), acting_as(actor), transaction():
            responses.decide_response(response_id, "rejected", reason=REASON, actor=actor)

    def read(self, *columns: Any) -> list[Any]:
        with self.app.app_context(), acting_as(self.workspace.actor()), transaction():
            table = columns[0].class_
            wanted = select(*columns).where(table.tenant_id == self.workspace.id).order_by(table.created_at)
            return list(db.session.execute(wanted))

    def became(self, sign_in: Callable[..., Any], by: str = "member") -> str:
        """What the person who rejected it reads about it."""
        return str(soup(sign_in(self.workspace.actor(by)).get("/feedback/mine")).select_one(".u-mine").text)


@pytest.fixture
def bench(app: Flask, workspace: Workspace) -> Bench:
    return Bench(app, workspace)


def test_a_rejected_value_is_extracted_again_once(
    bench: Bench, model: LoopbackModel, run: Callable[[], int], sign_in: Callable[..., Any]
) -> None:
    bench.agent(model="openai:slow", tool_groups=["entities-read"], instructions="Read the report.")
    first = bench.rejected()
    _, retry = bench.read(AgentSession.id, AgentSession.status, AgentSession.output_type, AgentSession.created_by)
    assert (retry.status, retry.output_type) == ("pending", "field")
    assert retry.created_by == bench.workspace.actor("member").id
    assert "is waiting to start" in bench.became(sign_in)

    arguments = {
        "entityId": str(bench.entity),
        "criteriaSetId": str(bench.criteria),
        "values": {"ebitda": {"value": 22.1, "source": "p. 9", "confidence": 0.9}},
    }
    model.script.insert(0, call("submitResponse", arguments))
    assert run() == 1
    seen = bench.look(retry.id)
    assert seen.session.status == "completed", seen.session.error
    assert seen.types == [
        "context.loaded", "user.message", "tool.call", "tool.result", "response.submitted", "agent.message",
        "session.completed",
    ]  # fmt: skip
    assert seen.payloads("user.message")[0]["text"] == (
        f"Extract ebitda of Kestrel again, because the last answer, 118, was rejected: {REASON}"
    )
    sent = model.asked[0].json
    system = sent["messages"][0]["content"]
    assert str(bench.entity) in system
    assert "submitResponse" in system
    submit = next(tool["function"] for tool in sent["tools"] if tool["function"]["name"] == "submitResponse")
    assert submit["parameters"]["properties"]["criteriaSetId"]["default"] == str(bench.criteria)
    assert submit["parameters"]["properties"]["entityId"]["default"] == str(bench.entity)
    columns = (EntityResponse.id, EntityResponse.status, EntityResponse.extracted, EntityResponse.session_id)
    old, new = bench.read(*columns, EntityResponse.values, EntityResponse.criteria_set_id)
    assert (old.id, old.status) == (first, "rejected")
    assert (new.status, new.extracted, new.session_id) == ("submitted", True, retry.id)
    assert (new.values["ebitda"]["value"], new.criteria_set_id) == (22.1, bench.criteria)
    assert "which wait for a decision" in bench.became(sign_in)

    bench.reject(new.id, bench.workspace.actor("other"))
    assert len(bench.read(AgentSession.id)) == 2, "a retry that is rejected is not tried again"
    rows = bench.read(Feedback.kind, Feedback.status, Feedback.context)
    assert [(row.kind, row.status) for row in rows] == [
        ("extraction_rejection", "applied"),
        ("extraction_rejection", "pending"),
    ]
    assert rows[0].context["retry_ref"] == str(retry.id)
    assert "retry_ref" not in rows[1].context
    assert "It isn’t retried again." in bench.became(sign_in)
    assert run() == 0


def test_the_offline_model_does_what_its_rules_do(
    bench: Bench, run: Callable[[], int], sign_in: Callable[..., Any]
) -> None:
    bench.agent(model="offline", tool_groups=["entities-read", "entities-write"])
    bench.rejected()
    assert run() == 1
    _, retry = bench.read(AgentSession.id, AgentSession.status, AgentSession.model)
    assert (retry.status, retry.model) == ("completed", "offline")
    assert "submitResponse" not in [call["name"] for call in bench.look(retry.id).payloads("tool.call")]
    assert len(bench.read(EntityResponse.id)) == 1
    assert "A retry submitted nothing." in bench.became(sign_in)


def test_an_agent_that_runs_elsewhere_is_waited_for(
    bench: Bench, run: Callable[[], int], sign_in: Callable[..., Any]
) -> None:
    bench.rejected()
    _, retry = bench.read(AgentSession.id, AgentSession.status)
    assert run() == 0
    seen = bench.look(retry.id)
    assert seen.session.status == "pending"
    assert REASON in seen.payloads("user.message")[0]["text"]
    assert "A retry starts when Assistant picks it up." in bench.became(sign_in)
    page = sign_in(bench.workspace.actor("member")).get(f"/sessions/{retry.id}")
    assert "runs outside Upshot and hasn’t picked this up yet." in page.text


def test_an_archived_agent_is_not_asked(bench: Bench) -> None:
    agent = bench.agent()
    made = bench.rejected
    admin = bench.workspace.actor()
    with bench.app.app_context(), acting_as(admin), transaction():
        versions.archive_agent(agent, actor=admin)
    made()
    assert len(bench.read(AgentSession.id)) == 1, "only the session that was rejected"
    (row,) = bench.read(Feedback.status, Feedback.kind)
    assert (row.status, row.kind) == ("pending", "extraction_rejection")


def test_a_retry_that_fails_says_so(bench: Bench, run: Callable[[], int], sign_in: Callable[..., Any]) -> None:
    bench.agent(model="anthropic:claude-sonnet-4-5")
    bench.rejected()
    assert run() == 1
    _, retry = bench.read(AgentSession.status)
    assert retry.status == "failed"
    assert "A retry failed: The model anthropic:claude-sonnet-4-5 needs a key" in bench.became(sign_in)
