"""Running a tool: what is wrong is an answer, what breaks changes nothing, and no database is no answer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError

from app.db import db
from app.errors import Refused
from app.services.entities import store as entity_store
from app.tools import TOOLS, Outcome, Tool, ToolScope, find_tool, run_tool
from tests.tools.conftest import Bench


def test_wrong_arguments_are_answers_that_say_what_to_send(bench: Bench) -> None:
    assert bench.refused("getEntity") == "getEntity needs `entityId`."
    assert bench.refused("getEntity", {"entityId": "x"}) == "`entityId`: Send an ID (a UUID)."
    assert "it takes `entityId`" in bench.refused("getEntity", {"entityId": str(bench.entity_id), "tenant": "x"})
    assert "it takes nothing" in bench.refused("listAgents", {"all": True})
    assert "Send at most 100" in bench.refused("listFeedback", {"limit": 101})
    for wrong in ([1], "text", '"text"', "{", 7, True):
        assert "JSON" in bench.refused("listFeedback", wrong)


def test_arguments_may_come_as_text(bench: Bench) -> None:
    assert bench.ok("getEntity", json.dumps({"entityId": str(bench.entity_id)}))["name"] == "Project Kestrel"


def test_what_cannot_be_stored_is_refused(bench: Bench) -> None:
    deep: Any = {}
    for _ in range(3000):
        deep = {"a": deep}
    for value in ("a\x00b", "\ud800", float("nan"), float("inf"), 10**400, deep, object()):
        for name, arguments in (
            ("addLesson", {"content": value}),
            ("updateEntity", {"entityId": str(bench.entity_id), "changes": {"valuation": value}}),
        ):
            assert bench.run(name, arguments).is_error, (name, str(value)[:40])
    assert bench.ok("listSharedContext")["items"] == []


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(TOOLS), st.dictionaries(st.text(max_size=8), st.none() | st.booleans() | st.text(max_size=20)))
def test_no_arguments_raise(bench: Bench, tool: Tool, arguments: dict[str, Any]) -> None:
    with bench.app.app_context():
        outcome = run_tool(tool, arguments, ToolScope(actor=bench.agent("member"), call_id="c"))
    json.dumps(outcome.output, allow_nan=False)


def broken(call: Any) -> Tool:
    return replace(find_tool("listEntities"), call=call)


def test_a_tool_that_breaks_says_so_and_changes_nothing(bench: Bench) -> None:
    def half(_arguments: Any, scope: ToolScope) -> Outcome:
        entity_store.create_entity(entity_type="deal", name="Half", fields={}, actor=scope.actor)
        raise RuntimeError("secret detail")

    def refused(_arguments: Any, scope: ToolScope) -> Outcome:
        entity_store.create_entity(entity_type="deal", name="Half", fields={}, actor=scope.actor)
        raise Refused("Not now.")

    scope = ToolScope(actor=bench.agent())
    with bench.app.app_context():
        assert run_tool(broken(half), {}, scope) == Outcome(
            "listEntities broke on our side and changed nothing.", is_error=True
        )
        assert run_tool(broken(refused), {}, scope) == Outcome("Not now.", is_error=True)
    assert bench.ok("searchEntities", {"query": "Half"})["items"] == []


def test_a_database_that_does_not_answer_is_raised(bench: Bench) -> None:
    def down(_arguments: Any, _scope: ToolScope) -> Outcome:
        raise OperationalError("select 1", {}, Exception("gone"))

    with bench.app.app_context(), pytest.raises(OperationalError):
        run_tool(broken(down), {}, ToolScope(actor=bench.agent()))


def test_nothing_stays_open_afterwards(bench: Bench) -> None:
    with bench.app.app_context():
        run_tool(find_tool("listEntities"), {}, ToolScope(actor=bench.agent()))
        assert not db.session().in_transaction()
        assert db.session().info.get("actor") is None


def test_a_tool_of_others_gets_its_arguments_and_no_transaction(bench: Bench) -> None:
    def outside(arguments: Any, _scope: ToolScope) -> Outcome:
        assert not db.session().in_transaction()
        return Outcome({"got": arguments})

    tool = Tool("post", "outside", "Posts.", {"type": "object"}, True, outside)
    with bench.app.app_context():
        assert run_tool(tool, {"x": 1}, ToolScope(actor=bench.agent())).output == {"got": {"x": 1}}
