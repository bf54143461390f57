"""Lost processes are counted apart from failures, replays that were lost come back one by one, answers that were cut
are marked, and a session knows which one it runs again."""

from migrations.helpers import as_door, run, whole_tables

revision = "0023_replay_safety"
down_revision = "0022_key_scopes"
branch_labels = depends_on = None

# A claim of a session that runs means that the process which held its lease is gone. Replays of such a process come
# back spread over a quarter of the lease, each at its own moment: the next process should not get all of them at once.
# Replays of agents that run elsewhere are claimed only to be ended, since nobody else would end them.
CLAIM = """
CREATE OR REPLACE FUNCTION door_claim(owner text, n integer, lease interval)
    RETURNS TABLE (session_id uuid, tenant_id uuid, attempt integer)
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    WITH free AS (
        SELECT s.id FROM sessions AS s
          JOIN agents AS a ON a.tenant_id = s.tenant_id AND a.id = s.agent_id AND {agents}
         WHERE s.status IN ('pending', 'running')
           AND (s.lease_until < now() OR (s.status = 'pending' AND s.lease_until IS NULL)){spread}
         ORDER BY (s.eval_source IS NOT NULL), s.created_at, s.id LIMIT greatest(least(n, 1000), 0)
           FOR NO KEY UPDATE OF s SKIP LOCKED
    )
    UPDATE sessions AS s
       SET status = 'running', lease_owner = owner, lease_until = clock_timestamp() + lease, attempt = s.attempt + 1,{lost}
           started_at = coalesce(s.started_at, clock_timestamp())
      FROM free WHERE s.id = free.id
    RETURNING s.id, s.tenant_id, s.attempt
$$;
"""
SPREAD = CLAIM.format(
    agents="(a.kind <> 'external' OR s.eval_source IS NOT NULL)",
    spread="""
           AND NOT (s.status = 'running' AND s.eval_source IS NOT NULL
                    AND s.lease_until + lease / 4 * (get_byte(uuid_send(s.id), (s.attempt % 16)) / 255.0) >= now())""",
    lost="\n           lost_count = s.lost_count + (s.status = 'running')::integer,",
)
TOGETHER = CLAIM.format(agents="a.kind <> 'external'", spread="", lost="")
# Goldens do not change, so theirs stays as it is.
MARK = """
UPDATE sessions AS s SET truncated = true
 WHERE NOT s.metadata ? 'golden'
   AND EXISTS (SELECT FROM session_events AS e WHERE e.tenant_id = s.tenant_id AND e.session_id = s.id
                  AND e.event_type = 'agent.message' AND e.payload @> '{"truncated": true}');
"""


def upgrade() -> None:
    run("""
        ALTER TABLE sessions ADD COLUMN lost_count integer NOT NULL DEFAULT 0,
            ADD COLUMN truncated boolean NOT NULL DEFAULT false;
        CREATE INDEX sessions_rerun_idx ON sessions (tenant_id, (metadata ->> 'rerun_of'), created_at DESC)
         WHERE metadata ? 'rerun_of';
        GRANT SELECT (lost_count), UPDATE (lost_count) ON sessions TO upshot_door;
        GRANT UPDATE (truncated) ON sessions TO upshot_replay;
    """)
    with whole_tables("sessions", "session_events"):
        run(MARK)
    with as_door():
        run(SPREAD)


def downgrade() -> None:
    with as_door():
        run(TOGETHER)
    run("""
        REVOKE UPDATE (truncated) ON sessions FROM upshot_replay;
        REVOKE SELECT (lost_count), UPDATE (lost_count) ON sessions FROM upshot_door;
        DROP INDEX sessions_rerun_idx;
        ALTER TABLE sessions DROP COLUMN lost_count, DROP COLUMN truncated;
    """)
