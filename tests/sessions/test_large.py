"""A session near its budget is promoted, compared and shown without being held in memory."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from flask import Flask

from app.db import acting_as, db, transaction
from app.errors import Unprocessable
from app.models import AgentSession, SessionEvent
from app.services.evals import compare as eval_compare
from app.services.evals import drafts, promotion
from app.services.evals import snapshot as eval_snapshot
from app.services.evals.drafts import Draft
from app.services.evals.promotion import Promotion
from app.services.sessions import store as session_store
from app.services.sessions.event_windows import iterate_events
from app.services.sessions.events import NewEvent
from app.services.sessions.store import NewSession
from tests.conftest import Workspace

pytestmark = pytest.mark.exhaustive

WORDS = "Heron is worth 118 million, says the term sheet. " * 5000
MIB = 1024 * 1024


def store(actor: Any, calls: int = 60, **changed: Any) -> UUID:
    """A completed session of about 15 MB: a question, saved notes and their results, an answer."""
    with transaction():
        new = NewSession(agent="a", events=[NewEvent("user.message", {"text": "Save the notes."})])
        session, _ = session_store.create_session(new, actor=actor)
        for n in range(calls):
            arguments = {"title": f"n{n}"} | (changed if n == 7 else {})
            output = {"id": f"n-{n}", "text": f"{n} {WORDS}"}
            events = [
                NewEvent("tool.call", {"id": f"c{n}", "name": "save_note", "arguments": arguments}),
                NewEvent("tool.result", {"call_id": f"c{n}", "name": "save_note", "output": output}),
            ]
            session_store.append_events(session.id, events, actor=actor)
        end = [NewEvent("agent.message", {"text": "Saved 60 notes."}), NewEvent("session.completed")]
        session_store.append_events(session.id, end, actor=actor)
    return session.id


@pytest.fixture
def acting(app: Flask, workspace: Workspace) -> Iterator[Any]:
    actor = workspace.actor("admin")
    with app.app_context(), acting_as(actor):
        yield actor


def peak_of(work: Callable[[], Any]) -> tuple[Any, float]:
    """What the work gives, and how many MiB it took at most."""
    db.session.expire_all()
    gc.collect()
    tracemalloc.start()
    try:
        found = work()
        return found, tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


def test_no_reader_holds_a_large_session(acting: Any) -> None:
    first, second, other = store(acting), store(acting), store(acting, title="other")
    size = db.session.get_one(AgentSession, first).event_bytes
    assert size > 14_000_000
    readers: dict[str, Callable[[], Any]] = {
        "offer": lambda: promotion.load_offer(first, actor=acting),
        "compare": lambda: eval_compare.compare_sessions(first, second, actor=acting),
        "differs": lambda: eval_compare.compare_sessions(first, other, actor=acting),
        "check": lambda: drafts.load_check(first, Draft(no_calls=("delete_note",)), "default", actor=acting).compare(),
        "diff": lambda: eval_compare.load_diff(first, second, actor=acting),
        "snapshot": lambda: eval_snapshot.take_snapshot(db.session.get_one(AgentSession, first), actor=acting),
    }
    found = {}
    for name, work in readers.items():
        found[name], peak = peak_of(work)
        assert peak < 8, (name, peak)
    assert (found["compare"].verdict, found["differs"].verdict) == ("pass", "fail")
    assert found["differs"].reason.startswith("save_note")
    offer = found["offer"]
    assert [offer[name] for name in ("turns", "recordings")] == [1, 60]
    assert "save_note" in offer["material"].choices.tools.named
    assert found["check"].verdict == "pass"
    assert len(offer["material"].recorded) == 60
    assert len(found["diff"]["rows"]) == 62
    assert found["snapshot"]["turns"] == ["Save the notes."]


def test_a_large_session_becomes_golden_and_says_what_it_froze(acting: Any) -> None:
    session_id = store(acting, calls=20)

    def promote() -> Any:
        with transaction():
            return promotion.promote_session(session_id, Promotion(set_name="large"), actor=acting)

    done, peak = peak_of(promote)
    assert peak < 8, peak
    assert done.golden["snapshot"]["initial_message"] == "Save the notes."


def test_more_input_than_a_golden_keeps_is_refused_before_it_is_read(acting: Any) -> None:
    with transaction():
        said = [NewEvent("user.message", {"text": "x" * 250_000})] * 9
        new = NewSession(agent="a", status="completed", events=said)
        session_id = session_store.create_session(new, actor=acting)[0].id
    for work in (
        lambda: promotion.load_offer(session_id, actor=acting),
        lambda: promotion.promote_session(session_id, Promotion(), actor=acting),
    ):
        with pytest.raises(Unprocessable, match="the most a golden can hold"), transaction():
            work()


def test_events_are_read_in_windows_in_order_of_time(acting: Any) -> None:
    session_id = store(acting, calls=6)
    wanted = list(
        db.session.query(SessionEvent.sequence)
        .filter(SessionEvent.session_id == session_id)
        .order_by(SessionEvent.occurred_at, SessionEvent.sequence)
    )
    found = [event.sequence for event in iterate_events(session_id, actor=acting)]
    assert found == [row[0] for row in wanted]
    some = [event.event_type for event in iterate_events(session_id, actor=acting, kinds=("user.message", "tool.call"))]
    assert some == ["user.message"] + ["tool.call"] * 6
