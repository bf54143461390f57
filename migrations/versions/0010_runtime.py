"""What running agents needs: memories, sentence vectors, ticks of scheduled tasks, drafts and cancellation."""

from migrations.helpers import as_door, drop_tables, run, tear_down, wall

revision = "0010_runtime"
down_revision = "0009_capture"
branch_labels = depends_on = None

TABLES = """
CREATE TABLE user_memories (
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT pk_user_memories PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT fk_user_memories_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    user_id uuid NOT NULL CONSTRAINT fk_user_memories_user_id REFERENCES users (id) ON DELETE CASCADE,
    content text NOT NULL,
    session_id uuid,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT user_memories_says_something CHECK (content <> ''),
    CONSTRAINT fk_user_memories_tenant_id_session_id FOREIGN KEY (tenant_id, session_id)
        REFERENCES sessions (tenant_id, id) ON DELETE SET NULL (session_id)
);
CREATE INDEX user_memories_of_user_idx ON user_memories (tenant_id, user_id, created_at DESC, id DESC);

CREATE TABLE shared_context_embeddings (
    tenant_id uuid NOT NULL CONSTRAINT fk_shared_context_embeddings_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    shared_context_id uuid NOT NULL,
    model text NOT NULL,
    content_hash text NOT NULL,
    vector real[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_shared_context_embeddings PRIMARY KEY (tenant_id, shared_context_id, model),
    CONSTRAINT fk_shared_context_embeddings_tenant_id_shared_context_id FOREIGN KEY (tenant_id, shared_context_id)
        REFERENCES shared_context (tenant_id, id) ON DELETE CASCADE
);

CREATE TABLE task_ticks (
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT pk_task_ticks PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT fk_task_ticks_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    task_id uuid NOT NULL,
    scheduled_for timestamptz NOT NULL,
    status text NOT NULL DEFAULT 'claimed',
    owner text NOT NULL,
    lease_until timestamptz,
    session_id uuid,
    detail text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    CONSTRAINT uq_task_ticks_tenant_id_task_id_scheduled_for UNIQUE (tenant_id, task_id, scheduled_for),
    CONSTRAINT task_ticks_status_known CHECK (status IN ('claimed', 'done', 'failed', 'skipped', 'abandoned')),
    CONSTRAINT task_ticks_ends CHECK ((status = 'claimed') = (finished_at IS NULL)),
    CONSTRAINT fk_task_ticks_tenant_id_task_id FOREIGN KEY (tenant_id, task_id)
        REFERENCES tasks (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_task_ticks_tenant_id_session_id FOREIGN KEY (tenant_id, session_id)
        REFERENCES sessions (tenant_id, id) ON DELETE SET NULL (session_id)
);

CREATE TABLE session_drafts (
    tenant_id uuid NOT NULL CONSTRAINT fk_session_drafts_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    session_id uuid NOT NULL,
    text text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_session_drafts PRIMARY KEY (tenant_id, session_id),
    CONSTRAINT fk_session_drafts_tenant_id_session_id FOREIGN KEY (tenant_id, session_id)
        REFERENCES sessions (tenant_id, id) ON DELETE CASCADE
);

ALTER TABLE sessions ADD COLUMN cancel_requested_at timestamptz;
"""

RIGHTS = """
GRANT SELECT, INSERT, DELETE ON user_memories TO upshot_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON shared_context_embeddings, session_drafts TO upshot_app;
GRANT SELECT, INSERT, UPDATE ON task_ticks TO upshot_app;
"""

# What an agent remembers about a person is that person's: admins do not see it either.
OWN_MEMORIES = "tenant_id = app_tenant() AND (user_id = app_user() OR app_role() = 'system')"

# Three attempts may run. Whoever finds that the third one died too claims the session once more to end it.
CLAIM = """
CREATE OR REPLACE FUNCTION door_claim(owner text, n integer, lease interval)
    RETURNS TABLE (session_id uuid, tenant_id uuid, attempt integer)
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    WITH free AS (
        SELECT s.id FROM sessions AS s
          JOIN agents AS a ON a.tenant_id = s.tenant_id AND a.id = s.agent_id AND a.kind <> 'external'
         WHERE s.status IN ('pending', 'running')
           AND (s.lease_until < now() OR (s.status = 'pending' AND s.lease_until IS NULL))
         ORDER BY s.created_at, s.id LIMIT greatest(least(n, 1000), 0)
           FOR NO KEY UPDATE OF s SKIP LOCKED
    )
    UPDATE sessions AS s
       SET status = 'running', lease_owner = owner, lease_until = clock_timestamp() + lease, attempt = s.attempt + 1,
           started_at = coalesce(s.started_at, clock_timestamp())
      FROM free WHERE s.id = free.id
    RETURNING s.id, s.tenant_id, s.attempt
$$;
"""
OLD_CLAIM = """
CREATE OR REPLACE FUNCTION door_claim(owner text, n integer, lease interval)
    RETURNS TABLE (session_id uuid, tenant_id uuid, attempt integer)
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    WITH free AS (
        SELECT s.id FROM sessions AS s
          JOIN agents AS a ON a.tenant_id = s.tenant_id AND a.id = s.agent_id AND a.kind <> 'external'
         WHERE s.status IN ('pending', 'running') AND s.attempt < 3
           AND (s.lease_until < now() OR (s.status = 'pending' AND s.lease_until IS NULL))
         ORDER BY s.created_at, s.id LIMIT least(n, 1000)
           FOR NO KEY UPDATE OF s SKIP LOCKED
    )
    UPDATE sessions AS s
       SET status = 'running', lease_owner = owner, lease_until = clock_timestamp() + lease, attempt = s.attempt + 1,
           started_at = coalesce(s.started_at, clock_timestamp())
      FROM free WHERE s.id = free.id
    RETURNING s.id, s.tenant_id, s.attempt
$$;
"""
WALLED = ("shared_context_embeddings", "task_ticks", "session_drafts")


def upgrade() -> None:
    run(TABLES)
    for table in WALLED:
        wall(table)
    wall("user_memories", OWN_MEMORIES)
    run(RIGHTS)
    with as_door():
        run(CLAIM)


def downgrade() -> None:
    with as_door():
        run(OLD_CLAIM)
    for table in ("user_memories", *WALLED):
        tear_down(table)
    run("ALTER TABLE sessions DROP COLUMN cancel_requested_at")
    drop_tables("user_memories", "shared_context_embeddings", "task_ticks", "session_drafts")
