"""Sessions: stored once, filled in order, ended once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import func, select

from app.db import acting_as, db, transaction
from app.db.paging import Page
from app.errors import Forbidden, Invalid, NotFound, Refused
from app.models import Agent, AgentSession, AuditEntry, Feedback
from app.services.sessions import lists as session_lists
from app.services.sessions import store as session_store
from app.services.sessions.event_windows import events_of
from app.services.sessions.events import NewEvent
from app.services.sessions.lists import SessionFilters
from app.services.sessions.store import NewSession
from tests.conftest import golden_mark
from tests.threads import run_at_once

pytestmark = [pytest.mark.usefixtures("app_context"), pytest.mark.core]


def create(actor: Any, **more: Any) -> AgentSession:
    with transaction():
        session, _ = session_store.create_session(NewSession(**({"agent": "deal-analyst"} | more)), actor=actor)
    return session


def test_the_same_external_id_is_stored_once(workspace: Any) -> None:
    actor = workspace.actor("member")
    with acting_as(actor):
        first = create(actor, external_id="run-1", title="Compare two deals")
        with transaction():
            again, created = session_store.create_session(
                NewSession(agent="other", external_id="run-1", title="Something else"), actor=actor
            )
        assert (again.id, created, again.title) == (first.id, False, "Compare two deals")
        assert db.session.scalar(select(func.count()).select_from(AgentSession)) == 1
        assert len(first.trace_id or "") == 32


def test_an_unknown_agent_is_made_with_its_first_version(workspace: Any) -> None:
    actor = workspace.actor("member")
    with acting_as(actor):
        session = create(actor, agent="brand-new")
        detail = session_store.get_session(session.id, actor=actor)
        assert (detail.agent, detail.agent_name, detail.agent_version) == ("brand-new", "Brand new", 1)
        with transaction(), pytest.raises(Invalid, match="no version 7"):
            session_store.create_session(NewSession(agent="brand-new", agent_version=7), actor=actor)
        with transaction(), pytest.raises(Invalid, match="small letters"):
            session_store.create_session(NewSession(agent="Not A Slug"), actor=actor)


def test_the_title_is_the_first_message(workspace: Any) -> None:
    actor = workspace.actor("member")
    said = [NewEvent("user.message", {"text": "  Compare\n Kestrel and Bluefin  "})]
    with acting_as(actor):
        assert create(actor, events=said).title == "Compare Kestrel and Bluefin"


def test_only_replays_and_promotion_set_their_marks(workspace: Any) -> None:
    actor = workspace.actor("admin")
    with acting_as(actor), transaction():
        for mark in ("golden", "eval_source", "eval_run_id", "eval_result"):
            with pytest.raises(Invalid, match=mark):
                session_store.create_session(NewSession(agent="a", metadata={mark: {"set": "x"}}), actor=actor)


def test_links_to_another_workspace_are_links_to_nothing(make_workspace: Callable[..., Any]) -> None:
    here, there = make_workspace(), make_workspace()
    with acting_as(there.actor("admin")):
        foreign = create(there.actor("admin"))
    actor = here.actor("admin")
    with acting_as(actor), transaction():
        for unknown in (foreign.id, uuid4()):
            with pytest.raises(NotFound, match="no such session"):
                session_store.get_session(unknown, actor=actor)
            with pytest.raises(NotFound, match="no such session"):
                session_store.append_events(unknown, [NewEvent("user.message", {"text": "hello"})], actor=actor)
            with pytest.raises(Invalid, match="There is no chat"):
                session_store.create_session(NewSession(agent="a", chat_id=unknown), actor=actor)


def test_events_are_numbered_by_arrival_and_read_by_time(workspace: Any) -> None:
    actor = workspace.actor("member")
    began = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
    with acting_as(actor):
        session = create(actor, events=[NewEvent("user.message", {"text": "first"}, began)])
        with transaction():
            session_store.append_events(
                session.id,
                [
                    NewEvent("agent.message", {"text": "third"}, began + timedelta(seconds=9)),
                    NewEvent("tool.call", {"id": "c1", "name": "lookUp"}, began + timedelta(seconds=3)),
                ],
                actor=actor,
            )
        events = events_of(session.id, actor=actor)
        assert [(event.sequence, event.event_type) for event in events] == [
            (1, "user.message"),
            (3, "tool.call"),
            (2, "agent.message"),
        ]
        assert session_store.get_session(session.id, actor=actor).session.event_count == 3


def test_events_without_a_time_keep_their_place_in_the_batch(workspace: Any) -> None:
    actor = workspace.actor("member")
    at = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
    times = [None, at, None, at + timedelta(seconds=5), None]
    with acting_as(actor):
        said = [NewEvent("user.message", {"text": str(place)}, time) for place, time in enumerate(times)]
        session = create(actor, events=said)
        with transaction():
            session_store.append_events(session.id, [NewEvent("agent.message", {"text": "later"})], actor=actor)
        events = events_of(session.id, actor=actor)
    assert [event.payload["text"] for event in events] == ["0", "1", "2", "3", "4", "later"]
    assert [event.occurred_at for event in events[:5]] == [at, at, at, *[at + timedelta(seconds=5)] * 2]
    assert datetime.now(UTC) - events[5].occurred_at < timedelta(minutes=1)


def test_two_writers_never_take_the_same_number(app: Any, workspace: Any) -> None:
    actor = workspace.actor("member")
    with acting_as(actor):
        session = create(actor)

    def write() -> None:
        with app.app_context(), acting_as(actor):
            for _ in range(5):
                with transaction():
                    session_store.append_events(
                        session.id, [NewEvent("user.message", {"text": "hello"})] * 3, actor=actor
                    )

    run_at_once(*[write] * 4)
    with acting_as(actor):
        numbers = [event.sequence for event in events_of(session.id, actor=actor)]
    assert sorted(numbers) == list(range(1, 61))


def test_a_result_that_does_not_say_so_is_marked(workspace: Any) -> None:
    actor = workspace.actor("member")
    results = [
        NewEvent("tool.result", {"call_id": "1", "output": "Error: no such deal"}),
        NewEvent("tool.result", {"call_id": "2", "output": {"deals": []}}),
        NewEvent("tool.result", {"call_id": "3", "output": "error", "is_error": False}),
    ]
    with acting_as(actor):
        session = create(actor, events=results)
        marks = [
            (event.payload["is_error"], event.payload.get("is_error_inferred"))
            for event in events_of(session.id, actor=actor)
        ]
    assert marks == [(True, True), (False, True), (False, None)]


def test_events_that_do_not_fit_are_refused_by_place(workspace: Any) -> None:
    actor = workspace.actor("member")
    good = NewEvent("user.message", {"text": "hello"})
    wrong = [
        (NewEvent("user.shouted", {}), r"events\.1\.event_type"),
        (NewEvent("agent.message", {"words": "hello"}), r"events\.1\.payload\.text"),
        (NewEvent("tool.call", {"name": "x"}), r"events\.1\.payload\.id"),
        (NewEvent("user.message", {"text": "hi"}, datetime(2026, 1, 1)), r"events\.1\.occurred_at"),  # noqa: DTZ001
    ]
    with acting_as(actor):
        session = create(actor)
        for event, name in wrong:
            with pytest.raises(Invalid, match=name), transaction():
                session_store.append_events(session.id, [good, event], actor=actor)
        assert events_of(session.id, actor=actor) == []


def test_a_failure_writes_one_row_of_feedback(workspace: Any) -> None:
    actor, admin = workspace.actor("member"), workspace.actor("admin")
    with acting_as(actor):
        session = create(actor, status="running")
        for _ in range(2):
            with transaction():
                session_store.finish_session(
                    session.id, "failed", actor=actor, error="searchAccounts timed out after 30 s"
                )
        with transaction(), pytest.raises(Refused, match="is failed and can’t change"):
            session_store.finish_session(session.id, "completed", actor=actor)
        assert db.session.scalar(select(func.count()).select_from(Feedback)) == 0, "a member does not see the row"
    with acting_as(admin):
        row = db.session.scalars(select(Feedback)).one()
        assert (row.source_type, row.kind, row.origin, row.rating, row.status) == (
            "session",
            "session_failure",
            "system",
            "negative",
            "pending",
        )
        assert row.context == {"failure_reason": "searchAccounts timed out after 30 s"}
        assert (row.session_id, row.agent_id, row.trace_id) == (session.id, session.agent_id, session.trace_id)
        assert row.created_by == workspace.actor("system").id


def test_a_session_that_arrives_failed_becomes_feedback_too(workspace: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        session = create(admin, status="failed", error="The model did not answer")
        assert db.session.scalars(select(Feedback.session_id)).all() == [session.id]


def test_the_last_event_ends_an_open_session(workspace: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        done, broken = create(admin, status="running"), create(admin)
        with transaction():
            session_store.append_events(done.id, [NewEvent("session.completed", {})], actor=admin)
            session_store.append_events(broken.id, [NewEvent("session.failed", {"reason": "No answer"})], actor=admin)
            # A late event is welcome and changes nothing else.
            session_store.append_events(done.id, [NewEvent("agent.message", {"text": "late"})], actor=admin)
        status = {row.id: (row.status, row.error) for row in db.session.scalars(select(AgentSession))}
        assert status == {done.id: ("completed", None), broken.id: ("failed", "No answer")}
        assert db.session.scalars(select(Feedback.session_id)).all() == [broken.id]


def make_golden(session_id: Any, admin: Any) -> None:
    with transaction():
        session_store.append_events(session_id, [NewEvent("user.message", {"text": "Hello"})], actor=admin)
        session = db.session.get_one(AgentSession, session_id)
        session.meta = golden_mark()


def test_a_golden_takes_no_event_and_is_not_deleted(workspace: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        session = create(admin, status="completed")
        make_golden(session.id, admin)
        for attempt in (
            lambda: session_store.append_events(session.id, [NewEvent("user.message", {"text": "x"})], actor=admin),
            lambda: session_lists.delete_sessions([session.id], actor=admin),
            lambda: session_store.finish_session(session.id, "failed", actor=admin),
        ):
            with pytest.raises(Refused, match="golden"), transaction():
                attempt()


def test_deleting_keeps_the_feedback(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        session_id = create(admin, status="failed", error="broken").id
        with transaction(), pytest.raises(Forbidden):
            session_lists.delete_sessions([session_id], actor=member)
        with transaction():
            session_lists.delete_sessions([session_id], actor=admin)
        db.session.expire_all()
        assert db.session.get(AgentSession, session_id) is None
        row = db.session.scalars(select(Feedback)).one()
        assert (row.session_id, row.tenant_id) == (None, workspace.id)
        actions = db.session.scalars(select(AuditEntry.action).where(AuditEntry.subject_id == session_id)).all()
        assert "session.deleted" in actions


def test_the_list_filters_searches_and_costs_four_queries(workspace: Any, count_queries: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        create(admin, title="Compare Kestrel and Bluefin", status="completed", session_type="chat", tags=("ic",))
        failed = create(admin, title="Log a call", status="failed", agent="sales-ops", error="timed out", model="m-1")
        create(admin, title="Extract the valuation", status="running", trace_id="f" * 32)
        golden = create(admin, title="Flag covenant breaches", status="completed")
        make_golden(golden.id, admin)

        def found(**args: str) -> set[str]:
            page = session_lists.list_sessions(SessionFilters.from_args(args), Page(), actor=admin)
            assert page.count == len(page.items)
            return {row.title.split()[0] for row in page.items}

        assert found() == {"Compare", "Log", "Extract", "Flag"}
        assert found(status="failed") == found(agent="sales-ops") == found(model="m-1") == found(q="timed") == {"Log"}
        assert found(type="chat") == found(tag="ic") == {"Compare"}
        assert found(trace_id="f" * 32) == {"Extract"}
        assert found(golden="yes") == {"Flag"}
        assert found(replay="yes") == found(q="nowhere") == found(agent="unknown") == set()
        with count_queries() as seen:
            page = session_lists.list_sessions(SessionFilters.from_args({"q": "call"}), Page(), actor=admin)
        assert len(seen) <= 4
        assert not any("metadata" in statement for statement in seen)
        row = page.items[0]
        assert (row.id, row.agent, row.agent_version, row.negative) == (failed.id, "sales-ops", 1, 1)


def test_agents_are_made_once_by_many(app: Any, workspace: Any) -> None:
    from app.services.agents.versions import ensure_agent

    actor = workspace.actor("member")
    made: list[Any] = []

    def ask() -> None:
        with app.app_context(), acting_as(actor), transaction():
            made.append(ensure_agent("shared-one", actor=actor).id)

    run_at_once(*[ask] * 4)
    assert len(made) == 4
    assert len(set(made)) == 1
    with acting_as(actor):
        assert db.session.scalar(select(func.count()).select_from(Agent).where(Agent.slug == "shared-one")) == 1
