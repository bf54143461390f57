"""Any two stored sessions compared: over the service, the API and the command line."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from flask import Flask
from sqlalchemy import select

from app.cli import command
from app.db import acting_as, db, transaction
from app.errors import NotFound
from app.models import AgentSession
from app.services.evals import compare as eval_compare
from app.services.ingest import imports as ingest_imports
from app.services.sessions.events import NewEvent, lock_for_events, write_events
from tests.conftest import Api, Workspace
from tests.evals import mutations

Ids = dict[str, Any]


@pytest.fixture
def ids(app: Flask, workspace: Workspace) -> Ids:
    """The hand-made sessions, and one that does the same as `stock-move` with another count."""
    lines = mutations.DATA.read_bytes()
    other = json.loads(lines.splitlines()[0])
    changed = json.dumps({**other, "external_id": "stock-other"}).replace('\\"count\\": 40', '\\"count\\": 41')
    actor = workspace.actor()
    with app.app_context(), acting_as(actor):
        ingest_imports.import_messages(io.BytesIO(lines + changed.encode()), within=transaction, actor=actor)
        rows = db.session.execute(select(AgentSession.external_id, AgentSession.id)).all()
    return {name: session_id for name, session_id in rows if name}


@pytest.fixture
def upshot(app_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("UPSHOT_DATABASE_URL", app_url)
    monkeypatch.setenv("UPSHOT_DATA_DIR", str(tmp_path))
    return lambda *args: CliRunner().invoke(command, ["evals", "compare", *map(str, args)])


def test_every_stored_session_equals_itself(app: Flask, workspace: Workspace, ids: Ids) -> None:
    actor = workspace.actor()
    with app.app_context(), acting_as(actor):
        for session_id in ids.values():
            found = eval_compare.compare_sessions(session_id, session_id, actor=actor)
            assert (found.overall_accuracy, found.divergences) == (1.0, [])


def test_two_sessions_cost_two_queries(
    app: Flask, workspace: Workspace, ids: Ids, count_queries: Callable[[], Any]
) -> None:
    actor = workspace.actor()
    with app.app_context(), acting_as(actor), transaction():
        db.session.execute(select(1))
        with count_queries() as queries:
            found = eval_compare.compare_sessions(ids["stock-move"], ids["stock-other"], actor=actor)

    assert len(queries) == 2, queries
    assert found.reason == "move_stock P-118: count is 41 instead of 40"
    assert [effect.target for effect in found.golden_effects] == ["P-118"]


def test_late_events_find_their_place(app: Flask, workspace: Workspace, ids: Ids) -> None:
    """A result that arrives after the session ended still belongs to the call it answers."""
    actor = workspace.actor()
    with app.app_context(), acting_as(actor), transaction():
        session = lock_for_events(ids["billing-question"], actor=actor)
        first = eval_compare.load_run(session.id, session.id, actor=actor)[1].events[0]
        early = NewEvent("agent.message", {"text": "One moment."}, session.created_at.replace(year=2020))
        write_events(session, [early], actor=actor)
        events = eval_compare.load_run(session.id, session.id, actor=actor)[1].events

    assert events[0].payload["text"] == "One moment."
    assert events[1] == first


def test_a_session_of_another_workspace_is_not_there(
    app: Flask, workspace: Workspace, make_workspace: Callable[..., Workspace], ids: Ids, api: Callable[..., Api]
) -> None:
    stranger = make_workspace("Other").actor()
    with app.app_context(), acting_as(stranger), pytest.raises(NotFound):
        eval_compare.compare_sessions(ids["records"], ids["records"], actor=stranger)
    body = {"goldenSessionId": str(ids["records"]), "replaySessionId": str(ids["records"])}
    assert api(stranger, "admin").post("/api/admin/evals/compare", json=body).status_code == 404


def test_the_api_answers_with_the_verdict(workspace: Workspace, ids: Ids, api: Callable[..., Api]) -> None:
    body = {"goldenSessionId": str(ids["stock-move"]), "replaySessionId": str(ids["stock-other"])}

    answer = api(workspace.actor(), "admin").post("/api/admin/evals/compare", json=body)

    assert answer.status_code == 200
    assert (answer.json["verdict"], answer.json["passed"]) == ("fail", False)
    assert answer.json["overall_accuracy"] <= 0.59
    assert answer.json["divergences"][0]["path"] == "count"
    assert api(workspace.actor("member"), "feedback").post("/api/admin/evals/compare", json=body).status_code == 403
    for wrong in ({}, {**body, "goldenSessionId": "x"}, {**body, "more": 1}):
        assert api(workspace.actor(), "admin").post("/api/admin/evals/compare", json=wrong).status_code == 400


def test_the_command_says_it_in_words_and_by_its_exit_code(
    workspace: Workspace, ids: Ids, upshot: Callable[..., Result]
) -> None:
    tenant = ("--tenant", workspace.slug)

    same = upshot(ids["records"], ids["records"], *tenant)
    other = upshot(ids["stock-move"], ids["stock-other"], "--json", *tenant)

    assert (same.exit_code, same.stdout.splitlines()[0]) == (
        0, "Passes: created the same thing and updated the same thing. (accuracy 1.00)",
    )  # fmt: skip
    assert other.exit_code == 1
    assert json.loads(other.stdout)["verdict"] == "fail"
    assert upshot(ids["records"], uuid4(), *tenant).exit_code == 3
    assert upshot(ids["records"], ids["records"], "--tenant", "nowhere").exit_code == 3
    assert upshot(ids["records"], "not-an-id", *tenant).exit_code == 2


def test_the_command_in_the_documents_runs(workspace: Workspace, ids: Ids, upshot: Callable[..., Result]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "evals.md").read_text()
    found = re.search(r"^upshot evals compare (.+)$", page, re.MULTILINE)
    assert found is not None
    names = {"$GOLDEN": ids["records"], "$REPLAY": ids["records"], "demo": workspace.slug}

    ran = upshot(*(str(names.get(part, part)) for part in shlex.split(found[1])))

    assert (ran.exit_code, json.loads(ran.stdout)["verdict"]) == (0, "pass")


def test_a_database_that_does_not_answer_has_its_own_exit_code(
    upshot: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSHOT_DATABASE_URL", "postgresql://upshot_app:x@127.0.0.1:1/nothing")

    assert upshot(uuid4(), uuid4()).exit_code == 4
