"""Patterns: which feedback belongs together, counted, and for admins only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.db import acting_as, db, transaction
from app.db.paging import Page
from app.errors import Forbidden, NotFound
from app.models import Feedback, FeedbackPattern
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.review import pattern_figures, patterns
from app.services.review.pattern_figures import PatternFilters
from app.services.review.patterns import NewPattern

pytestmark = pytest.mark.usefixtures("app_context")
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def give(actor: Any, comment: str, days_ago: int) -> tuple[Any, datetime]:
    at = NOW - timedelta(days=days_ago)
    new = NewFeedback(source_type="session", rating="negative", comment=comment, occurred_at=at)
    with acting_as(actor), transaction():
        return record_feedback(new, actor=actor).row.id, at


def save(actor: Any, label: str, *rows: tuple[Any, datetime], id: Any = None) -> Any:
    new = NewPattern(label=label, agent_id=None, entity_type_id=None, rows=rows, id=id)
    with acting_as(actor), transaction():
        return patterns.save_pattern(new, actor=actor)[rows[-1][0]]


def test_rows_join_move_and_go_with_their_pattern(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    rows = [give(member, "The margin is wrong", day) for day in (1, 5, 9)]
    first = save(admin, "Wrong margin", *rows[:2])
    second = save(admin, "Wrong margin again", rows[2])
    assert save(admin, "Wrong margin", rows[2], id=first) == first, "a known pattern stays what it is"
    with acting_as(admin):
        assert set(patterns.patterns_of([row for row, _ in rows], actor=admin).values()) == {first}
        assert db.session.get(FeedbackPattern, second) is None, "it has no rows any more"
        found = pattern_figures.list_patterns(PatternFilters(), Page(), actor=admin)
        [pattern] = found.items
        assert (pattern.count, pattern.first_seen, pattern.last_seen) == (3, rows[2][1], rows[0][1])
        assert (pattern.rule, found.count) == (None, 1)
        samples = pattern_figures.list_samples(first, actor=admin)
        assert [one.id for one in samples] == [row for row, _ in rows]
        with transaction():
            db.session.delete(db.session.get_one(Feedback, rows[0][0]))
            db.session.flush()
            patterns.recount([first], actor=admin)
        assert patterns.get_pattern(first, actor=admin).signal_count == 2


def test_a_row_stays_in_its_pattern_and_new_rows_join_it(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    rows = [give(member, "The margin is wrong", day) for day in range(1, 6)]
    first = save(admin, "Wrong margin", *rows[:2])
    second = save(admin, "Wrong leverage", *rows[2:4])
    with acting_as(admin):
        before = patterns.patterns_of([row for row, _ in rows], actor=admin)
    assert save(admin, "Everything", *rows[:3], rows[4], id=second) == first, "a new row joins where most are"
    with acting_as(admin):
        after = patterns.patterns_of([row for row, _ in rows], actor=admin)
    assert after == before | {rows[4][0]: first}


def test_patterns_are_for_admins_of_their_workspace(workspace: Any, make_workspace: Any) -> None:
    admin, member, foreign = workspace.actor("admin"), workspace.actor("member"), make_workspace().actor("admin")
    row = give(member, "The margin is wrong", 1)
    pattern_id = save(admin, "Wrong margin", row)
    with acting_as(member):
        assert patterns.patterns_of([row[0]], actor=member) == {}
        with pytest.raises(Forbidden):
            pattern_figures.list_patterns(PatternFilters(), Page(), actor=member)
    with acting_as(foreign):
        assert patterns.patterns_of([row[0]], actor=foreign) == {}
        with pytest.raises(NotFound):
            patterns.get_pattern(pattern_id, actor=foreign)
