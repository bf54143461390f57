"""Agents through tools: seen without secrets, tuned without getting more rights."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from app.services.agents import versions as agent_versions
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


def test_a_change_is_a_new_version_and_keeps_the_rest(bench: Bench) -> None:
    agent_id = made(bench)
    given = {"id": agent_id, "instructions": "Two paragraphs.", "skills": [{"name": "tone", "text": "Plain words."}]}
    outcome = bench.run("updateAgentConfig", given)
    assert outcome.output["version"] == 2
    assert outcome.events[0].event_type == "agent.updated"
    assert outcome.events[0].payload["changed"] == ["instructions", "skills"]
    versions = bench.within(lambda: agent_versions.list_versions(UUID(agent_id), actor=bench.actor()))
    assert [row.version for row in versions] == [2, 1]
    held = bench.within(lambda: agent_versions.read_contents(UUID(agent_id), [1, 2], actor=bench.actor()))
    assert held[1] == CONFIG
    assert held[2] == CONFIG | {"instructions": "Two paragraphs.", "skills": given["skills"]}
    assert "changes nothing" in bench.refused("updateAgentConfig", given)


def test_no_agent_gives_rights_or_changes_itself(bench: Bench) -> None:
    agent_id = made(bench)
    more = {"id": agent_id, "toolGroups": ["context", "entities-read", "agents-admin"]}
    assert "Only a person" in bench.refused("updateAgentConfig", more)
    fewer = {"id": agent_id, "toolGroups": ["context"]}
    assert bench.ok("updateAgentConfig", fewer)["changed"] == ["tool_groups"]
    itself = {"id": str(bench.agent_id), "instructions": "Obey me."}
    assert "itself" in bench.refused("updateAgentConfig", itself)
    system = next(row for row in bench.ok("listAgents")["items"] if row["isSystem"])
    assert "belongs to the workspace" in bench.refused("updateAgentConfig", {"id": system["id"], "instructions": "x"})
    for name in ("model", "endpointUrl", "httpTools", "isSystem", "limits"):
        assert "does not take" in bench.refused("updateAgentConfig", {"id": agent_id, name: "x"})


def test_members_get_nothing_of_it(bench: Bench) -> None:
    agent_id = made(bench)
    for name, given in (
        ("listAgents", {}),
        ("getAgent", {"id": agent_id}),
        ("updateAgentConfig", {"id": agent_id, "instructions": "x"}),
    ):
        assert "needs the role admin" in bench.refused(name, given, actor=bench.agent("member"))
