"""What waits for a decision, as the tabs say it."""

from typing import Any

from app.actor import Actor
from app.db import run
from app.services.evals.charts.dropped import COUNTED_RUN, dropped_statements

MAX_COUNT = 1000
_SETS, _LATEST, _DROPPED = dropped_statements("%(tenant)s")
_BEFORE_LAST = "run.set_name = last.set_name AND (run.created_at, run.id) < (last.created_at, last.id)"
_OLDER = COUNTED_RUN.format(tenant="%(tenant)s", which=_BEFORE_LAST)
NAMES = ("feedback", "mine", "oldest", "knowledge", "drafts", "tasks", "dropped", "accuracy", "accuracy_before")
COUNTS = f"""
    WITH RECURSIVE {_SETS}, latest AS ({_LATEST}),
    last AS (SELECT * FROM latest ORDER BY created_at DESC, id DESC LIMIT 1),
    before AS (
        SELECT passed, judged FROM latest WHERE id <> (SELECT id FROM last)
        UNION ALL SELECT older.passed, older.judged FROM last, LATERAL ({_OLDER}) AS older
    ), pending AS NOT MATERIALIZED (
        SELECT created_at, assignee_id FROM feedback WHERE tenant_id = %(tenant)s AND status = 'pending'
    )
    SELECT (SELECT count(*) FROM (SELECT FROM pending LIMIT {MAX_COUNT}) AS one),
           (SELECT count(*) FROM (SELECT FROM pending WHERE assignee_id = %(me)s LIMIT {MAX_COUNT}) AS one),
           (SELECT min(created_at) FROM pending),
           (SELECT count(*) FROM (SELECT FROM shared_context WHERE tenant_id = %(tenant)s AND state = 'proposed'
                                  LIMIT {MAX_COUNT}) AS one),
           (SELECT count(*) FROM (SELECT FROM change_drafts WHERE tenant_id = %(tenant)s AND status = 'open'
                                  LIMIT {MAX_COUNT}) AS one),
           (SELECT count(*) FROM (SELECT FROM tasks WHERE tenant_id = %(tenant)s AND enabled AND last_outcome = 'failed'
                                  LIMIT {MAX_COUNT}) AS one),
           (SELECT count(*) FROM ({_DROPPED}) AS one),
           (SELECT sum(passed)::float / nullif(sum(judged), 0) FROM latest),
           (SELECT sum(passed)::float / nullif(sum(judged), 0) FROM before)
"""


def count_tabs(*, actor: Actor) -> dict[str, Any]:
    """Pending feedback, what of it the actor has taken on, proposed knowledge, and drafts; each counted up to
    `MAX_COUNT`: a tab says "1,000+" and stays quick. `oldest` is since when feedback waits, `tasks` how many schedules
    failed, `dropped` how many sets pass less than in their last scheduled run, `evals` the accuracy over all sets and
    how it changed with the newest run. One query."""
    [counts] = run(COUNTS, {"tenant": actor.tenant_id, "me": actor.id})
    found: dict[str, Any] = dict(zip(NAMES, counts, strict=True))
    now, before = found.pop("accuracy"), found.pop("accuracy_before")
    change = now - before if now is not None and before is not None else None
    return found | {"evals": None if now is None else (now, change)}
