"""Agents that run here: their events in order, tools, limits, and what is left when something goes wrong."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from flask import Flask
from sqlalchemy import func, select, update

from app.db import acting_as, db, transaction
from app.formats.session_limits import SESSION_BYTES
from app.models import AgentSession, AuditEntry, Feedback, Message, UserMemory
from app.services.chats import store as chat_store
from app.services.knowledge import memories
from app.services.sessions import events as session_events
from app.services.sessions import leases
from app.services.sessions import start as session_start
from app.services.sessions.events import NewEvent
from app.services.sessions.leases import LeaseLost, RunOutcome
from app.services.workspaces import identity
from tests.agents.running import Desk, Seen
from tests.scripted_model import Call, Step, Wait, scripted


class Stage(Desk):
    """A workspace whose agent follows a script."""

    def __init__(self, app: Flask, workspace: Any, run: Callable[[], int]) -> None:
        super().__init__(app, workspace)
        self.run = run

    def play(self, *steps: Step, turns: tuple[str, ...] = ("Please do it.",), **config: Any) -> Seen:
        with scripted(self.app, *steps) as script:
            self.agent(model=script.name, **config)
            asked = self.ask(*turns, by="admin")
            self.run()
            self.script = script
        return self.look(asked)

    def failures(self, seen: Seen) -> list[str]:
        """The comments of the feedback that the session gave about itself."""
        admin = self.workspace.actor("admin")
        with self.app.app_context(), acting_as(admin), transaction():
            wanted = select(Feedback.comment).where(Feedback.tenant_id == admin.tenant_id)
            return [
                comment or "" for comment in db.session.scalars(wanted.where(Feedback.session_id == seen.session.id))
            ]


@pytest.fixture
def stage(app: Flask, workspace: Any, run_sessions: Callable[[], int]) -> Stage:
    return Stage(app, workspace, run_sessions)


CONTEXT = {"tool_groups": ["context"]}
SAVE = Call("saveMemory", {"content": "Prefers short answers."})


def test_what_happens_is_written_in_order_with_the_context_first(stage: Stage) -> None:
    seen = stage.play(["I look.", Call("listSharedContext")], "There is nothing yet.", **CONTEXT)
    assert seen.types == [
        "context.loaded", "user.message", "agent.message", "tool.call", "tool.result", "agent.message",
        "session.completed",
    ]  # fmt: skip
    assert [event.sequence for event in seen.events] == list(range(1, 8))
    [call], [result] = seen.payloads("tool.call"), seen.payloads("tool.result")
    assert (call["id"], call["name"], result["call_id"]) == ("call_1", "listSharedContext", "call_1")
    assert not result["is_error"]
    interim, final = seen.payloads("agent.message")
    assert interim == {"text": "I look.", "interim": True}
    assert final == {"text": "There is nothing yet."}
    session = seen.session
    assert (session.status, session.attempt, session.lease_owner) == ("completed", 1, None)
    assert session.model == stage.script.name
    assert session.input_tokens
    assert len(session.trace_id or "") == 32
    assert stage.failures(seen) == []


def test_several_turns_are_answered_one_after_the_other(stage: Stage) -> None:
    seen = stage.play("First.", "Second.", turns=("One?", "Two?"))
    said = [event.payload["text"] for event in seen.events if event.event_type.endswith(".message")]
    assert said == ["One?", "First.", "Two?", "Second."]
    assert seen.types.count("session.completed") == 1


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (Call("getContext", {"depth": 9}), "depth"),
        (Call("saveMemory", "no json at all"), "JSON"),
        (Call("launchRockets"), "There is no tool 'launchRockets'; there are: "),
        (Call("deactivateSharedContext", {"id": "00000000-0000-0000-0000-000000000001", "reason": "old"}), "no such"),
    ],
)
def test_a_tool_that_fails_is_an_event_and_the_agent_continues(stage: Stage, call: Call, says: str) -> None:
    seen = stage.play(call, "I could not, sorry.", **CONTEXT)
    [result] = seen.payloads("tool.result")
    assert result["is_error"]
    assert says in str(result["output"])
    assert seen.session.status == "completed"
    assert stage.failures(seen) == []


@pytest.mark.parametrize(
    ("limits", "steps", "reason"),
    [
        ({"requests": 3}, [Call("listSharedContext")], "asked its model 3 times without an answer"),
        ({"tool_calls": 2}, [Call("listSharedContext")], "limit of 2 tool calls"),
        ({"tool_calls": 0}, [Call("listSharedContext")], "limit of 0 tool calls"),
        ({"seconds": 1}, [Wait(30), "Late."], "within its limit of 1 seconds"),
    ],
)
def test_a_limit_ends_the_session_with_one_sentence_and_one_feedback_row(
    stage: Stage, limits: dict[str, int], steps: list[Step], reason: str
) -> None:
    seen = stage.play(*steps, limits=limits, **CONTEXT)
    assert seen.session.status == "failed"
    assert reason in (seen.session.error or "")
    assert seen.types[-1] == "session.failed"
    assert stage.failures(seen) == [seen.session.error]
    assert seen.session.lease_owner is None


def test_an_answer_that_is_too_long_is_cut_and_says_so(stage: Stage) -> None:
    seen = stage.play("word " * 1000, limits={"output_chars": 100})
    [answer] = seen.payloads("agent.message")
    assert len(answer["text"]) <= 102
    assert answer["truncated"] is True
    assert seen.session.status == "completed"


def test_a_model_that_says_nothing_or_breaks_fails_the_session(stage: Stage) -> None:
    seen = stage.play("")
    assert (seen.session.status, seen.session.error) == ("failed", f"The model {stage.script.name} answered nothing.")
    assert stage.failures(seen) == [seen.session.error]
    seen = stage.play(RuntimeError("connection refused"))
    assert seen.session.error == f"The model {stage.script.name} could not be asked: connection refused."
    assert stage.failures(seen) == [seen.session.error]


def test_secrets_of_the_server_never_get_into_a_session(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "zq9-very-private-value-41"
    monkeypatch.setenv("ACME_API_KEY", secret)
    steps: list[Step] = [Call("saveMemory", {"content": f"The key is {secret}."}), f"It is {secret}."]
    with scripted(stage.app, *steps) as script:
        stage.agent("leaky", model=script.name, **CONTEXT)
        told = stage.ask(f"Is {secret} right?", agent="leaky")
        stage.run()
    with scripted(stage.app, RuntimeError(f"401: bad key {secret}")) as script:
        stage.agent("broken", model=script.name)
        broke = stage.ask("Hello", agent="broken")
        stage.run()
    for session_id in (told, broke):
        seen = stage.look(session_id)
        assert secret not in str([event.payload for event in seen.events if event.event_type != "user.message"])
        assert secret not in (seen.session.error or "")
    assert stage.look(broke).session.status == "failed"


def test_an_answer_joins_its_chat_with_the_trace_of_the_session(stage: Stage) -> None:
    member = stage.workspace.actor("member")
    with scripted(stage.app, "One two three four five.") as script:
        stage.agent(model=script.name)
        with stage.app.app_context(), acting_as(member), transaction():
            chat = chat_store.create_chat(actor=member, agent_slug="assistant", title="A chat")
            said = chat_store.NewMessage(role="user", content="Count.", turn_id="t1")
            chat_store.append_messages(chat.id, [said], actor=member)
        asked = stage.ask("Count.", session_type="chat", chat_id=chat.id, turn_id="t1")
        stage.run()
    seen = stage.look(asked)
    assert seen.session.status == "completed", seen.session.error
    with stage.app.app_context(), acting_as(member), transaction():
        answer = db.session.scalars(select(Message).where(Message.chat_id == chat.id, Message.role == "agent")).one()
        assert answer.content.strip() == "One two three four five."
        assert (answer.session_id, answer.trace_id, answer.turn_id) == (asked, seen.session.trace_id, "t1")
        assert answer.trace_id
        assert session_start.progress_of(asked, actor=member).draft == ""


def claimed(stage: Stage, owner: str = "dead", seconds: float = -1) -> leases.Lease:
    """A claim by a process that is gone: its lease has run out already."""
    with stage.app.app_context(), transaction():
        [lease] = leases.claim(owner, 100, timedelta(seconds=seconds))
        return lease


def wrote(stage: Stage, lease: leases.Lease, *events: NewEvent) -> None:
    with stage.app.app_context(), acting_as(identity.product_in(lease.tenant_id)), transaction():
        leases.record(lease, events)


@pytest.mark.parametrize(
    ("tool", "arguments", "saved"),
    [("listSharedContext", {}, 0), ("saveMemory", {"content": "Prefers short answers."}, 1)],
)
def test_after_a_crash_the_run_continues_from_its_events(
    stage: Stage, tool: str, arguments: dict[str, Any], saved: int
) -> None:
    stage.run()
    with scripted(stage.app, "Now it is done.") as script:
        stage.agent(model=script.name, **CONTEXT)
        asked = stage.ask("Please do it.", by="admin")
        lease = claimed(stage)
        wrote(
            stage,
            lease,
            NewEvent("context.loaded", {"row_ids": []}),
            NewEvent("user.message", {"text": "Please do it."}),
            NewEvent("tool.call", {"id": "call_1", "name": tool, "arguments": arguments}),
        )
        stage.run()
    seen = stage.look(asked)
    assert seen.types == [
        "context.loaded", "user.message", "tool.call", "session.claimed", "context.loaded", "tool.result",
        "agent.message", "session.completed",
    ]  # fmt: skip
    [result] = seen.payloads("tool.result")
    # A call without a result did nothing, since a tool of ours writes together with its result: it is made again.
    assert result["is_error"] is False
    assert seen.session.attempt == 2
    admin = stage.workspace.actor("admin")
    with stage.app.app_context(), acting_as(admin), transaction():
        assert len(memories.list_memories(actor=admin)) == saved


def test_what_a_tool_wrote_is_there_exactly_when_its_result_is(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    admin, record = stage.workspace.actor("admin"), leases.record

    def dies(lease: leases.Lease, events: list[NewEvent]) -> bool:
        if any(event.event_type == "tool.result" for event in events):
            raise leases.LeaseLost
        return record(lease, events)

    def remembered() -> int:
        with stage.app.app_context(), acting_as(admin), transaction():
            return len(memories.list_memories(actor=admin))

    with scripted(stage.app, SAVE, "Saved.") as script:
        stage.agent(model=script.name, **CONTEXT)
        asked = stage.ask("Please do it.", by="admin")
        monkeypatch.setattr(leases, "record", dies)
        stage.run()
        assert stage.look(asked).types[-1] == "tool.call"
        assert remembered() == 0
        monkeypatch.setattr(leases, "record", record)
        with stage.app.app_context(), acting_as(admin), transaction():
            gone = datetime.now(UTC) - timedelta(seconds=1)
            db.session.execute(update(AgentSession).where(AgentSession.id == asked).values(lease_until=gone))
        stage.run()
    assert stage.look(asked).session.status == "completed"
    assert remembered() == 1


def test_three_lost_attempts_end_the_session_with_one_feedback_row(stage: Stage) -> None:
    stage.run()
    with scripted(stage.app, "Never said.") as script:
        stage.agent(model=script.name)
        asked = stage.ask("Please do it.")
        for attempt in (1, 2, 3):
            assert claimed(stage).attempt == attempt
        stage.run()
        assert not script.asked
    seen = stage.look(asked)
    assert seen.session.status == "failed"
    assert "failed three times" in (seen.session.error or "")
    assert stage.failures(seen) == [seen.session.error]


def test_who_lost_the_lease_writes_nothing(stage: Stage) -> None:
    stage.run()
    with scripted(stage.app, "Done.") as script:
        stage.agent(model=script.name)
        asked = stage.ask("Please do it.")
        lost = claimed(stage)
        stage.run()
    before = stage.look(asked).types
    with pytest.raises(LeaseLost):
        wrote(stage, lost, NewEvent("agent.message", {"text": "I am back."}))
    with (
        stage.app.app_context(),
        acting_as(identity.product_in(lost.tenant_id)),
        transaction(),
        pytest.raises(LeaseLost),
    ):
        leases.end(
            leases.hold(lost), RunOutcome(status="failed", error="No."), actor=identity.system_user(lost.tenant_id)
        )
    assert stage.look(asked).types == before
    admin = stage.workspace.actor("admin")
    with stage.app.app_context(), acting_as(admin), transaction():
        ends = db.session.scalars(
            select(AuditEntry.id).where(AuditEntry.subject_id == asked, AuditEntry.action == "session.finished")
        )
        assert len(list(ends)) == 1


def test_a_run_is_stopped_while_it_waits_and_while_the_model_thinks(stage: Stage) -> None:
    member = stage.workspace.actor("member")
    with scripted(stage.app, Wait(60), "Too late.") as script:
        stage.agent(model=script.name)
        waiting = stage.ask("Please do it.")
        with stage.app.app_context(), acting_as(member), transaction():
            session_start.stop_run(waiting, actor=member)
        assert stage.look(waiting).session.status == "cancelled"

        thinking = stage.ask("Please do it.")
        runner = threading.Thread(target=stage.run)
        runner.start()
        while not script.asked:
            time.sleep(0.05)
        with stage.app.app_context(), acting_as(member), transaction():
            session_start.stop_run(thinking, actor=member)
        began = time.monotonic()
        runner.join(15)
        assert time.monotonic() - began < 10
    seen = stage.look(thinking)
    assert (seen.session.status, seen.session.lease_owner) == ("cancelled", None)
    assert stage.failures(seen) == []


def test_no_transaction_is_open_while_the_model_thinks(stage: Stage, superuser_url: str, database: str) -> None:
    ages: list[tuple[str, float]] = []

    def look(_: Any) -> str:
        with psycopg.connect(superuser_url, autocommit=True) as connection:
            ages.extend(
                connection.execute(
                    "SELECT state, extract(epoch FROM clock_timestamp() - xact_start)::float FROM pg_stat_activity"
                    " WHERE datname = %s AND usename = 'upshot_app' AND xact_start IS NOT NULL",
                    (database,),
                ).fetchall()
            )
        return "Looked."

    seen = stage.play(Wait(1.5), look)
    assert seen.session.status == "completed"
    assert [age for _, age in ages if age > 1] == []


@pytest.fixture
def small_budget() -> Iterator[None]:
    session_events.use_budget(2000)
    yield
    session_events.use_budget(SESSION_BYTES)


@pytest.mark.usefixtures("small_budget")
@pytest.mark.parametrize("steps", [["x" * 3000], [["y" * 3000, Call("listSharedContext")], "Never said."]])
def test_a_run_beyond_the_budget_of_its_session_fails_and_says_why(stage: Stage, steps: list[Any]) -> None:
    seen = stage.play(*steps, **CONTEXT)
    reason = "The session reached its budget of 2 KB of events, so the run could not continue."
    assert (seen.session.status, seen.session.error) == ("failed", reason)
    assert seen.session.full_at is not None
    assert seen.types == ["context.loaded", "user.message", "session.failed"]
    assert stage.failures(seen) == [reason]
    assert seen.session.event_bytes < 2000


@pytest.mark.usefixtures("small_budget")
def test_a_tool_whose_result_has_no_room_writes_nothing(stage: Stage) -> None:
    """The call fits, its result does not: then what the tool wrote is gone with it."""

    def remembered() -> int:
        with stage.app.app_context(), acting_as(stage.workspace.actor("admin")), transaction():
            return db.session.scalar(select(func.count()).select_from(UserMemory)) or 0

    seen = stage.play(Call("saveMemory", {"content": "m" * 250}), "Done.", **CONTEXT)
    assert (seen.session.status, remembered()) == ("completed", 1)
    until_call = seen.events[: seen.types.index("tool.result")]
    # Memories that a prompt holds are counted in `context.loaded`, which is a digit longer at most.
    session_events.use_budget(sum(len(json.dumps(event.payload)) for event in until_call) + 20)
    seen = stage.play(Call("saveMemory", {"content": "n" * 250}), "Done.", **CONTEXT)
    assert (seen.session.status, seen.types[-2:], remembered()) == ("failed", ["tool.call", "session.failed"], 1)
