"""The weekly digest: what came in, what was proposed, which rules became active, and which sets dropped. Weeks begin on
Monday in the workspace's own time zone."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any

from sqlalchemy import text

from app.actor import Actor
from app.db import db
from app.services.evals.charts.dropped import DroppedSet, list_drops
from app.services.feedback import volume as feedback_volume
from app.services.workspaces import store as workspace_store

WEEKS = 12
MAX_LISTED = 50
WEEK = timedelta(days=7)
# Each week through the index of changes by time.
RULES = text("""
    SELECT w.number, c.proposed, c.activated
      FROM unnest(CAST(:starts AS timestamptz[]), CAST(:ends AS timestamptz[])) WITH ORDINALITY
           AS w (since, until, number)
     CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE h.action = 'created' AND h.after ->> 'state' = 'proposed') AS proposed,
                  count(*) FILTER (WHERE h.after ->> 'state' = 'active'
                                     AND h.before ->> 'state' IS DISTINCT FROM 'active') AS activated
             FROM shared_context_history AS h
            WHERE h.tenant_id = :tenant AND h.created_at >= w.since AND h.created_at < w.until) AS c
     ORDER BY w.number
""")
ACTIVATED = text("""
    SELECT DISTINCT ON (c.id) c.id, c.content, c.type, c.state, h.created_at AS at
      FROM shared_context_history AS h
      JOIN shared_context AS c ON c.tenant_id = h.tenant_id AND c.id = h.shared_context_id
     WHERE h.tenant_id = :tenant AND h.created_at >= :since AND h.created_at < :until
       AND h.after ->> 'state' = 'active' AND h.before ->> 'state' IS DISTINCT FROM 'active'
     ORDER BY c.id, h.created_at DESC LIMIT :most
""")


@dataclass(frozen=True)
class Week:
    """A week in figures; `ends` is its Sunday. The current one is not over yet."""

    begins: date
    received: int
    negative: int
    proposed: int
    activated: int
    regressed: int
    current: bool

    @property
    def ends(self) -> date:
        return self.begins + timedelta(days=6)


@dataclass(frozen=True)
class Digest:
    """The last weeks, the newest first, and of one of them the rules and the sets. The current one ends at `until`."""

    weeks: list[Week]
    until: datetime
    chosen: Week
    rules: Sequence[Any]
    sets: Sequence[DroppedSet]


def load_digest(wanted: date | None = None, *, actor: Actor, now: datetime | None = None) -> Digest:
    """The digest of the week with this day, by default the last one that is over. Four queries."""
    actor.check_admin("Only admins can read the digest.")
    now = now or datetime.now(UTC)
    days = feedback_volume.volume(actor=actor, now=now)
    zone = feedback_volume.zone_called(workspace_store.get_settings(actor).timezone)
    today = now.astimezone(zone).date()
    monday = today - timedelta(days=today.weekday())
    mondays = [monday - WEEK * back for back in range(WEEKS)]
    since, until = _start(mondays[-1], zone), _start(monday + WEEK, zone)
    asked = {"tenant": actor.tenant_id, "most": MAX_LISTED}
    drops = list_drops(since, until, WEEKS * MAX_LISTED, actor=actor)
    spans = {"starts": [_start(one, zone) for one in mondays], "ends": [_start(one + WEEK, zone) for one in mondays]}
    counts = db.session.execute(RULES, {"tenant": actor.tenant_id, **spans}).all()
    weeks = []
    for begins, count in zip(mondays, counts, strict=True):
        inside = [day for day in days if begins <= day.day < begins + WEEK]
        received, negative = sum(day.total for day in inside), sum(day.negative for day in inside)
        dropped = len({one.set_name for one in drops if _is_within(one.at, begins, zone)})
        weeks.append(Week(begins, received, negative, count.proposed, count.activated, dropped, begins == monday))
    chosen = next((one for one in weeks if wanted and one.begins <= wanted <= one.ends), weeks[1])
    span = {"since": _start(chosen.begins, zone), "until": _start(chosen.begins + WEEK, zone)}
    rules = db.session.execute(ACTIVATED, {**asked, **span}).all()
    sets = [one for one in drops if _is_within(one.at, chosen.begins, zone)][:MAX_LISTED]
    return Digest(weeks, until, chosen, sorted(rules, key=lambda row: row.at, reverse=True), sets)


def _start(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time.min, zone)


def _is_within(at: datetime, begins: date, zone: tzinfo) -> bool:
    return _start(begins, zone) <= at < _start(begins + WEEK, zone)
