"""A long session in parts: every event once, calls with their results, bounded in number and in size."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from app.actor import Actor
from app.db import acting_as, transaction
from app.errors import Invalid, NotFound
from app.services.sessions import event_windows
from app.services.sessions import store as session_store
from app.services.sessions.event_windows import Event, events_of
from app.services.sessions.events import NewEvent
from app.services.sessions.store import NewSession
from tests.conftest import Workspace

pytestmark = pytest.mark.usefixtures("app_context")
NOON = datetime(2026, 11, 13, 12, 0, tzinfo=UTC)


def store(events: Sequence[tuple[str, dict[str, Any]]], actor: Actor) -> UUID:
    made = [NewEvent(kind, payload, NOON + timedelta(seconds=n)) for n, (kind, payload) in enumerate(events)]
    with transaction():
        session, _ = session_store.create_session(NewSession(agent="long-runner"), actor=actor)
        for start in range(0, len(made), 1000):
            session_store.append_events(session.id, made[start : start + 1000], actor=actor)
    return session.id


def walk(session_id: UUID, actor: Actor) -> list[event_windows.SessionPart]:
    parts = [event_windows.read_first(session_id, actor=actor)[0]]
    while parts[-1].following:
        parts.append(event_windows.read_part(session_id, parts[-1].following, actor=actor))
    return parts


def texts(events: Sequence[Event]) -> list[str]:
    return [event.payload["text"] for event in events]


def test_every_event_comes_once_and_in_order(workspace: Workspace) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        session_id = store([("agent.message", {"text": str(n)}) for n in range(500)], actor)
        parts = walk(session_id, actor)

        assert [text for part in parts for text in texts(part.events)] == [str(n) for n in range(500)]
        assert all(len(part.events) <= event_windows.PART_EVENTS for part in parts)
        assert [part.first for part in parts] == [True] + [False] * (len(parts) - 1)


def test_a_short_session_is_one_part(workspace: Workspace) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        for number in (0, 1, event_windows.PART_EVENTS):
            session_id = store([("agent.message", {"text": "x"})] * number, actor)
            part, outline = event_windows.read_first(session_id, actor=actor)
            assert (len(part.events), len(outline), part.following) == (number, number, None)


def test_large_payloads_make_small_parts(workspace: Workspace) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        session_id = store([("agent.message", {"text": "x" * 200_000})] * 2 + [("agent.message", {"text": "y"})], actor)
        parts = walk(session_id, actor)

        assert [len(part.events) for part in parts] == [1, 1, 1]


def test_a_part_ends_at_a_user_message(workspace: Workspace) -> None:
    actor = workspace.actor()
    turn = [("user.message", {"text": "?"})] + [("agent.message", {"text": "."})] * 24
    with acting_as(actor):
        parts = walk(store(turn * 12, actor), actor)

        assert all(part.events[0].event_type == "user.message" for part in parts)


def test_no_call_is_parted_from_its_result(workspace: Workspace) -> None:
    """Some answers come at once, one only at the very end, one never."""
    actor = workspace.actor()
    events = [("tool.call", {"id": "slow", "name": "slow"}), ("tool.call", {"id": "never", "name": "never"})]
    for n in range(150):
        events.append(("tool.call", {"id": f"c{n}", "name": "look"}))
        events.append(("tool.result", {"call_id": f"c{n}", "output": n}))
    events.append(("tool.result", {"call_id": "slow", "output": "at last"}))
    with acting_as(actor):
        parts = walk(store(events, actor), actor)

        for part in parts:
            calls = {e.payload["id"] for e in part.events if e.event_type == "tool.call"}
            shown = [e.payload["call_id"] for e in part.events if e.event_type == "tool.result"]
            answered = shown + [e.payload["call_id"] for e in part.answers]
            assert set(answered) == calls - {"never"}
            assert len(answered) == len(set(answered))
        assert [e.payload["output"] for e in parts[0].answers] == ["at last"]


def test_events_of_one_moment_keep_their_order(workspace: Workspace) -> None:
    actor = workspace.actor()
    with acting_as(actor), transaction():
        events = [NewEvent("agent.message", {"text": str(n)}, NOON) for n in range(300)]
        session, _ = session_store.create_session(NewSession(agent="quick", events=events), actor=actor)
        found = [text for part in walk(session.id, actor) for text in texts(part.events)]

        assert found == [str(n) for n in range(300)]


def test_the_outline_has_names_and_no_texts(workspace: Workspace) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        session_id = store(
            [("user.message", {"text": "secret", "message_id": "m1"}), ("tool.call", {"id": "c1", "name": "look"})],
            actor,
        )
        outline = event_windows.read_outline(session_id, actor=actor)

        assert [event.payload for event in outline] == [{"message_id": "m1"}, {"id": "c1"}]


def test_a_part_can_begin_at_an_event(workspace: Workspace) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        session_id = store([("agent.message", {"text": str(n)}) for n in range(300)], actor)
        wanted = events_of(session_id, actor=actor)[222]

        found = event_windows.find_event(session_id, actor=actor, ending=wanted.id.hex[-8:])
        part = event_windows.read_part(session_id, event_windows.cursor_before(found), actor=actor)
        assert part.events[0] == wanted
        assert event_windows.get_event(session_id, wanted.id, actor=actor) == wanted
        with pytest.raises(NotFound):
            event_windows.find_event(session_id, actor=actor, ending="zzzzzzzz")
        with pytest.raises(NotFound):
            event_windows.get_event(session_id, session_id, actor=actor)


def test_a_place_that_is_none_is_refused(workspace: Workspace) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        session_id = store([("agent.message", {"text": "x"})], actor)
        for text in ("garbage", "x" * 200, "é", "MjAyNnwx", "MjAyNi0xMS0xM1QxMjowMDowMHwx"):
            with pytest.raises(Invalid):
                event_windows.read_part(session_id, text, actor=actor)


def test_another_workspace_sees_nothing(make_workspace: Any) -> None:
    ours, theirs = make_workspace(), make_workspace()
    with acting_as(ours.actor()):
        session_id = store([("agent.message", {"text": "x"})], ours.actor())
    with acting_as(theirs.actor()):
        assert event_windows.read_first(session_id, actor=theirs.actor())[0].events == []
        assert event_windows.read_outline(session_id, actor=theirs.actor()) == []
