"""Agents through tools: seen without secrets, tuned without getting more rights."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from app.db.paging import Page
from app.errors import Forbidden
from app.services.agents import versions as agent_versions
from app.services.entities import store as entity_store
from app.services.review import drafts
from tests.tools.conftest import Bench

CONFIG: dict[str, Any] = {
    "instructions": "Draft mails.",
    "tool_groups": ["context", "entities-read"],
    "model": "offline",
    "endpoint_url": "https://user:hunter2@agents.example",
    "http_tools": [{"name": "post", "headers_env": {"Authorization": "SECRET_NAME"}}],
}


def made(bench: Bench) -> str:
    return str(bench.within(lambda: agent_versions.ensure_agent("sales-ops", actor=bench.actor(), config=CONFIG).id))


def test_agents_are_listed_and_read_without_addresses_or_keys(bench: Bench) -> None:
    agent_id = made(bench)
    listed = {row["slug"]: row for row in bench.ok("listAgents")["items"]}
    assert {"sales-ops", "deal-analyst", "feedback-review-agent"} == set(listed)
    assert listed["feedback-review-agent"]["isSystem"] is True
    found = bench.ok("getAgent", {"id": agent_id})
    assert found["config"]["instructions"] == "Draft mails."
    assert "hunter2" not in str(found)
    assert "SECRET_NAME" not in str(found)


def test_a_change_is_a_draft_that_keeps_the_rest(bench: Bench) -> None:
    agent_id = made(bench)
    given = {"id": agent_id, "instructions": "Two paragraphs.", "skills": [{"name": "tone", "text": "Plain words."}]}
    outcome = bench.run("updateAgentConfig", given)
    assert outcome.output["status"] == "open"
    assert outcome.events[0].event_type == "agent.updated"
    assert outcome.events[0].payload["changed"] == ["instructions", "skills"]
    assert [row.version for row in versions_of(bench, agent_id)] == [1]

    draft_id = UUID(str(outcome.output["draft_id"]))
    bench.within(lambda: drafts.approve_draft(draft_id, actor=bench.actor()))
    assert [row.version for row in versions_of(bench, agent_id)] == [2, 1]
    held = bench.within(lambda: agent_versions.read_contents(UUID(agent_id), [1, 2], actor=bench.actor()))
    assert held[1] == CONFIG
    assert held[2] == CONFIG | {"instructions": "Two paragraphs.", "skills": given["skills"]}
    assert "changes nothing" in bench.refused("updateAgentConfig", given)


def versions_of(bench: Bench, agent_id: str) -> Any:
    return bench.within(lambda: agent_versions.list_versions(UUID(agent_id), actor=bench.actor()))


def test_entity_types_are_drafted_and_lose_no_field(bench: Bench) -> None:
    wanted = {"currency": {"type": "string", "description": "ISO code"}, "stage": {"type": "string"}}
    given = {"id": str(bench.type_id), "fields": wanted, "reason": "Amounts have currencies."}
    draft_id = UUID(str(bench.ok("updateEntityType", given)["draft_id"]))
    before = bench.within(lambda: entity_store.find_type("deal", actor=bench.actor()).fields)
    assert set(before) == {"valuation", "stage"}
    bench.within(lambda: drafts.approve_draft(draft_id, actor=bench.actor()))
    after = bench.within(lambda: entity_store.find_type("deal", actor=bench.actor()).fields)
    assert after == before | wanted
    assert "Say its type" in bench.refused("updateEntityType", {"id": str(bench.type_id), "fields": {"x": {}}})
    assert "changes nothing" in bench.refused("updateEntityType", given)


def test_an_agent_withdraws_its_own_draft_only(bench: Bench) -> None:
    agent_id = made(bench)
    first = bench.ok("updateAgentConfig", {"id": agent_id, "instructions": "One."})["draft_id"]
    second = bench.ok("updateAgentConfig", {"id": agent_id, "instructions": "Two."})["draft_id"]
    assert "withdrawn" in bench.refused("withdrawDraft", {"id": str(first)}), "the newer one took its place"
    assert "Only its author" in bench.refused("withdrawDraft", {"id": str(second)}, actor=bench.actor("admin"))
    assert bench.ok("withdrawDraft", {"id": str(second)})["status"] == "withdrawn"


def test_no_agent_gives_rights_or_changes_itself(bench: Bench) -> None:
    agent_id = made(bench)
    more = {"id": agent_id, "toolGroups": ["context", "entities-read", "agents-admin"]}
    assert "Only a person" in bench.refused("updateAgentConfig", more)
    fewer = {"id": agent_id, "toolGroups": ["context"]}
    assert bench.ok("updateAgentConfig", fewer)["changed"] == ["tool_groups"]
    assert "Only admins can decide" in bench.within(lambda: decide_as_agent(bench))
    itself = {"id": str(bench.agent_id), "instructions": "Obey me."}
    assert "itself" in bench.refused("updateAgentConfig", itself)
    system = next(row for row in bench.ok("listAgents")["items"] if row["isSystem"])
    assert "is built in" in bench.refused("updateAgentConfig", {"id": system["id"], "instructions": "x"})
    for name in ("model", "endpointUrl", "httpTools", "isSystem", "limits"):
        assert "does not take" in bench.refused("updateAgentConfig", {"id": agent_id, name: "x"})


def decide_as_agent(bench: Bench) -> str:
    [draft] = drafts.list_drafts(drafts.DraftFilters(), Page(10), actor=bench.actor()).items
    with pytest.raises(Forbidden) as refusal:
        drafts.approve_draft(draft.id, actor=bench.agent("admin"))
    return refusal.value.detail


def test_members_get_nothing_of_it(bench: Bench) -> None:
    agent_id = made(bench)
    for name, given in (
        ("listAgents", {}),
        ("getAgent", {"id": agent_id}),
        ("updateAgentConfig", {"id": agent_id, "instructions": "x"}),
        ("updateEntityType", {"id": str(bench.type_id), "name": "x"}),
        ("withdrawDraft", {"id": agent_id}),
    ):
        assert "needs the role admin" in bench.refused(name, given, actor=bench.agent("member"))
