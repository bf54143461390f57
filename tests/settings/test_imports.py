"""Imports: line by line, once, undone as a whole."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, select, update

from app.db import acting_as, db, transaction
from app.db.paging import Page
from app.errors import Forbidden, NotFound, Refused
from app.formats.session_limits import EVENTS_AT_ONCE, LINE_BYTES
from app.models import AgentSession, AuditEntry, Feedback, Import, SessionEvent
from app.services.feedback import intake as feedback_intake
from app.services.feedback.intake import NewFeedback
from app.services.ingest import imports as ingest_imports
from app.services.ingest.imports import Result
from app.services.sessions import store as session_store
from app.services.sessions.event_windows import events_of
from app.services.workspaces import store as workspace_store
from tests.conftest import golden_mark
from tests.threads import run_at_once

pytestmark = [pytest.mark.usefixtures("app_context")]


def line(name: str, **more: Any) -> bytes:
    said = [{"role": "user", "content": f"Where is order {name}?"}, {"role": "assistant", "content": "On its way."}]
    return json.dumps({"external_id": name, "agent": "help-desk", "messages": said, **more}).encode() + b"\n"


def take(actor: Any, *lines: bytes, **more: Any) -> Result:
    return ingest_imports.import_messages(io.BytesIO(b"".join(lines)), within=transaction, actor=actor, **more)


def stored(model: Any, *where: Any) -> int:
    return db.session.scalar(select(func.count()).select_from(model).where(*where)) or 0


def test_bad_lines_are_named_and_the_rest_goes_in_once(workspace: Any) -> None:
    actor = workspace.actor("member")
    lines = [
        b"\xef\xbb\xbf" + line("1", tags=["vip"], model="m-1", input_tokens=5, environment="prod"),
        b"\n",
        b"not json\n",
        line("2"),
        line("1"),
        line("3", agent="Wrong Name"),
        line("4").rstrip(b"\n"),
    ]
    with acting_as(actor):
        first = take(actor, *lines, filename="desk.ndjson")
        assert (first.created, first.existing, first.failed) == (3, 1, 2)
        assert [error.line for error in first.errors] == [3, 6]
        again = take(actor, *lines)
        assert (again.created, again.existing, again.failed) == (0, 4, 2)
        assert stored(AgentSession) == 3
        session = session_store.find_session("1", actor=actor)
        assert session is not None
        assert (session.title, session.tags, session.model, session.environment) == (
            "Where is order 1?", ["vip"], "m-1", "prod",
        )  # fmt: skip
        assert (session.import_id, session.event_count, session.status) == (first.import_id, 2, "completed")
        listed = [row for row, _ in ingest_imports.list_imports(Page(), actor=actor).items]
        assert [(row.filename, row.created, row.existing, row.failed) for row in listed] == [
            (None, 0, 4, 2), ("desk.ndjson", 3, 1, 2),
        ]  # fmt: skip
        assert all(row.finished_at for row in listed)


def test_a_line_has_at_most_one_mebibyte(workspace: Any) -> None:
    actor = workspace.actor("member")

    def of_size(name: str, size: int) -> bytes:
        short = line(name).removesuffix(b"}\n")
        return short + b" " * (size - len(short) - 1) + b"}\n"

    with acting_as(actor):
        found = take(
            actor,
            *(of_size(f"s{n}", LINE_BYTES + n) for n in (-1, 0, 1)),
            b"x" * (3 * LINE_BYTES) + b"\n",
            line("last"),
        )
        assert (found.created, found.failed) == (3, 2)
        assert [error.line for error in found.errors] == [3, 4]
        assert session_store.find_session("last", actor=actor) is not None


def test_what_one_line_breaks_the_others_do_not_feel(workspace: Any) -> None:
    """A value that only the services refuse sends the batch in again line by line."""
    actor = workspace.actor("member")
    with acting_as(actor):
        found = take(actor, line("1"), line("2", metadata={"golden": {"set": "x"}}), line("3"))
        assert (found.created, found.failed, [error.line for error in found.errors]) == (2, 1, [2])
        assert "golden" in found.errors[0].message
        assert ingest_imports.get_import(found.import_id, actor=actor).created == 2


def test_several_batches_and_long_sessions(workspace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_imports, "BATCH", 2)
    actor = workspace.actor("member")
    long = [{"role": "user", "content": f"{n}"} for n in range(EVENTS_AT_ONCE + 5)]
    seen: list[int] = []
    with acting_as(actor):
        found = take(
            actor, line("1"), line("2"), line("3", messages=long), progress=lambda so_far: seen.append(so_far.created)
        )
        assert (found.created, seen) == (3, [2, 3])
        session = session_store.find_session("3", actor=actor)
        assert session is not None
        events = events_of(session.id, actor=actor)
        assert [event.payload["text"] for event in events] == [str(n) for n in range(EVENTS_AT_ONCE + 5)]
        assert [event.sequence for event in events] == list(range(1, EVENTS_AT_ONCE + 6))


def test_failures_speak_and_failed_calls_are_marked(workspace: Any) -> None:
    actor = workspace.actor("member")
    calls = [
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "Error: timed out"},
    ]
    with acting_as(actor):
        take(actor, line("bad", status="failed", error="Gave up.", messages=calls))
    with acting_as(workspace.actor("admin")):
        row = db.session.scalars(select(Feedback)).one()
        assert (row.kind, row.origin, row.rating, row.comment, row.status) == (
            "session_failure", "system", "negative", "Gave up.", "pending",
        )  # fmt: skip
        result = db.session.scalars(select(SessionEvent).where(SessionEvent.event_type == "tool.result")).one()
        assert (result.payload["is_error"], result.payload["is_error_inferred"]) == (True, True)


def test_an_import_is_undone_as_a_whole(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(member):
        mine = take(member, line("1"), line("2", status="failed", error="No."))
        other = take(member, line("3"), line("1"))
        with transaction(), pytest.raises(Forbidden):
            ingest_imports.undo_import(mine.import_id, actor=member)
    with acting_as(admin):
        said_about = session_store.find_session("1", actor=admin)
        assert said_about is not None
        with transaction():
            feedback_intake.record_feedback(
                NewFeedback(source_type="session", rating="positive", comment="Good", session_id=said_about.id),
                actor=admin,
            )
        with transaction():
            assert ingest_imports.undo_import(mine.import_id, actor=admin) == 2
        with transaction():
            assert ingest_imports.undo_import(mine.import_id, actor=admin) == 0
        assert list(db.session.scalars(select(AgentSession.external_id))) == ["3"]
        assert [(row.comment, row.session_id) for row in db.session.scalars(select(Feedback))] == [("Good", None)]
        assert stored(AuditEntry, AuditEntry.action == "import.undone") == 1
        assert ingest_imports.get_import(other.import_id, actor=admin).undone_at is None
        assert take(admin, line("1"), line("2")).created == 2


def test_a_golden_keeps_its_import(workspace: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        found = take(admin, line("1"), line("2"))
        with transaction():
            db.session.execute(
                update(AgentSession)
                .where(AgentSession.external_id == "2")
                .values({AgentSession.meta: golden_mark("default", "Where is order 2?")})
            )
        with transaction(), pytest.raises(Refused, match="One session of this import is golden"):
            ingest_imports.undo_import(found.import_id, actor=admin)
        assert stored(AgentSession) == 2
        assert ingest_imports.get_import(found.import_id, actor=admin).undone_at is None


def test_an_import_that_is_undone_while_it_runs_stops(workspace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_imports, "BATCH", 1)
    admin = workspace.actor("admin")

    def undo(so_far: Result) -> None:
        with transaction():
            ingest_imports.undo_import(so_far.import_id, actor=admin)

    with acting_as(admin):
        with pytest.raises(Refused, match="undone while it ran"):
            take(admin, line("1"), line("2"), progress=undo)
        assert stored(AgentSession) == 0


def test_secrets_are_not_stored(workspace: Any) -> None:
    admin = workspace.actor("admin")
    key = "sk-" + "a1B2c3D4" * 4
    calls = [
        {"role": "system", "content": f"The key is {key}."},
        {"role": "user", "content": f"My key is {key}, write to sam@example.com"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": f'{{"auth": "{key}"}}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": f'{{"echo": "{key}"}}'},
    ]
    with acting_as(admin):
        take(admin, line("1", messages=calls, status="failed", error=f"Bad key {key}", metadata={"env": {"k": key}}))
        with transaction():
            workspace_store.change_settings({"mask_emails": True}, actor=admin)
        take(admin, line("2", messages=calls))
        for model in (AgentSession, SessionEvent, Feedback):
            text = str([dict(row) for row in db.session.execute(select(model.__table__)).mappings()])
            assert key not in text
            assert "[masked:key]" in text
        titles = list(db.session.scalars(select(AgentSession.title).order_by(AgentSession.external_id)))
        assert titles == [
            "My key is [masked:key], write to sam@example.com",
            "My key is [masked:key], write to [masked:email]",
        ]


def test_another_workspace_sees_nothing(make_workspace: Callable[..., Any]) -> None:
    here, there = make_workspace(), make_workspace()
    with acting_as(here.actor("admin")):
        found = take(here.actor("admin"), line("1"))
    with acting_as(there.actor("admin")):
        assert stored(Import) == 0
        for unknown in (found.import_id, UUID(int=7)):
            with transaction(), pytest.raises(NotFound):
                ingest_imports.undo_import(unknown, actor=there.actor("admin"))
        assert take(there.actor("admin"), line("1")).created == 1


def test_two_who_import_the_same_file_at_once_share_it(app: Any, workspace: Any) -> None:
    actor = workspace.actor("member")
    lines = [line(str(number), agent=f"desk-{number % 3}") for number in range(40)]
    results: list[Result] = []

    def work(own: list[bytes]) -> None:
        with app.app_context(), acting_as(actor):
            results.append(take(actor, *own))

    run_at_once(*(partial(work, own) for own in (lines, lines[::-1])))
    assert sum(result.created for result in results) == sum(result.existing for result in results) == 40
    assert [result.failed for result in results] == [0, 0]
