"""Pages of a search: the same rows in the same order whichever way they are read, and one count for all of them."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from sqlalchemy import text

from app.db import acting_as, db, transaction
from app.db.paging import Page
from app.services.feedback import lists as feedback_lists
from app.services.feedback.lists import FeedbackFilters
from app.services.sessions import lists as session_lists
from app.services.sessions import store as session_store
from app.services.sessions.lists import SessionFilters
from app.services.sessions.store import NewSession

pytestmark = [pytest.mark.usefixtures("app_context"), pytest.mark.core]

# Several share their time, so that the id has to decide.
FEEDBACK = text("""
    INSERT INTO feedback (tenant_id, source_type, rating, comment, created_by, created_at, occurred_at)
    SELECT :tenant, 'chat', 'negative', 'Covenant ' || n, :author, now() - n / 3 * interval '1 minute', now()
      FROM generate_series(1, :many) AS n
""")


def fill(actor: Any, many: int) -> None:
    with transaction():
        db.session.execute(FEEDBACK, {"tenant": actor.tenant_id, "author": actor.id, "many": many})


def walked(filters: FeedbackFilters, actor: Any, limit: int = 100) -> list[Any]:
    """All pages forward, and back again to see that they are the same."""
    seen = [feedback_lists.list_feedback(filters, Page(limit), actor=actor)]
    while seen[-1].next_cursor:
        seen.append(feedback_lists.list_feedback(filters, Page(limit, seen[-1].next_cursor), actor=actor))
    back = [seen[-1]]
    while back[0].prev_cursor:
        back.insert(0, feedback_lists.list_feedback(filters, Page(limit, back[0].prev_cursor), actor=actor))
    assert [part.items for part in back] == [part.items for part in seen]
    return seen


def test_a_search_walks_the_list_as_it_is(workspace: Any) -> None:
    actor = workspace.actor("admin")
    with acting_as(actor):
        fill(actor, 11)
        everything = feedback_lists.list_feedback(FeedbackFilters(), Page(100), actor=actor).items
        for narrower in ({}, {"rating": "negative"}, {"sort": "oldest"}):
            pages = walked(FeedbackFilters(q="covenants", **narrower), actor, 4)
            assert [len(part.items) for part in pages] == [4, 4, 3]
            assert {part.count_text for part in pages} == {"11"}
            rows = list(chain(*(part.items for part in pages)))
            assert rows == (everything[::-1] if "sort" in narrower else everything)
        assert feedback_lists.list_feedback(FeedbackFilters(q="absent"), Page(4), actor=actor).count == 0
        assert (
            feedback_lists.list_feedback(FeedbackFilters(q="covenants", rating="neutral"), Page(4), actor=actor).count
            == 0
        )


def test_a_search_counts_to_a_thousand_and_shows_the_newest(workspace: Any) -> None:
    actor = workspace.actor("admin")
    with acting_as(actor):
        fill(actor, 1000)
        assert {part.count_text for part in walked(FeedbackFilters(q="covenant"), actor)} == {"1,000"}
        fill(actor, 7)
        pages = walked(FeedbackFilters(q="covenant"), actor)
        assert {part.count_text for part in pages} == {"1,000+"}
        assert sum(len(part.items) for part in pages) == 1000


def test_members_find_and_count_their_own_messages(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        fill(admin, 5)
    with acting_as(member):
        fill(member, 2)
        page = feedback_lists.list_feedback(FeedbackFilters(q="covenant"), Page(), actor=member)
        assert (page.count, {row.author_id for row in page.items}) == (2, {member.id})


def test_sessions_are_found_page_by_page(workspace: Any) -> None:
    actor = workspace.actor("admin")
    with acting_as(actor):
        with transaction():
            for number in range(5):
                session_store.create_session(NewSession(agent="a", title=f"Covenant {number}"), actor=actor)
            session_store.create_session(NewSession(agent="a", title="Another"), actor=actor)
        filters = SessionFilters(q="covenant")
        first = session_lists.list_sessions(filters, Page(3), actor=actor)
        second = session_lists.list_sessions(filters, Page(3, first.next_cursor), actor=actor)
        everything = session_lists.list_sessions(SessionFilters(), Page(), actor=actor).items
        assert first.items + second.items == [row for row in everything if row.title != "Another"]
        assert (first.count, second.count, second.next_cursor) == (5, 5, None)
