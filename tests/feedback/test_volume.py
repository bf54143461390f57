"""The daily counts behind the volume strip: whose day it is, what is counted again, what is added while reading."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, select

from app.db import acting_as, db, transaction
from app.models import Feedback
from app.models.feedback import FeedbackDaily
from app.services.feedback import intake as feedback_intake
from app.services.feedback import volume as feedback_volume
from app.services.feedback.intake import NewFeedback
from app.services.workspaces import store as workspace_store

pytestmark = pytest.mark.usefixtures("app_context")

# Noon of the day before, so that nothing here lies ahead of the clock.
NOW = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)


def say(actor: Any, at: datetime, rating: str = "negative", **more: Any) -> Feedback:
    new = NewFeedback(source_type="session", rating=rating, created_at=at, occurred_at=at, **more)
    return feedback_intake.record_feedback(new, actor=actor).row


def totals_by_day(actor: Any, now: datetime = NOW) -> dict[date, tuple[int, int, int]]:
    """The days on which something was said."""
    days = feedback_volume.volume(actor=actor, now=now)
    return {day.day: (day.positive, day.negative, day.neutral) for day in days if day.total}


def stored(actor: Any) -> dict[tuple[date, str], int]:
    rows = db.session.execute(select(FeedbackDaily.day, FeedbackDaily.rating, FeedbackDaily.total))
    return {(day, rating): total for day, rating, total in rows}


def test_what_is_not_counted_yet_is_added_while_reading(workspace: Any) -> None:
    actor = workspace.actor("admin")
    with acting_as(actor):
        with transaction():
            say(actor, NOW - timedelta(days=3))
            say(actor, NOW - timedelta(hours=1), "positive")
            say(actor, NOW - timedelta(days=100))
        assert totals_by_day(actor) == {NOW.date() - timedelta(days=3): (0, 1, 0), NOW.date(): (1, 0, 0)}
        assert workspace.id in feedback_volume.take_stale()
        days = feedback_volume.volume(actor=actor, now=NOW)
        assert (len(days), days[-1].day) == (90, NOW.date())

        with transaction():
            assert feedback_volume.refresh(actor=actor, now=NOW) == 90
        assert stored(actor) == {
            (NOW.date() - timedelta(days=3), "negative"): 1,
            (NOW.date(), "positive"): 1,
        }
        with transaction():
            say(actor, NOW + timedelta(minutes=1), "neutral")
        assert totals_by_day(actor)[NOW.date()] == (1, 0, 1)


def test_only_what_changed_is_counted_again(workspace: Any) -> None:
    actor = workspace.actor("admin")
    late = NOW + timedelta(hours=1)
    with acting_as(actor):
        with transaction():
            say(actor, NOW - timedelta(days=40))
            say(actor, NOW - timedelta(hours=1))
            feedback_volume.refresh(actor=actor, now=NOW)
        with transaction():
            # Said long ago, told only now.
            told = NewFeedback(
                source_type="session",
                rating="positive",
                created_at=NOW + timedelta(minutes=30),
                occurred_at=NOW - timedelta(days=20),
            )
            feedback_intake.record_feedback(told, actor=actor)
            db.session.execute(delete(Feedback).where(Feedback.occurred_at < NOW - timedelta(days=30)))
        with transaction():
            # Today, yesterday, and the day in question with one on either side.
            assert feedback_volume.refresh(actor=actor, now=late) == 5
        twenty, forty = (NOW.date() - timedelta(days=back) for back in (20, 40))
        assert totals_by_day(actor, late) == {forty: (0, 1, 0), twenty: (1, 0, 0), NOW.date(): (0, 1, 0)}

        tomorrow = NOW + timedelta(days=1)
        with transaction():
            assert feedback_volume.refresh(actor=actor, now=tomorrow) == 90
        assert forty not in totals_by_day(actor, tomorrow)


def test_a_row_that_arrives_while_counting_is_neither_lost_nor_counted_twice(workspace: Any) -> None:
    actor = workspace.actor("admin")
    with acting_as(actor):
        with transaction():
            say(actor, NOW - timedelta(minutes=2))
            say(actor, NOW + timedelta(seconds=1))
            feedback_volume.refresh(actor=actor, now=NOW)
        assert totals_by_day(actor)[NOW.date()] == (0, 2, 0)
        with transaction():
            say(actor, NOW - timedelta(seconds=1))
        with transaction():
            feedback_volume.refresh(actor=actor, now=NOW + timedelta(minutes=1))
        assert totals_by_day(actor)[NOW.date()] == (0, 3, 0)


def test_days_are_the_workspaces_own(workspace: Any) -> None:
    actor = workspace.actor("admin")
    night = NOW.replace(hour=23) - timedelta(days=2)
    with acting_as(actor):
        with transaction():
            say(actor, night)
            feedback_volume.refresh(actor=actor, now=NOW)
        assert totals_by_day(actor) == {night.date(): (0, 1, 0)}
        with transaction():
            workspace_store.change_settings({"timezone": "Asia/Tokyo"}, actor=actor)
        assert stored(actor) == {}
        assert totals_by_day(actor) == {night.date() + timedelta(days=1): (0, 1, 0)}
        with transaction():
            feedback_volume.refresh(actor=actor, now=NOW)
        assert totals_by_day(actor) == {night.date() + timedelta(days=1): (0, 1, 0)}


def test_settings_are_read_once_in_a_transaction(workspace: Any, count_queries: Any) -> None:
    actor = workspace.actor("admin")
    with acting_as(actor):
        with count_queries() as seen:
            volume = feedback_volume.volume(actor=actor)
            assert workspace_store.get_settings(actor).timezone == "UTC"
        assert len(seen) == 1
        assert not any(day.total for day in volume)
        with transaction():
            workspace_store.change_settings({"timezone": "Europe/Berlin"}, actor=actor)
            assert workspace_store.get_settings(actor).timezone == "Europe/Berlin"


def test_workspaces_do_not_see_each_others_counts(make_workspace: Any) -> None:
    first, second = make_workspace().actor("admin"), make_workspace().actor("admin")
    with acting_as(first), transaction():
        say(first, NOW - timedelta(hours=1))
        feedback_volume.refresh(actor=first, now=NOW)
    with acting_as(second):
        assert totals_by_day(second) == {}
