"""`upshot import messages` and `upshot feedback add`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from flask import Flask
from sqlalchemy import select

from app.cli import command
from app.db import acting_as, db
from app.models import AgentSession, Feedback
from tests.conftest import Workspace

RUNS: list[dict[str, Any]] = [
    {
        "external_id": "desk-1",
        "agent": "help-desk",
        "session_type": "agent",
        "status": "completed",
        "tools": [{"name": "find_order", "annotations": {"readOnlyHint": True}}],
        "messages": [
            {"role": "system", "content": "You answer questions about orders."},
            {"role": "user", "content": "Where is order 7?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "function": {"name": "find_order", "arguments": '{"order": 7}'}}],
            },
            {"role": "tool", "tool_call_id": "c1", "name": "find_order", "content": '{"state": "on its way"}'},
            {"role": "assistant", "content": "It is on its way."},
        ],
    },
    {
        "external_id": "desk-2",
        "agent": "help-desk",
        "status": "failed",
        "error": "The order system did not answer.",
        "messages": [{"role": "user", "content": "Cancel order 8."}],
    },
]


@pytest.fixture
def upshot(app_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command on this process's database."""
    monkeypatch.setenv("UPSHOT_DATABASE_URL", app_url)
    monkeypatch.setenv("UPSHOT_DATA_DIR", str(tmp_path))

    def run(*args: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(command, args, input=stdin)

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "desk.ndjson"
    path.write_text("\n".join([json.dumps(RUNS[0]), "{", json.dumps(RUNS[1])]) + "\n")
    return path


def test_a_file_goes_in_with_one_command_and_once(
    app: Flask, workspace: Workspace, upshot: Callable[..., Result], file: Path
) -> None:
    first = upshot("import", "messages", str(file), "--tenant", workspace.slug, "--json")
    assert first.exit_code == 0
    told = json.loads(first.stdout)
    assert (told["created"], told["existing"], told["failed"]) == (2, 0, 1)
    assert [error["line"] for error in told["errors"]] == [2]
    again = upshot("import", "messages", "-", "--tenant", workspace.slug, stdin=file.read_bytes())
    assert again.exit_code == 0
    assert "0 new sessions, 2 known before, 1 bad line." in again.stdout
    assert "line 2: The line is not JSON" in again.stderr
    with app.app_context(), acting_as(workspace.actor("admin")):
        found = db.session.scalars(select(AgentSession).order_by(AgentSession.external_id)).all()
        assert [(one.external_id, one.status, one.event_count, one.title) for one in found] == [
            ("desk-1", "completed", 4, "Where is order 7?"),
            ("desk-2", "failed", 1, "Cancel order 8."),
        ]
        assert found[0].meta["tools"][0]["annotations"] == {"readOnlyHint": True}
        assert db.session.scalars(select(Feedback.comment)).all() == ["The order system did not answer."]


def test_what_cannot_be_imported_is_one_sentence(
    workspace: Workspace, upshot: Callable[..., Result], file: Path
) -> None:
    missing = upshot("import", "messages", str(file.with_name("none.ndjson")), "--tenant", workspace.slug)
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "cannot be read" in missing.stderr
    nowhere = upshot("import", "messages", str(file), "--tenant", "no-such-workspace")
    assert (nowhere.exit_code, nowhere.stderr.count("\n")) == (1, 1)
    file.write_text("nothing of use\n")
    assert upshot("import", "messages", str(file), "--tenant", workspace.slug).exit_code == 1


def test_feedback_from_the_command_line(app: Flask, workspace: Workspace, upshot: Callable[..., Result]) -> None:
    def add(who: str, *more: str) -> Result:
        person = ("--tenant", workspace.slug, "--user", f"{who}-{workspace.slug}@example.test")
        return upshot("feedback", "add", *person, *more)

    flag = json.loads(
        add("admin", "--rating", "negative", "--comment", "Pays with 4242 4242 4242 4242", "--json").stdout
    )
    said = json.loads(add("member", "--rating", "positive", "--tool", "find_order", "--json").stdout)
    assert (flag["kind"], flag["source_type"], flag["status"]) == ("flag", "observation", "pending")
    assert (said["kind"], said["source_type"], said["rating"]) == ("tool_observation", "tool", "positive")
    assert "it is pending" in add("member", "--rating", "neutral").stdout
    for refused in (
        add("admin", "--rating", "negative"),
        add("nobody", "--rating", "negative"),
        add("member", "--rating", "negative", "--session", str(uuid4())),
    ):
        assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    with app.app_context(), acting_as(workspace.actor("admin")):
        row = db.session.get(Feedback, flag["id"])
        assert row is not None
        assert (row.comment, row.created_by) == ("Pays with [masked:card]", workspace.actor("admin").id)
