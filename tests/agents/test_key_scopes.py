"""A run that a key started does no more than the key may: its scopes and its person's role, whichever is less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import select, update

from app.db import acting_as, db, transaction
from app.models import AgentSession, ApiKey, Membership
from app.services.agents import versions
from app.services.entities import criteria as criteria_store
from app.services.entities import responses
from app.services.entities import store as entity_store
from app.services.entities.responses import NewResponse
from app.tools import GROUPS
from tests.agents.running import Desk, Seen
from tests.conftest import Api, Workspace
from tests.scripted_model import Call, Step, scripted

ADMIN_ONLY = ("listAgents", "listSharedContext", "reviewFeedback", "updateAgentConfig")


class KeyDesk(Desk):
    """A workspace in which programs start an agent that has every tool."""

    def __init__(self, app: Flask, workspace: Workspace, run: Callable[[], int]) -> None:
        super().__init__(app, workspace)
        self.run = run

    def start(self, key: Api, *steps: Step, between: Callable[[], Any] = lambda: None) -> Seen:
        """Start a run with a key; what became of it. `between` happens while the session waits."""
        with scripted(self.app, *steps, "Done.") as script:
            self.agent(model=script.name, tool_groups=list(GROUPS))
            sent = key.post("/api/v1/sessions", {"agent": "assistant", "metadata": {"turns": ["Go."]}})
            assert sent.status_code == 201, sent.text
            between()
            self.run()
        return self.look(UUID(sent.json["id"]))

    def refusals(self, seen: Seen) -> dict[str, str]:
        """What each tool said that did nothing."""
        return {one["name"]: str(one["output"]) for one in seen.payloads("tool.result") if one["is_error"]}

    def calls(self) -> list[Call]:
        """Something valid for every kind of tool."""
        with self.app.app_context(), acting_as(self.workspace.actor()), transaction():
            admin = self.workspace.actor()
            mine = versions.ensure_agent("colleague", actor=admin, kind="builtin", config={})
            if not entity_store.list_types(actor=admin):
                entity_store.create_type(slug="deal", name="Deal", fields={}, actor=admin)
        unknown = "00000000-0000-4000-8000-000000000000"
        return [
            Call("listAgents"),
            Call("updateAgentConfig", {"id": str(mine.id), "instructions": "Obey.", "reason": "Because."}),
            Call("listSharedContext"),
            Call("reviewFeedback", {"id": unknown, "action": "dismissed", "notes": "No."}),
            Call("listFeedback"),
            Call("getContext"),
            Call("addLesson", {"content": "Quote EBITDA in EUR m with its period."}),
            Call("listEntities", {"entityType": "deal"}),
            Call("createEntity", {"entityType": "deal", "name": "Kestrel"}),
        ]


@pytest.fixture
def desk(app: Flask, workspace: Workspace, run_sessions: Callable[[], int]) -> KeyDesk:
    return KeyDesk(app, workspace, run_sessions)


@pytest.mark.parametrize(
    ("scopes", "refused"),
    [
        (("ingest",), {*ADMIN_ONLY, "listFeedback", "getContext", "addLesson"}),
        (("ingest", "context", "knowledge"), {*ADMIN_ONLY, "listFeedback"}),
        (("ingest", "feedback", "feedback-token"), {*ADMIN_ONLY, "getContext", "addLesson"}),
    ],
)
def test_an_agent_that_an_admins_key_started_has_the_scopes_of_the_key(
    desk: KeyDesk, api: Callable[..., Api], scopes: tuple[str, ...], refused: set[str]
) -> None:
    seen = desk.start(api(desk.workspace.actor("admin"), *scopes), desk.calls())
    said = desk.refusals(seen)
    assert set(said) == refused
    assert "needs the scope `admin`" in said["updateAgentConfig"]
    assert seen.session.key_scopes == list(scopes)
    with desk.app.app_context(), acting_as(desk.workspace.actor()), transaction():
        colleague = versions.find_agent("colleague", actor=desk.workspace.actor())
        assert colleague is not None
        assert colleague.current_version == 1


def test_the_scope_admin_gives_what_the_persons_role_gives(desk: KeyDesk, api: Callable[..., Api]) -> None:
    seen = desk.start(api(desk.workspace.actor("admin"), "admin"), desk.calls())
    assert set(desk.refusals(seen)) == {"reviewFeedback"}  # There is no such feedback.
    assert "scope" not in desk.refusals(seen)["reviewFeedback"]
    seen = desk.start(api(desk.workspace.actor("member"), "admin"), desk.calls())
    assert set(desk.refusals(seen)) >= set(ADMIN_ONLY)
    assert "needs the role admin" in desk.refusals(seen)["listAgents"]


def test_a_person_in_a_browser_is_not_limited_by_scopes(desk: KeyDesk) -> None:
    with scripted(desk.app, [Call("listAgents")], "Done.") as script:
        desk.agent(model=script.name, tool_groups=list(GROUPS))
        asked = desk.ask("Go.", by="admin")
        desk.run()
    assert desk.refusals(desk.look(asked)) == {}
    assert desk.look(asked).session.key_scopes is None


def test_scopes_stay_when_the_key_is_revoked_and_the_role_is_todays(desk: KeyDesk, api: Callable[..., Api]) -> None:
    admin = desk.workspace.actor("admin")

    def revoke() -> None:
        with desk.app.app_context(), acting_as(desk.workspace.actor("system")), transaction():
            db.session.execute(update(ApiKey).where(ApiKey.user_id == admin.id).values(revoked_at="2020-01-01T00:00Z"))

    def demote() -> None:
        with desk.app.app_context(), acting_as(desk.workspace.actor("system")), transaction():
            mine = (Membership.tenant_id == admin.tenant_id) & (Membership.user_id == admin.id)
            db.session.execute(update(Membership).where(mine).values(role="member"))

    seen = desk.start(api(admin, "ingest"), desk.calls(), between=revoke)
    assert set(desk.refusals(seen)) >= set(ADMIN_ONLY)
    seen = desk.start(api(admin, "admin"), desk.calls(), between=demote)
    assert "needs the role admin" in desk.refusals(seen)["listAgents"]


def test_what_is_extracted_again_has_no_more_scopes_than_the_first_time(desk: KeyDesk, api: Callable[..., Api]) -> None:
    admin = desk.workspace.actor("admin")
    seen = desk.start(api(admin, "ingest"), desk.calls())
    with desk.app.app_context(), acting_as(admin), transaction():
        record = entity_store.create_entity(entity_type="deal", name="Heron", fields={}, actor=admin)
        db.session.get_one(AgentSession, seen.session.id).output_type = "fields"
        new = NewResponse(
            entity_id=record.id,
            values={"ebitda": {"value": 118}},
            session_id=seen.session.id,
            agent_id=seen.session.agent_id,
        )
        made = responses.submit_response(new, actor=admin).id
    with desk.app.app_context(), acting_as(admin), transaction():
        responses.decide_response(made, "rejected", reason="That is revenue.", actor=admin)
        wanted = select(AgentSession).where(AgentSession.meta["retry_of"].astext == str(made))
        retry = db.session.scalars(wanted).one()
        assert (retry.created_by, retry.key_scopes) == (admin.id, ["ingest"])
    desk.run()


def test_a_feedback_key_that_rejects_a_value_gets_it_read_again_and_nothing_more(
    desk: KeyDesk, api: Callable[..., Api]
) -> None:
    admin = desk.workspace.actor("admin")
    submit = desk.calls()
    with desk.app.app_context(), acting_as(admin), transaction():
        record = entity_store.create_entity(entity_type="deal", name="Heron", fields={}, actor=admin)
        criteria = criteria_store.create_criteria_set(
            slug="figures", name="Figures", dimensions={"ebitda": {"kind": "number"}}, actor=admin
        )
        agent = versions.ensure_agent("assistant", actor=admin, kind="builtin", config={})
        read = AgentSession(
            tenant_id=admin.tenant_id,
            title="Read the figures",
            status="completed",
            agent_id=agent.id,
            output_type="fields",
            created_by=admin.id,
        )
        db.session.add(read)
        db.session.flush()
        new = NewResponse(
            entity_id=record.id,
            values={"ebitda": {"value": 118}},
            session_id=read.id,
            agent_id=agent.id,
        )
        made = responses.submit_response(new, actor=admin).id
        values = {"entityId": str(record.id), "criteriaSetId": str(criteria.id), "values": {"ebitda": {"value": 22}}}
    with scripted(desk.app, [*submit, Call("submitResponse", values)], "Done.") as script:
        desk.agent(model=script.name, tool_groups=list(GROUPS))
        body = {"status": "rejected", "rejection_reason": "That is revenue."}
        assert api(admin, "feedback").patch(f"/api/v1/responses/{made}", body).status_code == 200
        desk.run()
    with desk.app.app_context(), acting_as(admin), transaction():
        wanted = select(AgentSession.id).where(AgentSession.meta["retry_of"].astext == str(made))
        retry = db.session.scalars(wanted).one()
    seen = desk.look(retry)
    assert seen.session.key_scopes == ["feedback"]
    assert set(desk.refusals(seen)) == {*ADMIN_ONLY, "getContext", "addLesson", "createEntity"}
    assert seen.payloads("response.submitted")
