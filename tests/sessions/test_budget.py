"""A session holds a bounded number of bytes: what goes beyond is refused whole, and the session says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import func, select

from app.db import acting_as, db, transaction
from app.errors import Invalid
from app.formats.session_limits import SESSION_BYTES
from app.models import AgentSession, SessionEvent
from app.services.sessions import events as session_events
from app.services.sessions import store as session_store
from app.services.sessions.events import NewEvent, SessionFull
from app.services.sessions.store import NewSession
from tests.conftest import Workspace

pytestmark = pytest.mark.usefixtures("app_context")
BUDGET = 1_000_000


@pytest.fixture(autouse=True)
def small_budget() -> Iterator[None]:
    session_events.use_budget(BUDGET)
    yield
    session_events.use_budget(SESSION_BYTES)


def message_of(size: int) -> NewEvent:
    return NewEvent("user.message", {"text": "x" * size})


def stored(session_id: Any) -> tuple[int, int, int]:
    """How many bytes the session says, how many it has, and how many events."""
    kept = db.session.scalar(select(AgentSession.event_bytes).where(AgentSession.id == session_id))
    row = db.session.execute(
        select(func.coalesce(func.sum(SessionEvent.payload_bytes), 0), func.count()).where(
            SessionEvent.session_id == session_id
        )
    ).one()
    return kept or 0, row[0], row[1]


def test_bytes_are_counted_with_the_events_and_beyond_the_budget_nothing_is_written(workspace: Workspace) -> None:
    actor = workspace.actor("member")
    with acting_as(actor):
        with transaction():
            session, _ = session_store.create_session(NewSession(agent="a", events=[message_of(200_000)]), actor=actor)
        with transaction():
            session_store.append_events(session.id, [message_of(200_000)] * 3, actor=actor)
        before = stored(session.id)
        assert before == (before[1], before[1], 4)
        assert 800_000 < before[0] < 801_000
        with pytest.raises(SessionFull, match="budget of 1 MB") as refused, transaction():
            session_store.append_events(session.id, [message_of(10), message_of(200_000)], actor=actor)
        assert (refused.value.status, refused.value.extra["budget_bytes"]) == (413, BUDGET)
        assert stored(session.id) == before
        with transaction():
            session_store.append_events(session.id, [message_of(100_000)], actor=actor)
        assert stored(session.id)[2] == 5


def test_a_new_session_beyond_the_budget_is_not_stored(workspace: Workspace) -> None:
    actor, name = workspace.actor("member"), uuid4().hex
    with acting_as(actor):
        for create in (
            session_store.create_session,
            lambda new, actor: session_store.create_sessions([new], actor=actor),
        ):
            new = NewSession(agent="a", external_id=name, events=[message_of(200_000)] * 6)
            with pytest.raises(SessionFull), transaction():
                create(new, actor=actor)
            assert session_store.find_session(name, actor=actor) is None
        with transaction():
            fits = [NewSession(agent="a", external_id=f"{name}-{n}", events=[message_of(300 * n)]) for n in (1, 2)]
            assert session_store.create_sessions(fits, actor=actor) == 2
        for n in (1, 2):
            found = session_store.find_session(f"{name}-{n}", actor=actor)
            assert found is not None
            assert found.event_bytes == len('{"text": ""}') + 300 * n


def test_a_number_counts_with_all_its_digits(workspace: Workspace) -> None:
    """Six bytes when it is sent, 301 when it is read."""
    actor = workspace.actor("member")
    written_out = NewEvent("tool.result", {"call_id": "c", "output": [1e300] * 4000})
    with acting_as(actor), pytest.raises(Invalid, match="as text"), transaction():
        session_store.create_session(NewSession(agent="a", events=[written_out]), actor=actor)


def test_that_events_were_refused_is_noted_once(workspace: Workspace) -> None:
    actor = workspace.actor("member")
    with acting_as(actor):
        with transaction():
            session, _ = session_store.create_session(NewSession(agent="a"), actor=actor)
            session_events.mark_full(session.id, actor=actor)
        first = db.session.get_one(AgentSession, session.id, populate_existing=True).full_at
        with transaction():
            session_events.mark_full(session.id, actor=actor)
        again = db.session.get_one(AgentSession, session.id, populate_existing=True)
        assert first is not None
        assert again.full_at == first
        assert session_events.full_size(again) == "0 bytes of 1 MB"
