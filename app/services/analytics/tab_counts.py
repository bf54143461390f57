"""What waits for a decision, as the tabs say it."""

from typing import Any

from sqlalchemy import text

from app.actor import Actor
from app.db import db
from app.services.evals.charts.dropped import COUNTED_RUN, dropped_statements

MAX_COUNT = 1000
_SETS, _LATEST, _DROPPED = dropped_statements(":tenant")
_BEFORE_LAST = "run.set_name = last.set_name AND (run.created_at, run.id) < (last.created_at, last.id)"
_OLDER = COUNTED_RUN.format(tenant=":tenant", which=_BEFORE_LAST)
COUNTS = text(f"""
    WITH RECURSIVE {_SETS}, latest AS ({_LATEST}),
    last AS (SELECT * FROM latest ORDER BY created_at DESC, id DESC LIMIT 1),
    before AS (
        SELECT passed, judged FROM latest WHERE id <> (SELECT id FROM last)
        UNION ALL SELECT older.passed, older.judged FROM last, LATERAL ({_OLDER}) AS older
    ), pending AS NOT MATERIALIZED (
        SELECT created_at, assignee_id FROM feedback WHERE tenant_id = :tenant AND status = 'pending'
    )
    SELECT (SELECT count(*) FROM (SELECT FROM pending LIMIT {MAX_COUNT}) AS one) AS feedback,
           (SELECT count(*) FROM (SELECT FROM pending WHERE assignee_id = :me LIMIT {MAX_COUNT}) AS one) AS mine,
           (SELECT min(created_at) FROM pending) AS oldest,
           (SELECT count(*) FROM (SELECT FROM shared_context WHERE tenant_id = :tenant AND state = 'proposed'
                                  LIMIT {MAX_COUNT}) AS one) AS knowledge,
           (SELECT count(*) FROM (SELECT FROM change_drafts WHERE tenant_id = :tenant AND status = 'open'
                                  LIMIT {MAX_COUNT}) AS one) AS drafts,
           (SELECT count(*) FROM (SELECT FROM tasks WHERE tenant_id = :tenant AND enabled AND last_outcome = 'failed'
                                  LIMIT {MAX_COUNT}) AS one) AS tasks,
           (SELECT count(*) FROM ({_DROPPED}) AS one) AS dropped,
           (SELECT sum(passed)::float / nullif(sum(judged), 0) FROM latest) AS accuracy,
           (SELECT sum(passed)::float / nullif(sum(judged), 0) FROM before) AS accuracy_before
""")


def count_tabs(*, actor: Actor) -> dict[str, Any]:
    """Pending feedback, what of it the actor has taken on, proposed knowledge, and drafts; each counted up to
    `MAX_COUNT`: a tab says "1,000+" and stays quick. `oldest` is since when feedback waits, `tasks` how many schedules
    failed, `dropped` how many sets pass less than in their last scheduled run, `evals` the accuracy over all sets and
    how it changed with the newest run. One query."""
    found = dict(db.session.execute(COUNTS, {"tenant": actor.tenant_id, "me": actor.id}).mappings().one())
    now, before = found.pop("accuracy"), found.pop("accuracy_before")
    change = now - before if now is not None and before is not None else None
    return found | {"evals": None if now is None else (now, change)}
