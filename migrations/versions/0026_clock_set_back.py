"""Schedules go on when the clock is set back: the door also shows tasks that ran at a time which is still to come."""

from migrations.helpers import as_door, run

revision = "0026_clock_set_back"
down_revision = "0025_reviewers_leave"
branch_labels = depends_on = None

DUE = """
CREATE OR REPLACE FUNCTION door_due(at timestamptz) RETURNS TABLE (task_id uuid, tenant_id uuid)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT t.id, t.tenant_id FROM tasks AS t
     WHERE t.enabled AND (t.next_run_at <= at OR EXISTS (
           SELECT 1 FROM task_ticks AS k
            WHERE k.tenant_id = t.tenant_id AND k.task_id = t.id AND k.scheduled_for > at))
     ORDER BY t.next_run_at, t.id
$$;
"""
BEFORE = """
CREATE OR REPLACE FUNCTION door_due(at timestamptz) RETURNS TABLE (task_id uuid, tenant_id uuid)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT t.id, t.tenant_id FROM tasks AS t WHERE t.enabled AND t.next_run_at <= at ORDER BY t.next_run_at, t.id
$$;
"""


def upgrade() -> None:
    run("GRANT SELECT (tenant_id, task_id, scheduled_for) ON task_ticks TO upshot_door")
    run("CREATE POLICY task_ticks_door ON task_ticks FOR SELECT TO upshot_door USING (true)")
    with as_door():
        run(DUE)


def downgrade() -> None:
    with as_door():
        run(BEFORE)
    run("DROP POLICY task_ticks_door ON task_ticks")
    run("REVOKE SELECT (tenant_id, task_id, scheduled_for) ON task_ticks FROM upshot_door")
