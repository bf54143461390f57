"""How people received the sessions that had a row of knowledge in their prompt.

Feedback marks its session, in the database and in the same transaction. What is marked is counted anew from the
feedback that stands, and the difference to what was counted before is added to the rows: counting twice adds nothing,
and what is changed or taken back goes out again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any
from uuid import UUID

from sqlalchemy import text

from app.actor import Actor
from app.db import db
from app.services import knowledge_usage
from app.services.intake_links import AN_ID

BATCH = 200
WAITING = text("SELECT door_receptions()")
# What somebody else counts or marks just now is left to them.
TAKE = text("""
    SELECT r.session_id, r.helpful, r.harmful, r.row_ids FROM session_receptions AS r
     WHERE r.tenant_id = app_tenant() AND r.waiting ORDER BY r.session_id LIMIT :most FOR UPDATE SKIP LOCKED
""")
# One voice for each person and session, however often they say it; a rating that was skipped or taken back is none.
SAID = text("""
    SELECT f.session_id, count(DISTINCT f.created_by) FILTER (WHERE f.rating = 'positive') AS helpful,
           count(DISTINCT f.created_by) FILTER (WHERE f.rating = 'negative') AS harmful
      FROM feedback AS f
     WHERE f.tenant_id = app_tenant() AND f.session_id = ANY (CAST(:sessions AS uuid[])) AND f.origin = 'user'
       AND NOT coalesce(f.details -> 'skipped' = 'true', false) AND NOT f.details ? 'retracted_at'
     GROUP BY f.session_id
""")
# What our own runtime put into a prompt is as its event says. What a sender reports counts only where it names, by its
# hash, a prompt that the same person was given: then the rows are those of that prompt, whatever the event names.
LOADED = text("""
    SELECT e.session_id,
           CASE WHEN e.payload ? 'reported' THEN to_jsonb(p.row_ids) ELSE e.payload -> 'row_ids' END AS row_ids
      FROM session_events AS e
      JOIN sessions AS s ON s.tenant_id = e.tenant_id AND s.id = e.session_id
      LEFT JOIN served_prompts AS p
        ON p.tenant_id = e.tenant_id AND p.user_id = s.created_by AND p.sha256 = e.payload ->> 'sha256'
     WHERE e.tenant_id = app_tenant() AND e.session_id = ANY (CAST(:sessions AS uuid[]))
       AND e.event_type = 'context.loaded'
""")
KEEP = text("""
    UPDATE session_receptions AS r
       SET waiting = false, helpful = g.helpful, harmful = g.harmful, row_ids = g.row_ids
      FROM jsonb_to_recordset(CAST(:counted AS jsonb))
           AS g (session_id uuid, helpful integer, harmful integer, row_ids uuid[])
     WHERE r.tenant_id = app_tenant() AND r.session_id = g.session_id
""")
# Rows in the order of their ids, so that two batches never wait for each other in a circle.
ADD = text("""
    INSERT INTO shared_context_usage AS u (tenant_id, shared_context_id, helpful, harmful)
    SELECT c.tenant_id, c.id, g.helpful, g.harmful
      FROM jsonb_to_recordset(CAST(:moved AS jsonb)) AS g (id uuid, helpful bigint, harmful bigint)
      JOIN shared_context AS c ON c.tenant_id = app_tenant() AND c.id = g.id
     ORDER BY c.id
    ON CONFLICT (tenant_id, shared_context_id)
    DO UPDATE SET helpful = u.helpful + excluded.helpful, harmful = u.harmful + excluded.harmful
""")


def waiting() -> list[UUID]:
    """The workspaces in which somebody said something that is not counted."""
    return list(db.session.scalars(WAITING))


def count_receptions(*, actor: Actor, most: int = BATCH) -> int:
    """Count up to so many sessions of the actor's workspace; how many these were. Ranks follow at once."""
    taken = db.session.execute(TAKE, {"most": most}).all()
    if not taken:
        return 0
    # What is read from here on is newer than the locks, so nothing that was marked before is missing.
    sessions = [row.session_id for row in taken]
    said = {row.session_id: row for row in db.session.execute(SAID, {"sessions": sessions})}
    rows = _rows_of(sessions)
    counted: list[dict[str, Any]] = []
    moved: dict[UUID, list[int]] = defaultdict(lambda: [0, 0])
    for before in taken:
        now = said.get(before.session_id)
        helpful, harmful = (now.helpful, now.harmful) if now else (0, 0)
        _add(moved, before.row_ids, -before.helpful, -before.harmful)
        _add(moved, rows[before.session_id], helpful, harmful)
        ids = sorted(str(row_id) for row_id in rows[before.session_id])
        counted.append({"session_id": str(before.session_id), "helpful": helpful, "harmful": harmful, "row_ids": ids})
    db.session.execute(KEEP, {"counted": json.dumps(counted)})
    _write({row_id: by for row_id, by in moved.items() if any(by)}, actor)
    return len(taken)


def _rows_of(sessions: list[UUID]) -> dict[UUID, set[UUID]]:
    """The knowledge in the prompts of each session, as far as Upshot put it there. What is no id is passed over."""
    found: dict[UUID, set[UUID]] = defaultdict(set)
    for session_id, named in db.session.execute(LOADED, {"sessions": sessions}):
        ids = named if isinstance(named, list) else []
        found[session_id] |= {UUID(one) for one in ids if isinstance(one, str) and AN_ID.fullmatch(one)}
    return found


def _add(moved: dict[UUID, list[int]], row_ids: Any, helpful: int, harmful: int) -> None:
    for row_id in row_ids:
        moved[row_id][0] += helpful
        moved[row_id][1] += harmful


def _write(moved: dict[UUID, list[int]], actor: Actor) -> None:
    if not moved:
        return
    told = [{"id": str(row_id), "helpful": by[0], "harmful": by[1]} for row_id, by in moved.items()]
    db.session.execute(ADD, {"moved": json.dumps(told)})
    knowledge_usage.refresh_ranks(actor=actor, most=len(moved), only=list(moved))
