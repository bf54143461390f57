"""How much feedback each day brought, by rating. Days are the workspace's own, by when something was said.

The counts are kept in `feedback_daily` and brought up to date in the background. Reading adds what came since, so that
nothing is missing on the page while there is little to add.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlalchemy import delete, func, select, text
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db, run
from app.models.feedback import RATINGS, Feedback, FeedbackDaily
from app.services.workspaces import store as workspace_store

DAYS = 90
FRESH = 1000
BATCH = 30
# A write that began before a count may commit after it; the next count looks back this far.
OVERLAP = timedelta(minutes=5)
EVERY_SECONDS = 60.0

_lock = threading.Lock()
_waiting: set[UUID] = set()

# The moment is made whole before rows are compared with it: under a policy PostgreSQL looks into the index only for
# what cannot give anything away, which `coalesce` is not known to be.
VOLUME = """
    WITH counted AS (
        SELECT coalesce(max(d.counted_at), '-infinity') AS at FROM feedback_daily AS d WHERE d.tenant_id = %(tenant)s
    ),
    fresh AS (
        SELECT f.occurred_at, f.rating FROM feedback AS f
         WHERE f.tenant_id = %(tenant)s AND f.created_at > (SELECT at FROM counted)
         ORDER BY f.created_at DESC LIMIT %(fresh)s
    )
    SELECT t.settings,
           (SELECT jsonb_agg(jsonb_build_array(d.day, d.rating, d.total)) FROM feedback_daily AS d
             WHERE d.tenant_id = %(tenant)s AND d.day >= %(since)s),
           (SELECT jsonb_agg(jsonb_build_array(extract(epoch FROM n.occurred_at), n.rating)) FROM fresh AS n)
      FROM tenants AS t WHERE t.id = %(tenant)s
"""
# Day by day through the index: as one join PostgreSQL would compare every row of the workspace with every day.
COUNT = text("""
    SELECT d.day, n.rating, n.total
      FROM unnest(CAST(:days AS date[]), CAST(:starts AS timestamptz[]), CAST(:ends AS timestamptz[]))
           AS d (day, since, until)
     CROSS JOIN LATERAL (
           SELECT f.rating, count(*) AS total FROM feedback AS f
            WHERE f.tenant_id = :tenant AND f.occurred_at >= d.since AND f.occurred_at < d.until AND f.created_at <= :at
            GROUP BY f.rating) AS n
""")
# Two who count the same workspace at once would write the same rows.
LOCK = text("select pg_advisory_xact_lock(hashtextextended('feedback_daily ' || :tenant, 0))")


@dataclass(frozen=True)
class Day:
    day: date
    positive: int = 0
    negative: int = 0
    neutral: int = 0

    @property
    def total(self) -> int:
        return self.positive + self.negative + self.neutral


def volume(*, actor: Actor, now: datetime | None = None) -> list[Day]:
    """Return what each of the last 90 days brought, the oldest first. One query, which reads the settings along."""
    now = now or datetime.now(UTC)
    since = now.date() - timedelta(days=DAYS + 1)
    [(settings, kept, fresh)] = run(VOLUME, {"tenant": actor.tenant_id, "since": since, "fresh": FRESH})
    zone = zone_called(workspace_store.cache_settings(settings, actor=actor).timezone)
    counts: Counter[tuple[date, str]] = Counter()
    for day, rating, total in kept or ():
        counts[date.fromisoformat(day), rating] += total
    for at, rating in fresh or ():
        counts[datetime.fromtimestamp(at, zone).date(), rating] += 1
    if fresh:
        mark_stale(actor.tenant_id)
    today = now.astimezone(zone).date()
    days = [today - timedelta(days=back) for back in range(DAYS - 1, -1, -1)]
    return [Day(day, **{rating: counts[day, rating] for rating in RATINGS}) for day in days]


def refresh(*, actor: Actor, now: datetime | None = None) -> int:
    """Count the days again that changed since they were counted; the number of these days.

    Today and yesterday are always among them. The first time on a day all 90 are: a reaction that was changed, or a row
    that was deleted, leaves no trace on the day it was counted for.
    """
    now = now or datetime.now(UTC)
    zone = zone_called(workspace_store.get_settings(actor).timezone)
    today = now.astimezone(zone).date()
    db.session.execute(LOCK, {"tenant": str(actor.tenant_id)})
    last = db.session.scalar(
        select(func.max(FeedbackDaily.counted_at)).where(FeedbackDaily.tenant_id == actor.tenant_id)
    )
    shown = [today - timedelta(days=back) for back in range(DAYS)]
    if last is None or last.astimezone(zone).date() != today:
        days = shown
    else:
        changed = _changed_since(last - OVERLAP, actor)
        days = [day for day in shown if day in changed or day in shown[:2]]
    for start in range(0, len(days), BATCH):
        _count(days[start : start + BATCH], zone, now, actor)
    return len(days)


def _changed_since(at: datetime, actor: Actor) -> set[date]:
    """The days that new rows may belong to: a day of ours overlaps up to three of any zone's."""
    began = func.date_trunc("day", Feedback.occurred_at, "UTC")
    found = db.session.scalars(
        select(began).where(Feedback.tenant_id == actor.tenant_id, Feedback.created_at > at).distinct()
    )
    return {moment.astimezone(UTC).date() + timedelta(days=step) for moment in found for step in (-1, 0, 1)}


def _count(days: Sequence[date], zone: tzinfo, now: datetime, actor: Actor) -> None:
    span = {
        "days": list(days),
        "starts": [datetime.combine(day, time.min, zone) for day in days],
        "ends": [datetime.combine(day + timedelta(days=1), time.min, zone) for day in days],
    }
    counted = db.session.execute(COUNT, {"tenant": actor.tenant_id, "at": now, **span}).all()
    db.session.execute(
        delete(FeedbackDaily).where(FeedbackDaily.tenant_id == actor.tenant_id, FeedbackDaily.day.in_(days))
    )
    same = {"tenant_id": actor.tenant_id, "counted_at": now}
    if counted:
        db.session.execute(insert(FeedbackDaily), [row._asdict() | same for row in counted])


def zone_called(name: str) -> tzinfo:
    """The zone, or UTC on a machine that does not know it."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return UTC


def mark_stale(tenant_id: UUID) -> None:
    """Remember that a workspace has something to count."""
    with _lock:
        _waiting.add(tenant_id)


def take_stale() -> Iterable[UUID]:
    """The workspaces that were noted since the last time."""
    with _lock:
        found = sorted(_waiting)
        _waiting.clear()
    return found
