"""How often knowledge was used. Counted in batches, off the rows that prompts read.

Reading a prompt over the API writes nothing: the use is noted in memory and written later with the uses of keys.
"""

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from sqlalchemy import delete, func, select, text
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db
from app.formats.ids import parse_id
from app.learning.prompt import Prompt
from app.learning.ranking import HALF_LIFE_DAYS
from app.models import ServedPrompt, SharedContext, SharedContextUsage, User

Counts = dict[UUID, tuple[int, datetime]]
# By whom it was asked for and the hash of the prompt: the rows in it, and when it was last asked for.
Served = dict[tuple[UUID, str], tuple[list[UUID], datetime]]
BATCH = 1000
# A prompt that nobody asked for in that time proves nothing any more.
SERVED_FOR = timedelta(days=30)


@dataclass
class PendingUsage:
    """What was noted of one workspace: how often each row was in a prompt, and which prompts went to whom."""

    counts: Counts = field(default_factory=dict)
    served: Served = field(default_factory=dict)


_lock = threading.Lock()
_pending: dict[UUID, PendingUsage] = defaultdict(PendingUsage)
# What `learning.ranking.rank` says now, where it differs from the stored rank. Locked rows are skipped.
REFRESH = text("""
    WITH fresh AS (
        SELECT c.id, r.rank FROM shared_context AS c
          LEFT JOIN shared_context_usage AS u ON u.tenant_id = c.tenant_id AND u.shared_context_id = c.id
         CROSS JOIN LATERAL (
               SELECT (power(2.0, -greatest(extract(epoch FROM clock_timestamp() - c.updated_at), 0) / 86400 / :half)
                       + 0.5 * (coalesce(u.helpful, 0) - coalesce(u.harmful, 0))
                             / (coalesce(u.helpful, 0) + coalesce(u.harmful, 0) + 4)
                       + CASE WHEN c.pinned THEN 2 ELSE 0 END)::real AS rank
               ) AS r
         WHERE c.tenant_id = app_tenant() AND c.active AND (CAST(:only AS uuid[]) IS NULL OR c.id = ANY (:only))
           AND abs(c.rank - r.rank) > :moved
         LIMIT :most FOR NO KEY UPDATE OF c SKIP LOCKED
    )
    UPDATE shared_context AS c SET rank = fresh.rank FROM fresh WHERE c.tenant_id = app_tenant() AND c.id = fresh.id
""")
# A row changes its place by so much; less is not worth a write.
MIN_RANK_CHANGE = 0.02


def note_injected(tenant_id: UUID, row_ids: Iterable[UUID]) -> None:
    """Remember that these rows went into a prompt now."""
    with _lock:
        _add_counts(_pending[tenant_id].counts, row_ids, datetime.now(UTC))


def note_served(prompt: Prompt, *, actor: Actor) -> None:
    """Remember that an agent outside asked for this prompt now. Its session may name the prompt later, by its hash."""
    if not prompt.row_ids:
        return
    at = datetime.now(UTC)
    with _lock:
        noted = _pending[actor.tenant_id]
        _add_counts(noted.counts, prompt.row_ids, at)
        noted.served[actor.id, prompt.sha256] = (prompt.row_ids, at)


def _add_counts(counts: Counts, row_ids: Iterable[UUID], at: datetime) -> None:
    for row_id in row_ids:
        counts[row_id] = (counts.get(row_id, (0, at))[0] + 1, at)


def take_pending() -> dict[UUID, PendingUsage]:
    """Take what was noted, by workspace. The caller writes it or puts it back."""
    with _lock:
        taken = {tenant: noted for tenant, noted in _pending.items() if noted.counts}
        _pending.clear()
    return taken


def restore_pending(tenant_id: UUID, taken: PendingUsage) -> None:
    """It could not be written; the next batch has it too."""
    with _lock:
        noted = _pending[tenant_id]
        for row_id, (number, at) in taken.counts.items():
            before = noted.counts.get(row_id, (0, at))
            noted.counts[row_id] = (before[0] + number, max(before[1], at))
        noted.served = taken.served | noted.served


def write_usage(noted: PendingUsage, *, actor: Actor) -> None:
    """Write what was noted of the actor's workspace, but of rows that are gone."""
    wanted = SharedContext.id.in_(list(noted.counts))
    known = db.session.scalars(select(SharedContext.id).where(SharedContext.tenant_id == actor.tenant_id, wanted))
    note_injections({row_id: noted.counts[row_id] for row_id in known}, actor=actor)
    if noted.served:
        _write_served(noted.served, actor)


def _write_served(served: Served, actor: Actor) -> None:
    """Keep which prompts went to whom, but to people who left meanwhile, and forget those of long ago."""
    known = set(db.session.scalars(select(User.id).where(User.id.in_({user_id for user_id, _ in served}))))
    rows = [
        {"tenant_id": actor.tenant_id, "user_id": user_id, "sha256": sha256, "row_ids": row_ids, "served_at": at}
        for (user_id, sha256), (row_ids, at) in sorted(served.items())
        if user_id in known
    ]
    if not rows:
        return
    new = insert(ServedPrompt).values(rows)
    later = func.greatest(ServedPrompt.served_at, new.excluded.served_at)
    changed = {"row_ids": new.excluded.row_ids, "served_at": later}
    db.session.execute(new.on_conflict_do_update(index_elements=["tenant_id", "user_id", "sha256"], set_=changed))
    old = ServedPrompt.served_at < datetime.now(UTC) - SERVED_FOR
    db.session.execute(delete(ServedPrompt).where(ServedPrompt.tenant_id == actor.tenant_id, old))


def note_injections(counts: Mapping[UUID, tuple[int, datetime]], *, actor: Actor) -> None:
    """Add how often each row was in a prompt, and when last. Rows in the order of their ids, so that two batches
    never wait for each other in a circle."""
    if not counts:
        return
    rows = [
        {"tenant_id": actor.tenant_id, "shared_context_id": row_id, "injected": number, "last_injected_at": last}
        for row_id, (number, last) in sorted(counts.items())
    ]
    new, used = insert(SharedContextUsage).values(rows), SharedContextUsage
    changed = {
        "injected": used.injected + new.excluded.injected,
        "last_injected_at": func.greatest(used.last_injected_at, new.excluded.last_injected_at),
    }
    db.session.execute(new.on_conflict_do_update(index_elements=["tenant_id", "shared_context_id"], set_=changed))


def refresh_ranks(*, actor: Actor, most: int = BATCH, only: list[UUID] | None = None) -> int:
    """Bring up to so many ranks up to date, of all rows or `only` of some, since rows grow older and are received well
    or badly; how many moved."""
    given = {"half": HALF_LIFE_DAYS, "moved": MIN_RANK_CHANGE, "most": most, "only": only}
    return int(db.session.execute(REFRESH, given).rowcount)  # type: ignore[attr-defined]


# How people received the sessions that had a knowledge row in their prompt. Feedback marks its session in the database,
# in the same transaction. A marked session is counted again from its current feedback and only the difference is added
# to the rows, so counting twice adds nothing and a retracted signal is taken out again.

RECEPTION_BATCH = 200
WAITING = text("SELECT door_receptions()")
# Sessions that another process counts or marks just now are skipped.
TAKE_WAITING = text("""
    SELECT r.session_id, r.helpful, r.harmful, r.row_ids FROM session_receptions AS r
     WHERE r.tenant_id = app_tenant() AND r.waiting ORDER BY r.session_id LIMIT :most FOR UPDATE SKIP LOCKED
""")
# One voice for each person and session, however often they say it; a rating that was skipped or taken back is none.
RATINGS = text("""
    SELECT s.session_id, count(DISTINCT f.created_by) FILTER (WHERE f.rating = 'positive') AS helpful,
           count(DISTINCT f.created_by) FILTER (WHERE f.rating = 'negative') AS harmful
      FROM unnest(CAST(:sessions AS uuid[])) AS s (session_id)
      LEFT JOIN feedback AS f
        ON f.tenant_id = app_tenant() AND f.session_id = s.session_id AND f.origin = 'user'
       AND NOT coalesce(f.details -> 'skipped' = 'true', false) AND NOT f.details ? 'retracted_at'
     GROUP BY s.session_id
""")
# What our own runtime put into a prompt is as its event says. What a sender reports counts only where it names, by its
# hash, a prompt that the same person was given: then the rows are those of that prompt, whatever the event names.
EMPTY_PROMPT = sha256(b"").hexdigest()
LOADED = text("""
    SELECT e.session_id,
           CASE WHEN NOT e.payload ? 'reported' THEN e.payload -> 'row_ids'
                WHEN e.payload ->> 'sha256' = :empty THEN '[]' ELSE to_jsonb(p.row_ids) END AS row_ids
      FROM session_events AS e
      JOIN sessions AS s ON s.tenant_id = e.tenant_id AND s.id = e.session_id
      LEFT JOIN served_prompts AS p
        ON p.tenant_id = e.tenant_id AND p.user_id = s.created_by AND p.sha256 = e.payload ->> 'sha256'
     WHERE e.tenant_id = app_tenant() AND e.session_id = ANY (CAST(:sessions AS uuid[]))
       AND e.event_type = 'context.loaded'
""")
SAVE_COUNTS = text("""
    UPDATE session_receptions AS r
       SET waiting = false, helpful = g.helpful, harmful = g.harmful, row_ids = g.row_ids
      FROM jsonb_to_recordset(CAST(:counted AS jsonb))
           AS g (session_id uuid, helpful integer, harmful integer, row_ids uuid[])
     WHERE r.tenant_id = app_tenant() AND r.session_id = g.session_id
""")
# Rows in the order of their ids, so that two batches never wait for each other in a circle.
ADD_RECEPTIONS = text("""
    INSERT INTO shared_context_usage AS u (tenant_id, shared_context_id, helpful, harmful)
    SELECT c.tenant_id, c.id, g.helpful, g.harmful
      FROM jsonb_to_recordset(CAST(:moved AS jsonb)) AS g (id uuid, helpful bigint, harmful bigint)
      JOIN shared_context AS c ON c.tenant_id = app_tenant() AND c.id = g.id
     ORDER BY c.id
    ON CONFLICT (tenant_id, shared_context_id)
    DO UPDATE SET helpful = u.helpful + excluded.helpful, harmful = u.harmful + excluded.harmful
""")


def waiting_workspaces() -> list[UUID]:
    """The workspaces with ratings that are not counted yet."""
    return list(db.session.scalars(WAITING))


def count_receptions(*, actor: Actor, most: int = RECEPTION_BATCH) -> int:
    """Count up to so many sessions of the actor's workspace; how many these were. Ranks follow at once."""
    taken = db.session.execute(TAKE_WAITING, {"most": most}).all()
    if not taken:
        return 0
    # What is read from here on is newer than the locks, so nothing that was marked before is missing.
    sessions = [row.session_id for row in taken]
    ratings = {row.session_id: row for row in db.session.execute(RATINGS, {"sessions": sessions})}
    rows = _rows_of(sessions)
    counted: list[dict[str, Any]] = []
    helpful: Counter[UUID] = Counter()
    harmful: Counter[UUID] = Counter()
    for before in taken:
        now, row_ids = ratings[before.session_id], rows[before.session_id]
        helpful.update(dict.fromkeys(row_ids, now.helpful))
        harmful.update(dict.fromkeys(row_ids, now.harmful))
        helpful.subtract(dict.fromkeys(before.row_ids, before.helpful))
        harmful.subtract(dict.fromkeys(before.row_ids, before.harmful))
        counted.append({**now._mapping, "row_ids": sorted(row_ids)})
    db.session.execute(SAVE_COUNTS, {"counted": json.dumps(counted, default=str)})
    moved = [row_id for row_id in helpful.keys() | harmful.keys() if helpful[row_id] or harmful[row_id]]
    if moved:
        changes = [{"id": str(one), "helpful": helpful[one], "harmful": harmful[one]} for one in moved]
        db.session.execute(ADD_RECEPTIONS, {"moved": json.dumps(changes)})
        refresh_ranks(actor=actor, most=len(moved), only=moved)
    return len(taken)


def read_loaded(sessions: list[UUID]) -> Iterator[tuple[UUID, list[Any] | None]]:
    """What each prompt of these sessions had, as ids of knowledge; None where a sender reports a prompt that Upshot did
    not give. One query."""
    for session_id, named in db.session.execute(LOADED, {"sessions": sessions, "empty": EMPTY_PROMPT}):
        yield session_id, named if isinstance(named, list) else None


def _rows_of(sessions: list[UUID]) -> dict[UUID, set[UUID]]:
    """The knowledge in the prompts of each session, as far as Upshot put it there. What is no id is passed over."""
    found: dict[UUID, set[UUID]] = defaultdict(set)
    for session_id, named in read_loaded(sessions):
        found[session_id] |= {found_id for one in named or [] if (found_id := parse_id(one))}
    return found
