"""Keyset pages walk both ways without losing or repeating a row; filters refuse what they do not know."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import chain
from typing import Any
from uuid import uuid4

import pytest

from app.db import acting_as, paging, transaction
from app.db.paging import Cursor, Page
from app.errors import Invalid
from app.services.chats.lists import ChatFilters
from app.services.entities.store import EntityFilters
from app.services.feedback.lists import FeedbackFilters
from app.services.knowledge.lists import KnowledgeFilters
from app.services.sessions import lists as session_lists
from app.services.sessions import store as session_store
from app.services.sessions.lists import SessionFilters
from app.services.sessions.store import NewSession

pytestmark = [pytest.mark.usefixtures("app_context"), pytest.mark.core]


def walk(actor: Any, limit: int, sort: str, back: bool = False) -> list[list[str]]:
    """All pages forward; with `back`, from the last page to the first."""
    filters = SessionFilters(sort=sort)
    page = session_lists.list_sessions(filters, Page(limit), actor=actor)
    seen = [page]
    while page.next_cursor:
        page = session_lists.list_sessions(filters, Page(limit, page.next_cursor), actor=actor)
        seen.append(page)
    if back:
        seen = [page]
        while page.prev_cursor:
            page = session_lists.list_sessions(filters, Page(limit, page.prev_cursor), actor=actor)
            seen.insert(0, page)
    assert all(part.count == 11 for part in seen)
    return [[row.title for row in part.items] for part in seen]


def test_pages_walk_both_ways(workspace: Any) -> None:
    actor = workspace.actor("admin")
    began = datetime(2026, 2, 1, tzinfo=UTC)
    with acting_as(actor):
        with transaction():
            for number in range(11):
                # Some share their time, so that the id has to decide.
                at = began + timedelta(hours=number // 3)
                session_store.create_session(NewSession(agent="a", title=f"s{number}", created_at=at), actor=actor)
        for sort in ("newest", "oldest"):
            forward = walk(actor, 4, sort)
            assert [len(part) for part in forward] == [4, 4, 3]
            assert sorted(chain(*forward)) == sorted(f"s{number}" for number in range(11))
            assert walk(actor, 4, sort, back=True) == forward
        newest = list(chain(*walk(actor, 3, "newest")))
        assert newest == list(chain(*walk(actor, 5, "oldest")))[::-1]
        first = session_lists.list_sessions(SessionFilters(), Page(4), actor=actor)
        assert first.prev_cursor is None
        beyond = Cursor(False, datetime(2030, 1, 1, tzinfo=UTC), uuid4()).text()
        assert session_lists.list_sessions(SessionFilters(), Page(4, beyond), actor=actor) == first


def test_the_count_stops_and_says_so(workspace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    actor = workspace.actor("admin")
    monkeypatch.setattr(paging, "MAX_COUNT", 3)
    with acting_as(actor):
        for number in range(5):
            with transaction():
                session_store.create_session(NewSession(agent="a", title=f"s{number}"), actor=actor)
            page = session_lists.list_sessions(SessionFilters(), Page(), actor=actor)
            expected = f"{min(number + 1, 3)}{'+' if number >= 3 else ''}"
            assert (page.count_text, page.count_is_more) == (expected, number >= 3)


def test_cursors_that_we_did_not_make_are_refused(workspace: Any) -> None:
    actor = workspace.actor("admin")

    def packed(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).decode()

    moment = datetime(2026, 1, 1, tzinfo=UTC)
    cursor = Cursor(True, moment, uuid4())
    assert Cursor.parse(cursor.text()) == cursor
    forged = [
        "x", "%%%", "é", "a" * 500, packed("a|b|c"), packed(f"a|{moment.isoformat()}|1"),
        packed(f"c|{moment.isoformat()}|{uuid4()}"), packed(f"a|2026-01-01T00:00:00|{uuid4()}"),
        packed(f"a|now|{uuid4()}"), packed(f"a|{moment.isoformat()}|{uuid4()}|more"), "\ud800",
    ]  # fmt: skip
    with acting_as(actor):
        for text in forged:
            with pytest.raises(Invalid, match="cursor"):
                session_lists.list_sessions(SessionFilters(), Page(10, text), actor=actor)


def test_limits_are_clamped() -> None:
    assert [Page(limit).limit for limit in (0, -5, 1, 100, 101, 999_999_999)] == [1, 1, 1, 100, 100, 100]


def test_filters_read_what_they_know() -> None:
    agent = uuid4()
    filters = FeedbackFilters.from_args(
        {"status": "pending", "agent_id": str(agent), "from": "2026-03-01", "to": "2026-03-31", "q": "EBITDA",
         "signal": "", "cursor": "x", "limit": "3"},
    )  # fmt: skip
    assert (filters.status, filters.agent_id, filters.since, filters.signal) == (
        "pending",
        agent,
        date(2026, 3, 1),
        None,
    )
    assert filters.narrows
    assert filters.as_args() == {
        "status": "pending",
        "agent_id": str(agent),
        "from": "2026-03-01",
        "to": "2026-03-31",
        "q": "EBITDA",
    }
    assert FeedbackFilters.from_args(filters.as_args()) == filters
    assert not FeedbackFilters.from_args({"sort": "oldest"}).narrows
    zone = timezone(timedelta(hours=2))
    [since] = SessionFilters.from_args({"from": "2026-03-01"}, zone=zone).conditions()
    assert since.right.value == datetime(2026, 2, 28, 22, 0, tzinfo=UTC)  # type: ignore[attr-defined]


def test_filters_refuse_what_they_do_not_know() -> None:
    wrong: list[tuple[Any, dict[str, str]]] = [
        (FeedbackFilters, {"colour": "red"}),
        (FeedbackFilters, {"status": "golden"}),
        (FeedbackFilters, {"agent_id": "12"}),
        (FeedbackFilters, {"sort": "created_by"}),
        (FeedbackFilters, {"from": "someday"}),
        (FeedbackFilters, {"from": "2026-02-30"}),
        (FeedbackFilters, {"to": "9999-12-31"}),
        (FeedbackFilters, {"q": "nul\x00"}),
        (FeedbackFilters, {"q": "\ud800"}),
        (FeedbackFilters, {"q": "x" * 300}),
        (FeedbackFilters, {"zone": "UTC"}),
        (SessionFilters, {"agent": "Not A Slug"}),
        (SessionFilters, {"golden": "maybe"}),
        (ChatFilters, {"status": "pending"}),
        (KnowledgeFilters, {"scope": "galaxy"}),
        (EntityFilters, {"entity_type": "../deal"}),
    ]
    for kind, args in wrong:
        with pytest.raises(Invalid):
            kind.from_args(args)
