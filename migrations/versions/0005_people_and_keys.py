"""Sign-in, invitations, keys, scheduled work, and the record of who did what."""

from migrations.helpers import drop_tables, run

revision = "0005_people_and_keys"
down_revision = "0004_knowledge_trail"
branch_labels = depends_on = None

TABLES = """
CREATE TABLE login_sessions (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    user_id uuid NOT NULL,
    token_hash text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz,
    user_agent text,
    CONSTRAINT pk_login_sessions PRIMARY KEY (id),
    CONSTRAINT uq_login_sessions_token_hash UNIQUE (token_hash),
    CONSTRAINT fk_login_sessions_user_id FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE,
    CONSTRAINT fk_login_sessions_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE,
    CONSTRAINT login_sessions_ends CHECK (expires_at > created_at)
);
CREATE INDEX login_sessions_user_idx ON login_sessions (user_id);

CREATE TABLE one_time_links (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    kind text NOT NULL,
    token_hash text NOT NULL,
    user_id uuid,
    email text,
    role text,
    created_by uuid,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    used_at timestamptz,
    CONSTRAINT pk_one_time_links PRIMARY KEY (id),
    CONSTRAINT uq_one_time_links_token_hash UNIQUE (token_hash),
    CONSTRAINT fk_one_time_links_user_id FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE,
    CONSTRAINT fk_one_time_links_created_by FOREIGN KEY (created_by) REFERENCES users (id) ON DELETE SET NULL,
    CONSTRAINT fk_one_time_links_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE,
    CONSTRAINT one_time_links_kind_known CHECK (kind IN ('invite', 'sign_in'))
);

CREATE TABLE api_keys (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    user_id uuid NOT NULL,
    name text NOT NULL,
    prefix text NOT NULL,
    key_hash text NOT NULL,
    scopes text[] NOT NULL DEFAULT '{}'::text[],
    created_at timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz,
    expires_at timestamptz,
    revoked_at timestamptz,
    CONSTRAINT pk_api_keys PRIMARY KEY (id),
    CONSTRAINT uq_api_keys_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT uq_api_keys_key_hash UNIQUE (key_hash),
    CONSTRAINT fk_api_keys_user_id FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE RESTRICT,
    CONSTRAINT fk_api_keys_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE,
    CONSTRAINT api_keys_scopes_known CHECK (scopes <@ ARRAY['ingest', 'feedback', 'context', 'admin'] AND cardinality(scopes) > 0)
);
CREATE INDEX api_keys_tenant_idx ON api_keys (tenant_id, created_at);

CREATE TABLE sign_in_attempts (
    key text NOT NULL,
    failures integer NOT NULL DEFAULT 0,
    window_began timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_sign_in_attempts PRIMARY KEY (key)
);

CREATE TABLE idempotency_keys (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    user_id uuid NOT NULL,
    route text NOT NULL,
    key text NOT NULL,
    body_hash text NOT NULL,
    status integer,
    answer jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_idempotency_keys PRIMARY KEY (id),
    CONSTRAINT uq_idempotency_keys_tenant_id_user_id_route_key UNIQUE (tenant_id, user_id, route, key),
    CONSTRAINT fk_idempotency_keys_user_id FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE,
    CONSTRAINT fk_idempotency_keys_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE
);
CREATE INDEX idempotency_keys_age_idx ON idempotency_keys (tenant_id, created_at);

CREATE TABLE tasks (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    slug text NOT NULL,
    name text NOT NULL,
    agent_id uuid,
    cron text NOT NULL,
    enabled boolean NOT NULL DEFAULT false,
    next_run_at timestamptz,
    last_run_at timestamptz,
    last_outcome text,
    last_detail text,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_tasks PRIMARY KEY (id),
    CONSTRAINT uq_tasks_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT uq_tasks_tenant_id_slug UNIQUE (tenant_id, slug),
    CONSTRAINT fk_tasks_tenant_id_agent_id FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE SET NULL (agent_id),
    CONSTRAINT fk_tasks_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE
);
CREATE INDEX tasks_due_idx ON tasks (next_run_at) WHERE enabled;

CREATE TABLE audit_log (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    actor_user_id uuid,
    actor_agent_id uuid,
    action text NOT NULL,
    subject_type text NOT NULL,
    subject_id uuid,
    details jsonb NOT NULL DEFAULT '{}'::jsonb,
    request_id text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_audit_log PRIMARY KEY (id),
    CONSTRAINT fk_audit_log_actor_user_id FOREIGN KEY (actor_user_id) REFERENCES users (id) ON DELETE RESTRICT,
    CONSTRAINT fk_audit_log_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE
);
CREATE INDEX audit_log_subject_idx ON audit_log (tenant_id, subject_type, subject_id);
CREATE INDEX audit_log_tenant_idx ON audit_log (tenant_id, created_at DESC, id DESC);

CREATE TABLE purges (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL,
    counts jsonb NOT NULL DEFAULT '{}'::jsonb,
    purged_by text NOT NULL DEFAULT session_user,
    purged_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_purges PRIMARY KEY (id)
);
"""


def upgrade() -> None:
    run(TABLES)


def downgrade() -> None:
    drop_tables(
        "login_sessions",
        "one_time_links",
        "api_keys",
        "sign_in_attempts",
        "idempotency_keys",
        "tasks",
        "audit_log",
        "purges",
    )
