"""Evals: runs over golden sets, what each set decides by, and a role that replays work as."""

from migrations.helpers import as_door, drop_tables, run, tear_down, wall

revision = "0015_evals"
down_revision = "0011_search"
branch_labels = depends_on = None

TABLES = """
CREATE TABLE golden_sets (
    tenant_id uuid NOT NULL CONSTRAINT fk_golden_sets_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    name text NOT NULL,
    policy jsonb NOT NULL DEFAULT '{}'::jsonb,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_golden_sets PRIMARY KEY (tenant_id, name),
    CONSTRAINT golden_sets_name_is_slug CHECK (name ~ '^[a-z0-9-]{1,60}$')
);

CREATE TABLE eval_runs (
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT pk_eval_runs PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT fk_eval_runs_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    name text NOT NULL,
    set_name text,
    agent_id uuid,
    agent_version_id uuid,
    triggered_by text NOT NULL DEFAULT 'manual',
    status text NOT NULL DEFAULT 'queued',
    context_mode text NOT NULL DEFAULT 'frozen',
    trials integer NOT NULL DEFAULT 1,
    options jsonb NOT NULL DEFAULT '{}'::jsonb,
    config_hash text NOT NULL,
    ref text,
    error text,
    started_at timestamptz NOT NULL DEFAULT now(),
    completed_at timestamptz,
    cancel_requested_at timestamptz,
    golden_session_count integer NOT NULL DEFAULT 0,
    passed_count integer NOT NULL DEFAULT 0,
    failed_count integer NOT NULL DEFAULT 0,
    results jsonb NOT NULL DEFAULT '{}'::jsonb,
    created_by uuid CONSTRAINT fk_eval_runs_created_by REFERENCES users (id) ON DELETE RESTRICT,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT uq_eval_runs_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT fk_eval_runs_tenant_id_agent_id FOREIGN KEY (tenant_id, agent_id)
        REFERENCES agents (tenant_id, id) ON DELETE RESTRICT,
    CONSTRAINT fk_eval_runs_tenant_id_agent_version_id FOREIGN KEY (tenant_id, agent_version_id)
        REFERENCES agent_versions (tenant_id, id) ON DELETE RESTRICT,
    CONSTRAINT eval_runs_status_known CHECK (status IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
    CONSTRAINT eval_runs_trigger_known CHECK (triggered_by IN ('manual', 'scheduled', 'post-deploy')),
    CONSTRAINT eval_runs_context_known CHECK (context_mode IN ('frozen', 'live')),
    CONSTRAINT eval_runs_some_trials CHECK (trials BETWEEN 1 AND 20),
    CONSTRAINT eval_runs_ends CHECK ((status IN ('completed', 'failed', 'cancelled')) = (completed_at IS NOT NULL))
);
CREATE INDEX eval_runs_recent_idx ON eval_runs (tenant_id, created_at DESC, id DESC);
CREATE INDEX eval_runs_set_idx ON eval_runs (tenant_id, set_name, created_at DESC, id DESC);
CREATE INDEX eval_runs_open_idx ON eval_runs (tenant_id, id) WHERE status IN ('queued', 'running');

ALTER TABLE sessions
    ADD COLUMN eval_run_id uuid GENERATED ALWAYS AS ((metadata ->> 'eval_run_id')::uuid) STORED,
    ADD CONSTRAINT fk_sessions_tenant_id_eval_run_id FOREIGN KEY (tenant_id, eval_run_id)
        REFERENCES eval_runs (tenant_id, id) ON DELETE RESTRICT;
CREATE UNIQUE INDEX sessions_eval_case_key ON sessions (tenant_id, eval_run_id, eval_source,
    ((metadata ->> 'eval_config')), ((metadata ->> 'eval_trial'))) WHERE eval_run_id IS NOT NULL;
CREATE UNIQUE INDEX feedback_open_replay_key ON feedback (tenant_id, ((context ->> 'golden_session_id')),
    ((context ->> 'agent_version_id')), ((context ->> 'context_mode')))
    WHERE kind = 'replay_failure' AND status IN ('pending', 'reviewed');
"""

# A replay reads the workspace and writes its own session, and nothing else. What its agent would change in the
# workspace is refused by the database, whatever the program does.
RIGHTS = """
GRANT SELECT, INSERT, UPDATE, DELETE ON golden_sets TO upshot_app;
GRANT SELECT, INSERT, UPDATE ON eval_runs TO upshot_app;
GRANT SELECT ON tenants, users, memberships, agents, agent_versions, chats, messages, sessions, session_events,
    session_drafts, entity_types, entities, entity_responses, criteria_sets, feedback, shared_context,
    shared_context_feedback, shared_context_usage, user_memories, tasks, golden_sets, eval_runs TO upshot_replay;
GRANT INSERT ON session_events TO upshot_replay;
GRANT UPDATE (status, error, model, input_tokens, output_tokens, cost, duration_ms, event_count, lease_owner,
    lease_until, attempt, started_at, finished_at) ON sessions TO upshot_replay;
GRANT INSERT, UPDATE, DELETE ON session_drafts TO upshot_replay;
GRANT INSERT ON audit_log TO upshot_replay;
GRANT EXECUTE ON FUNCTION app_tenant(), app_user(), app_role(), purging(uuid) TO upshot_replay;
"""
TAKEN_BACK = """
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM upshot_replay;
REVOKE ALL ON FUNCTION app_tenant(), app_user(), app_role(), purging(uuid) FROM upshot_replay;
"""
SEARCH = "FUNCTION door_search(text, text, integer)"


def upgrade() -> None:
    run(TABLES)
    wall("golden_sets")
    wall("eval_runs")
    run(RIGHTS)
    with as_door():
        run(f"GRANT EXECUTE ON {SEARCH} TO upshot_replay")


def downgrade() -> None:
    with as_door():
        run(f"REVOKE ALL ON {SEARCH} FROM upshot_replay")
    run(TAKEN_BACK)
    run("""
        DROP INDEX feedback_open_replay_key;
        DROP INDEX sessions_eval_case_key;
        ALTER TABLE sessions DROP COLUMN eval_run_id;
    """)
    for table in ("golden_sets", "eval_runs"):
        tear_down(table)
    drop_tables("golden_sets", "eval_runs")
