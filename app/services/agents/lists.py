"""The agents of a workspace as their page lists them: what each is, how much it did lately, how that was received."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text

from app.actor import Actor
from app.db import db
from app.db.paging import Slice
from app.errors import NotFound

WINDOW = timedelta(days=30)
# Enough to judge by, and the same effort however much there is.
SCAN_LIMIT = 20_000
PAGE_SIZE = 100

# The newest rows are taken first and sorted out by agent afterwards, so that the effort has a bound. Satisfaction is
# the share of positive ratings among those that people gave; a rating that was skipped or taken back is none.
STATS = """
    WITH lately AS (
        SELECT r.agent_id, count(*) FILTER (WHERE r.rating = 'positive') AS good, count(*) AS ratings
          FROM (SELECT f.agent_id, f.rating, f.origin, f.details FROM feedback AS f
                 WHERE f.tenant_id = :tenant AND f.created_at >= :since
                 ORDER BY f.created_at DESC LIMIT :newest) AS r
         WHERE r.agent_id IS NOT NULL AND r.origin = 'user'
           AND NOT coalesce(r.details -> 'skipped' = 'true', false) AND NOT r.details ? 'retracted_at'
         GROUP BY r.agent_id
    ), worked AS (
        SELECT r.agent_id, count(*) AS sessions, sum(r.cost) AS cost, count(r.cost) AS costed,
               percentile_cont(0.5) WITHIN GROUP (ORDER BY r.duration_ms) AS typical_ms,
               mode() WITHIN GROUP (ORDER BY r.model) AS model
          FROM (SELECT s.agent_id, s.cost, s.duration_ms, s.model, s.eval_source FROM sessions AS s
                 WHERE s.tenant_id = :tenant AND s.created_at >= :since
                 ORDER BY s.created_at DESC, s.id DESC LIMIT :newest) AS r
         WHERE r.eval_source IS NULL GROUP BY r.agent_id
    )
    SELECT a.id, a.slug, a.name, a.description, a.kind, a.is_system, a.archived_at, a.current_version AS version,
           a.updated_at, v.config ->> 'model' AS own_model, w.model AS reported_model,
           coalesce(w.sessions, 0) AS sessions, w.cost, w.costed, w.typical_ms,
           greatest(
               (SELECT max(s.created_at) FROM sessions AS s WHERE s.tenant_id = a.tenant_id AND s.agent_id = a.id),
               (SELECT max(c.last_message_at) FROM chats AS c WHERE c.tenant_id = a.tenant_id AND c.agent_id = a.id)
           ) AS active_at,
           l.good, l.ratings, l.good::float / l.ratings AS satisfaction,
           a.kind <> 'external' AND NOT a.is_system AND a.archived_at IS NULL AS runs_here,
           ARRAY(SELECT o.slug FROM agents AS o
                  WHERE o.tenant_id = a.tenant_id AND o.merged_into = a.id ORDER BY o.slug) AS other_names
      FROM agents AS a
      LEFT JOIN lately AS l ON l.agent_id = a.id
      LEFT JOIN worked AS w ON w.agent_id = a.id
      LEFT JOIN agent_versions AS v
             ON v.tenant_id = a.tenant_id AND v.agent_id = a.id AND v.version = a.current_version
     WHERE a.tenant_id = :tenant AND a.merged_into IS NULL AND {which}
     ORDER BY a.is_system, a.slug LIMIT :rows
"""
AT_WORK = text(STATS.format(which="a.archived_at IS NULL AND (a.is_system::text, a.slug) > (:system, :slug)"))
ARCHIVED = text(STATS.format(which="a.archived_at IS NOT NULL AND (a.is_system::text, a.slug) > (:system, :slug)"))
ONE = text(STATS.format(which="a.id = :agent"))


def list_stats(*, actor: Actor, archived: bool = False, after: str = "") -> Slice[Any]:
    """A hundred agents by name, the workspace's own last, as `STATS` reads them. One query. Sessions, cost, the typical
    duration and ratings are those of the last 30 days, replays left out. `own_model` is what the version says,
    `reported_model` what its sessions mostly used, `other_names` what was merged into it."""
    system, _, slug = after.partition(":")
    place = {"system": "true" if system == "system" else "false", "slug": slug[:200]}
    found = _read_stats(ARCHIVED if archived else AT_WORK, actor, rows=PAGE_SIZE + 1, **place)
    rows = found[:PAGE_SIZE]
    last = f"{'system' if rows[-1].is_system else 'own'}:{rows[-1].slug}" if len(found) > PAGE_SIZE else None
    return Slice(list(rows), last)


def get_stats(agent_id: UUID, *, actor: Actor) -> Any:
    """One agent, at work or archived. One that was merged into another is not found. One query."""
    found = _read_stats(ONE, actor, rows=1, agent=agent_id)
    if not found:
        raise NotFound("There is no such agent in this workspace.")
    return found[0]


def _read_stats(statement: Any, actor: Actor, **values: Any) -> Sequence[Any]:
    since = datetime.now(UTC) - WINDOW
    return db.session.execute(
        statement, {"tenant": actor.tenant_id, "since": since, "newest": SCAN_LIMIT} | values
    ).all()
