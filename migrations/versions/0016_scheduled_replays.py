"""Sets that are replayed on a schedule; and people's sessions are claimed before replays, so that no run of evals ever
keeps a chat waiting."""

from migrations.helpers import as_door, run

revision = "0016_scheduled_replays"
down_revision = "0014_agent_notes"
branch_labels = depends_on = None

CLAIM = """
CREATE OR REPLACE FUNCTION door_claim(owner text, n integer, lease interval)
    RETURNS TABLE (session_id uuid, tenant_id uuid, attempt integer)
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    WITH free AS (
        SELECT s.id FROM sessions AS s
          JOIN agents AS a ON a.tenant_id = s.tenant_id AND a.id = s.agent_id AND a.kind <> 'external'
         WHERE s.status IN ('pending', 'running')
           AND (s.lease_until < now() OR (s.status = 'pending' AND s.lease_until IS NULL))
         ORDER BY {order} LIMIT greatest(least(n, 1000), 0)
           FOR NO KEY UPDATE OF s SKIP LOCKED
    )
    UPDATE sessions AS s
       SET status = 'running', lease_owner = owner, lease_until = clock_timestamp() + lease, attempt = s.attempt + 1,
           started_at = coalesce(s.started_at, clock_timestamp())
      FROM free WHERE s.id = free.id
    RETURNING s.id, s.tenant_id, s.attempt
$$;
"""
PEOPLE_FIRST = CLAIM.replace("{order}", "(s.eval_source IS NOT NULL), s.created_at, s.id")
BY_AGE = CLAIM.replace("{order}", "s.created_at, s.id")


def upgrade() -> None:
    run("""
        ALTER TABLE tasks ADD COLUMN replay jsonb;
        ALTER TABLE task_ticks
            ADD COLUMN eval_run_id uuid,
            ADD CONSTRAINT fk_task_ticks_tenant_id_eval_run_id FOREIGN KEY (tenant_id, eval_run_id)
                REFERENCES eval_runs (tenant_id, id) ON DELETE SET NULL (eval_run_id);
        CREATE INDEX task_ticks_eval_run_idx ON task_ticks (tenant_id, eval_run_id) WHERE eval_run_id IS NOT NULL;
        GRANT SELECT (eval_source) ON sessions TO upshot_door;
    """)
    with as_door():
        run(PEOPLE_FIRST)


def downgrade() -> None:
    with as_door():
        run(BY_AGE)
    run("""
        REVOKE SELECT (eval_source) ON sessions FROM upshot_door;
        DROP INDEX task_ticks_eval_run_idx;
        ALTER TABLE task_ticks DROP COLUMN eval_run_id;
        DELETE FROM tasks WHERE replay IS NOT NULL;
        ALTER TABLE tasks DROP COLUMN replay;
    """)
