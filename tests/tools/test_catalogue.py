"""Every tool says what it takes, what it does and who may use it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it ships without types

from app.actor import SCOPES
from app.errors import Invalid, NotFound
from app.tools import GROUPS, TOOLS, find_tool, tailor_tools, tools_of
from tests.tools.conftest import Bench

NAMED = {
    "context": {
        "getContext", "listSharedContext", "addCorrection", "addLesson", "addInsight", "updateSharedContext",
        "deactivateSharedContext", "saveMemory",
    },
    "feedback-review": {"listFeedback", "getFeedback", "reviewFeedback", "addFeedback"},
    "entities-read": {
        "listEntityTypes", "searchEntities", "listEntities", "getEntity", "listResponses", "listCriteriaSets",
    },
    "entities-write": {"createEntity", "updateEntity", "submitResponse"},
    "agents-admin": {"listAgents", "getAgent", "updateAgentConfig", "updateEntityType", "withdrawDraft"},
}  # fmt: skip
KNOWLEDGE = ["content", "context", "agentId", "entityTypeId", "sourceFeedbackId"]
SIGNATURES = {
    "addCorrection": (KNOWLEDGE, ["content"]),
    "addLesson": (KNOWLEDGE, ["content"]),
    "addInsight": (KNOWLEDGE, ["content"]),
    "submitResponse": (["entityId", "criteriaSetId", "values"], ["entityId", "criteriaSetId", "values"]),
    "reviewFeedback": (["id", "action", "notes"], ["id", "action", "notes"]),
    "deactivateSharedContext": (["id", "reason"], ["id", "reason"]),
}


def test_the_tools_are_those_that_are_named() -> None:
    assert set(NAMED) == set(GROUPS)
    for group, names in NAMED.items():
        assert {tool.name for tool in tools_of([group])} == names
    assert len({tool.name for tool in TOOLS}) == len(TOOLS)


def test_signatures_are_as_promised() -> None:
    for name, (properties, required) in SIGNATURES.items():
        parameters = find_tool(name).parameters
        assert list(parameters["properties"]) == properties
        assert parameters["required"] == required


def test_schemas_are_valid_short_and_closed() -> None:
    for tool in TOOLS:
        Draft202012Validator.check_schema(tool.parameters)
        text = str(tool.parameters)
        assert "'title'" not in text, tool.name
        assert "$ref" not in text, tool.name
        assert "'null'" not in text, tool.name
        assert tool.parameters["additionalProperties"] is False
        for name, schema in tool.parameters["properties"].items():
            assert re.fullmatch(r"[a-z]+([A-Z][a-z]+)*", name), (tool.name, name)
            if name == "id" or name.endswith("Id"):
                assert schema.get("format") == "uuid" or name in {"toolRunId", "messageId"}, (tool.name, name)


def test_descriptions_roles_and_marks_are_sound() -> None:
    for tool in TOOLS:
        assert 20 <= len(tool.description) <= 400, tool.name
        assert tool.description.endswith(".")
        assert tool.role in {"member", "admin"}
        assert (tool.scope == "admin") == (tool.role == "admin"), tool.name
        assert tool.scope in SCOPES or tool.group in {"entities-read", "entities-write"}
        assert tool.writes == tool.name.startswith(
            ("add", "create", "update", "deactivate", "review", "save", "submit", "withdraw")
        ), tool.name


def test_unknown_names_are_refused() -> None:
    with pytest.raises(NotFound):
        find_tool("dropTables")
    with pytest.raises(Invalid):
        tools_of(["context", "root"])


def test_a_workspace_s_names_are_in_its_schemas(bench: Bench) -> None:
    def names() -> dict[str, Any]:
        tools = tailor_tools(tools_of(GROUPS), actor=bench.actor(), entity_id=bench.entity_id)
        return {tool.name: tool.parameters["properties"] for tool in tools}

    found = bench.within(names)
    assert found["createEntity"]["entityType"]["enum"] == ["deal"]
    assert found["updateEntity"]["changes"]["properties"]["valuation"] == {"type": "number"}
    assert found["updateEntity"]["entityId"]["default"] == str(bench.entity_id)
    assert found["submitResponse"]["criteriaSetId"]["default"] == str(bench.criteria_set_id)
    assert set(found["submitResponse"]["values"]["properties"]) == {"valuation", "stage"}
    assert "enum" not in find_tool("createEntity").parameters["properties"]["entityType"]
    for name, properties in found.items():
        Draft202012Validator.check_schema({"type": "object", "properties": properties})
        assert list(properties) == list(find_tool(name).parameters["properties"])
