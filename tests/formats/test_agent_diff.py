"""What differs between two versions of an agent, each in the shape that reads best."""

from __future__ import annotations

from typing import Any

import pytest

from app.formats.agent_config import AgentConfig
from app.formats.agent_diff import diff_versions

FULL: dict[str, Any] = AgentConfig.model_validate(
    {
        "instructions": "Compare deals.",
        "skills": [{"name": "tone", "text": "Plain words."}],
        "model": "offline",
        "tool_groups": ["context"],
        "http_tools": [{"name": "lookUp", "url": "https://a.example/x", "headers_env": {"X-Key": "UPSHOT_TOOL_A"}}],
        "mcp_servers": [{"name": "crm", "url": "https://m.example/mcp"}],
        "endpoint_url": "https://run.example/",
    }
).stored() | {"kind": "builtin", "name": "Analyst", "slug": "analyst", "description": "Compares"}


@pytest.mark.parametrize(
    ("after", "name", "shape", "words"),
    [
        ({"instructions": "Compare two deals."}, "Instructions", "text", "Compare two deals."),
        ({"skills": []}, "Skill tone", "removed", "Plain words."),
        ({"skills": [*FULL["skills"], {"name": "new", "text": "N."}]}, "Skill new", "added", "N."),
        ({"skills": [{"name": "tone", "text": "Warm."}]}, "Skill tone", "text", "Warm."),
        ({"model": ""}, "Model", "value", "the server’s default"),
        ({"tool_groups": ["entities-read"]}, "Tool groups", "members", ""),
        ({"http_tools": []}, "HTTP tool lookUp", "removed", "GET https://a.example/x"),
        (
            {"mcp_servers": [{"name": "crm", "url": "https://n.example/"}]},
            "MCP server crm, address",
            "value",
            "n.example",
        ),
        ({"endpoint_url": ""}, "Endpoint URL", "value", "run.example"),
        ({"limits": FULL["limits"] | {"seconds": 1500}}, "Seconds", "value", "1,500"),
        ({"kind": "external"}, "Kind", "value", "external"),
        ({"name": "Deals"}, "Name", "value", "Deals"),
        ({"description": "Other"}, "Description", "text", "Other"),
    ],
)
def test_one_difference_of_each_kind(after: dict[str, Any], name: str, shape: str, words: str) -> None:
    changes = diff_versions(FULL, FULL | after)
    assert [(one.name, one.shape) for one in changes] == [(name, shape)]
    assert words in changes[0].before + changes[0].after


def test_members_say_what_came_and_what_went() -> None:
    (groups,) = diff_versions(FULL, FULL | {"tool_groups": ["entities-read"]})
    assert (groups.came, groups.went) == (["entities-read"], ["context"])


def test_a_tool_that_changed_says_what_of_it() -> None:
    tool = FULL["http_tools"][0] | {"method": "POST", "writes": False, "headers_env": {}, "description": "Look"}
    changes = {one.name: (one.before, one.after) for one in diff_versions(FULL, FULL | {"http_tools": [tool]})}
    assert changes == {
        "HTTP tool lookUp, description": ("", "Look"),
        "HTTP tool lookUp, address": ("GET https://a.example/x", "POST https://a.example/x"),
        "HTTP tool lookUp, effect": ("changes data", "read-only"),
        "HTTP tool lookUp, headers": ("X-Key from UPSHOT_TOOL_A", ""),
    }


def test_what_says_the_same_differs_in_nothing() -> None:
    assert diff_versions(FULL, dict(reversed(FULL.items()))) == []
    assert diff_versions({}, AgentConfig().stored()) == []
    # Versions that were written without names are not said to have had other ones.
    assert diff_versions({"instructions": "x"}, {"instructions": "x", "name": "New", "kind": "builtin"}) == []
    order = [{"name": "a", "text": "1"}, {"name": "b", "text": "2"}]
    (moved,) = diff_versions(FULL | {"skills": order}, FULL | {"skills": order[::-1]})
    assert (moved.before, moved.after) == ("a, b", "b, a")
