"""Workspaces are made whole, keep to themselves, and remember what their admins decided."""

from __future__ import annotations

from uuid import uuid4

import pytest
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.errors import Invalid, NotFound, Refused
from app.formats.workspace_settings import WorkspaceSettings
from app.models.agents import Agent, AgentVersion, Task
from app.models.people import AuditEntry, Tenant
from app.services.workspaces import store as workspace_store

pytestmark = [pytest.mark.usefixtures("app_context"), pytest.mark.core]


def test_a_new_workspace_has_its_system_user_review_agent_and_task(workspace):
    system = workspace_store.system_actor(workspace.id)

    assert (system.role, system.tenant_id) == ("system", workspace.id)
    with acting_as(system):
        agent = db.session.scalars(select(Agent)).one()
        version = db.session.scalars(select(AgentVersion)).one()
        task = db.session.scalars(select(Task)).one()
        assert (agent.slug, agent.is_system, agent.current_version) == ("feedback-review-agent", True, 1)
        assert version.config["tool_groups"] == ["context", "entities-read", "agents-admin", "feedback-review"]
        assert (task.name, task.enabled, task.cron, task.agent_id) == ("Feedback Review", False, "0 * * * *", agent.id)


def test_a_slug_is_taken_once_and_has_a_form(workspace):
    with pytest.raises(Refused, match="already a workspace"), transaction():
        workspace_store.create_workspace(slug=workspace.slug, name="Again")
    for slug in ("", "-a", "A", "a b", "é", "a" * 61, "a\n"):
        with pytest.raises(Invalid, match="lower-case"), transaction():
            workspace_store.create_workspace(slug=slug, name="Form")


def test_a_workspace_is_found_by_its_slug_and_no_other_is_seen(workspace, make_workspace):
    other = make_workspace()

    with acting_as(None):
        assert workspace_store.find_workspace(workspace.slug) == workspace.id
        assert db.session.scalars(select(Tenant)).all() == []
        with pytest.raises(NotFound, match="no workspace"):
            workspace_store.find_workspace("no-such-workspace")
    with acting_as(workspace.actor("admin")):
        assert db.session.scalars(select(Tenant.id)).all() == [workspace.id]
    assert other.id != workspace.id


def test_an_unknown_workspace_has_no_system_actor():
    with pytest.raises(NotFound):
        workspace_store.system_actor(uuid4())


def test_settings_begin_with_defaults_and_keep_what_was_decided(workspace):
    admin = workspace.actor("admin")
    with acting_as(admin):
        assert workspace_store.get_settings(admin) == WorkspaceSettings()
        with transaction():
            workspace_store.change_settings({"review_enabled": True, "review_cron": "15 */2 * * 1-5"}, actor=admin)
        with transaction():
            workspace_store.change_settings({"timezone": "UTC", "context_top_n": 12}, actor=admin)

        after = workspace_store.get_settings(admin)
        assert (after.review_enabled, after.review_cron, after.context_top_n) == (True, "15 */2 * * 1-5", 12)
        task = db.session.scalars(select(Task)).one()
        assert (task.enabled, task.cron) == (True, "15 */2 * * 1-5")
        noted = db.session.scalars(
            select(AuditEntry.details).where(AuditEntry.action == "settings.changed").order_by(AuditEntry.created_at)
        ).all()
    assert [details["changes"] for details in noted] == [
        {
            "review_enabled": {"from": False, "to": True},
            "review_cron": {"from": "0 * * * *", "to": "15 */2 * * 1-5"},
        },
        {"context_top_n": {"from": 8, "to": 12}},
    ]


def test_settings_that_do_not_fit_change_nothing(workspace):
    admin = workspace.actor("admin")
    wrong = [
        ("review_enabled", "yes"),
        ("review_cron", "60 * * * *"),
        ("review_cron", "* * * *"),
        ("review_cron", "5-2 * * * *"),
        ("review_cron", "*/0 * * * *"),
        ("knowledge_gate", "always"),
        ("timezone", "../etc/passwd"),
        ("timezone", "Mars/Base"),
        ("retention_days", 0),
        ("retention_days", True),
        ("context_top_n", 51),
        ("context_top_n", "8"),
        ("feedback_origins", ["https://a.example/path"]),
        ("feedback_origins", ["javascript:alert(1)"]),
        ("feedback_origins", ["https://a.example:99999"]),
        ("feedback_origins", ["https://a.example"] * 51),
        ("golden", True),
    ]
    with acting_as(admin):
        for name, value in wrong:
            with pytest.raises(Invalid) as raised, transaction():
                workspace_store.change_settings({"author_private": True, name: value}, actor=admin)
            assert list(raised.value.fields) == [name], (name, value)
        assert workspace_store.get_settings(admin) == WorkspaceSettings()


def test_stored_settings_that_do_not_fit_any_more_have_their_default():
    settings = WorkspaceSettings.stored({"timezone": "Old/Zone", "context_top_n": 9, "gone": 1})

    assert (settings.timezone, settings.context_top_n) == ("UTC", 9)


def test_the_system_actor_is_found_without_ending_what_is_open(workspace):
    admin = workspace.actor("admin")
    with acting_as(admin), transaction():
        workspace_store.rename_workspace("Half way", actor=admin)
        assert workspace_store.system_actor(workspace.id).role == "system"
    with acting_as(admin):
        assert workspace_store.get_workspace(actor=admin).name == "Half way"


def test_origins_are_kept_as_browsers_send_them_and_once():
    settings = WorkspaceSettings(feedback_origins=["https://A.example/", "https://a.example", "http://localhost:3000"])

    assert settings.feedback_origins == ["https://a.example", "http://localhost:3000"]


def test_a_workspace_is_renamed_with_a_trace(workspace):
    admin = workspace.actor("admin")
    with acting_as(admin):
        with transaction():
            workspace_store.rename_workspace("  New   name ", actor=admin)
        assert workspace_store.get_workspace(actor=admin).name == "New name"
        entry = db.session.scalars(select(AuditEntry).where(AuditEntry.action == "workspace.renamed")).one()
        assert (entry.details, entry.actor_user_id) == ({"from": "Acme", "to": "New name"}, admin.id)
        with pytest.raises(Invalid), transaction():
            workspace_store.rename_workspace(" ", actor=admin)
