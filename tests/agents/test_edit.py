"""Agents made and changed by people: every save a version, nothing lost to someone slower, what is protected stays."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import func, select

from app.db import acting_as, db, transaction
from app.errors import Forbidden, Invalid, NotFound, Refused, Stale
from app.models import Agent, AuditEntry, SharedContext
from app.services.agents import edit as agent_edit
from app.services.agents import versions
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from app.services.sessions import store as session_store
from app.services.sessions.store import NewSession

pytestmark = pytest.mark.usefixtures("app_context")


def draft(slug: str = "deal-analyst", kind: str = "builtin", **config: Any) -> dict[str, Any]:
    names = {"kind": kind, "slug": slug, "name": "Deal analyst", "description": "Compares deals"}
    return names | {"instructions": "Compare.", "model": "offline"} | config


def make(actor: Any, **more: Any) -> UUID:
    with transaction():
        return agent_edit.create_agent(draft(**more), actor=actor, note="First").id


def called(slug: str, actor: Any) -> Agent:
    found = versions.find_agent(slug, actor=actor)
    assert found is not None
    return found


def audited(actor: Any) -> list[str]:
    wanted = select(AuditEntry.action).where(
        AuditEntry.tenant_id == actor.tenant_id, AuditEntry.subject_type == "agent"
    )
    return list(db.session.scalars(wanted.order_by(AuditEntry.created_at, AuditEntry.id)))


def test_every_save_that_changes_something_is_a_version(workspace: Any) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        agent_id = make(actor)
        with transaction():
            saved = agent_edit.edit_agent(
                agent_id,
                draft(skills=[{"name": "tone", "text": "Plain."}]),
                version=1,
                actor=actor,
                note=" More  tone ",
            )
        assert saved is not None
        assert (saved.version, saved.note, saved.created_by) == (2, "More tone", actor.id)
        with transaction():
            same = agent_edit.edit_agent(
                agent_id, draft(skills=[{"name": "tone", "text": "Plain."}]), version=2, actor=actor
            )
        assert same is None
        rows = versions.list_versions(agent_id, actor=actor)
        assert [(row.version, row.note, row.author) for row in rows] == [
            (2, "More tone", actor.name),
            (1, "First", actor.name),
        ]
        held = versions.read_contents(agent_id, [1, 2], actor=actor)
        assert held[1]["skills"] == []
        assert held[2]["skills"] == [{"name": "tone", "text": "Plain."}]
        assert (held[2]["kind"], held[2]["slug"], held[2]["limits"]["seconds"]) == ("builtin", "deal-analyst", 120)
        assert audited(actor) == ["agent.created", "agent.changed"]


def test_the_second_of_two_is_refused_and_loses_nothing(workspace: Any) -> None:
    actor, owner = workspace.actor(), workspace.actor("owner")
    with acting_as(actor):
        agent_id = make(actor)
        with transaction():
            agent_edit.edit_agent(agent_id, draft(instructions="Theirs."), version=1, actor=actor)
    with acting_as(owner):
        with pytest.raises(Stale) as late, transaction():
            agent_edit.edit_agent(agent_id, draft(instructions="Mine."), version=1, actor=owner)
        assert late.value.current["instructions"] == "Theirs."
        assert called("deal-analyst", owner).current_version == 2


def test_going_back_writes_the_old_content_as_a_new_version(workspace: Any) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        agent_id = make(actor)
        address = {"endpoint_url": "https://agents.example.com/run"}
        changed = {"kind": "endpoint", "slug": "deals", "name": "Deals", "description": "", **address}
        with transaction():
            agent_edit.edit_agent(agent_id, changed, version=1, actor=actor)
        with pytest.raises(Stale), transaction():
            agent_edit.restore_version(agent_id, 1, version=1, actor=actor)
        with transaction():
            saved = agent_edit.restore_version(agent_id, 1, version=2, actor=actor)
        assert (saved.version, saved.note) == (3, "Restored version 1")
        agent = called("deals", actor)
        assert (agent.kind, agent.name, agent.current_version) == ("builtin", "Deals", 3)
        held = versions.read_contents(agent_id, [1, 2, 3], actor=actor)
        assert held[3]["instructions"] == "Compare."
        assert held[2]["endpoint_url"] == "https://agents.example.com/run"
        assert audited(actor)[-1] == "agent.version_restored"
        with pytest.raises(Refused, match="is identical to"), transaction():
            agent_edit.restore_version(agent_id, 1, version=3, actor=actor)
        with pytest.raises(NotFound), transaction():
            agent_edit.restore_version(agent_id, 9, version=3, actor=actor)


def test_a_renamed_agent_still_hears_its_old_name(workspace: Any) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        agent_id = make(actor, slug="deal-analist")
        for version, slug in ((1, "deal-analyst"), (2, "deal-analist")):
            with transaction():
                agent_edit.edit_agent(agent_id, draft(slug), version=version, actor=actor)
            with transaction():
                found = {versions.ensure_agent(name, actor=actor).id for name in ("deal-analist", "deal-analyst")}
            assert found == {agent_id}
            assert called(slug, actor).id == agent_id
        entry = db.session.scalars(select(AuditEntry).where(AuditEntry.action == "agent.changed")).first()
        assert entry is not None
        assert "slug" in entry.details["changes"]


@pytest.mark.parametrize(
    ("change", "place", "words"),
    [
        ({"slug": "Not A Slug"}, "slug", "lowercase letters"),
        ({"kind": "robot"}, "kind", "builtin"),
        ({"kind": "endpoint"}, "endpoint_url", "endpoint URL"),
        ({"model": "x" * 201}, "model", "offline"),
        ({"tool_groups": ["all"]}, "tool_groups", "entities-read"),
        ({"limits": {"seconds": 0}}, "limits.seconds", "Send at least 1"),
        ({"limits": {"seconds": "soon"}}, "limits.seconds", "whole number"),
        ({"skills": [{"name": "", "text": "x"}]}, "skills.0.name", "Send at least 1 character."),
        ({"skills": [{"name": "a", "text": "x"}, {"name": "a", "text": "y"}]}, "skills.1.name", "two called a"),
        ({"skills": [{"name": "a\nb", "text": "x"}]}, "skills.0.name", "one line"),
        ({"skills": [{"name": "a\u200b", "text": "x"}]}, "skills.0.name", "U+200B"),
        ({"skills": [{"name": "a", "text": "x\u202e"}]}, "skills.0.text", "U+202E"),
        ({"instructions": "Be kind.\U000e0041"}, "instructions", "U+E0041"),
        ({"http_tools": [{"name": "1x", "url": "https://a.example"}]}, "http_tools.0.name", "beginning with a letter"),
        ({"http_tools": [{"name": "x", "url": ""}]}, "http_tools.0.url", "Enter a URL"),
        ({"http_tools": [{"name": "x", "url": "http://127.0.0.1/x"}]}, "http_tools.0.url", "UPSHOT_OUTBOUND_ALLOW"),
        ({"mcp_servers": [{"name": "x", "url": "http://localhost/mcp"}]}, "mcp_servers.0.url", "UPSHOT_OUTBOUND_ALLOW"),
        ({"kind": "endpoint", "endpoint_url": "http://169.254.169.254/"}, "endpoint_url", "UPSHOT_OUTBOUND_ALLOW"),
        (
            {"http_tools": [{"name": "x", "url": "https://a.example", "headers_env": {"Authorization": "s3cret"}}]},
            "http_tools.0.headers_env",
            "UPSHOT_TOOL_",
        ),
    ],
)
def test_invalid_values_are_reported_at_their_place(
    workspace: Any, change: dict[str, Any], place: str, words: str
) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        with pytest.raises(Invalid) as wrong, transaction():
            agent_edit.create_agent(draft(**change), actor=actor)
        assert list(wrong.value.fields) == [place]
        assert words in wrong.value.fields[place]
        assert versions.find_agent("deal-analyst", actor=actor) is None


def test_the_operator_may_allow_a_private_host(workspace: Any) -> None:
    actor = workspace.actor()
    with acting_as(actor), transaction():
        new = draft(kind="endpoint", endpoint_url="http://crm.internal:9000/run")
        made = agent_edit.create_agent(new, actor=actor, allow="crm.internal:9000")
        assert made.kind == "endpoint"


def test_a_short_name_belongs_to_one_agent(workspace: Any) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        one = make(actor)
        make(actor, slug="other")
        for slug in ("deal-analyst", "feedback-review-agent"):
            with pytest.raises(Invalid, match="already"), transaction():
                agent_edit.create_agent(draft(slug), actor=actor)
        with pytest.raises(Invalid, match="already"), transaction():
            agent_edit.edit_agent(one, draft("other"), version=1, actor=actor)


def test_of_the_workspaces_own_agent_only_words_model_and_limits_change(workspace: Any) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        review = called("feedback-review-agent", actor)
        before = versions.read_contents(review.id, [1], actor=actor)[1]
        names = {"kind": "external", "slug": "mine", "name": "Mine", "description": "x"}
        taken = names | {"model": "openai:gpt-5", "tool_groups": [], "instructions": "x"}
        with transaction():
            agent_edit.edit_agent(review.id, taken, version=1, actor=actor)
        held = versions.read_contents(review.id, [2], actor=actor)[2]
        assert (held["model"], held["instructions"]) == ("openai:gpt-5", "x")
        assert held["tool_groups"] == before["tool_groups"]
        after = called("feedback-review-agent", actor)
        assert (after.kind, after.name, after.is_system) == ("builtin", review.name, True)
        with pytest.raises(Refused, match="is built in"), transaction():
            agent_edit.restore_version(review.id, 1, version=2, actor=actor)
        with pytest.raises(Refused, match="is built in"), transaction():
            versions.archive_agent(review.id, actor=actor)


def test_an_archived_agent_rests_with_its_knowledge_and_comes_back(workspace: Any) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        agent_id = make(actor)
        with transaction():
            row = knowledge_rows.add_row(
                NewRow(type="lesson", content="Say the period.", agent_id=agent_id), actor=actor
            ).id
        with transaction():
            versions.archive_agent(agent_id, actor=actor)
        db.session.expire_all()
        assert db.session.get_one(SharedContext, row).state == "inactive"
        for change in (
            lambda: agent_edit.edit_agent(agent_id, draft(model=""), version=1, actor=actor),
            lambda: versions.archive_agent(agent_id, actor=actor),
        ):
            with pytest.raises(Refused, match="archived"), transaction():
                change()
        with transaction():
            versions.restore_agent(agent_id, actor=actor)
        assert called("deal-analyst", actor).archived_at is None
        db.session.expire_all()
        assert db.session.get_one(SharedContext, row).state == "inactive"
        assert audited(actor) == ["agent.created", "agent.archived", "agent.restored"]
        with pytest.raises(Refused, match="already active"), transaction():
            versions.restore_agent(agent_id, actor=actor)


def test_only_admins_and_only_their_own_workspace(workspace: Any, make_workspace: Any) -> None:
    actor, member, elsewhere = workspace.actor(), workspace.actor("member"), make_workspace().actor()
    with acting_as(actor):
        agent_id = make(actor)
    for who, error in ((member, Forbidden), (elsewhere, NotFound)):
        with acting_as(who):
            for change in (
                lambda who=who: agent_edit.edit_agent(agent_id, draft(), version=1, actor=who),
                lambda who=who: agent_edit.restore_version(agent_id, 1, version=1, actor=who),
                lambda who=who: versions.restore_agent(agent_id, actor=who),
            ):
                with pytest.raises(error), transaction():
                    change()
    with acting_as(member), pytest.raises(Forbidden), transaction():
        agent_edit.create_agent(draft("mine"), actor=member)
    with acting_as(actor), pytest.raises(NotFound), transaction():
        agent_edit.edit_agent(uuid4(), draft(), version=1, actor=actor)


def test_the_database_itself_keeps_versions_as_they_were(workspace: Any, app_url: str, superuser_url: str) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        agent_id = make(actor)
    attacks = (
        "UPDATE agent_versions SET config = '{}' WHERE agent_id = %s",
        "DELETE FROM agent_versions WHERE agent_id = %s",
    )
    for url, error in (
        (app_url, psycopg.errors.InsufficientPrivilege),
        (superuser_url, psycopg.errors.RestrictViolation),
    ):
        for attack in attacks:
            with psycopg.connect(url) as connection:
                connection.execute("select set_config('app.tenant_id', %s, true)", (str(actor.tenant_id),))
                with pytest.raises(error):
                    connection.execute(attack, (agent_id,))  # type: ignore[arg-type]


def test_a_session_names_the_version_that_ran(workspace: Any) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        agent_id = make(actor)
        with transaction():
            agent_edit.edit_agent(agent_id, draft(model=""), version=1, actor=actor)
            first, _ = session_store.create_session(
                NewSession(agent="deal-analyst", title="Old", agent_version=1), actor=actor
            )
            latest, _ = session_store.create_session(NewSession(agent="deal-analyst", title="New"), actor=actor)
        ids = {row.version: row.id for row in versions.list_versions(agent_id, actor=actor)}
        assert (first.agent_version_id, latest.agent_version_id) == (ids[1], ids[2])
        assert db.session.scalar(select(func.count()).select_from(Agent).where(Agent.slug == "deal-analyst")) == 1
