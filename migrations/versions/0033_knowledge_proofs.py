"""Proofs of knowledge rows, and a hash of what each golden is held to, by which a proof knows that it is stale."""

from migrations.helpers import drop_tables, run, tear_down, wall

revision = "0033_knowledge_proofs"
down_revision = "0032_failure_groups"
branch_labels = depends_on = None

TABLE = """
CREATE TABLE knowledge_proofs (
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT pk_knowledge_proofs PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT fk_knowledge_proofs_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    shared_context_id uuid NOT NULL,
    row_version integer NOT NULL,
    row_hash text NOT NULL,
    batch_id uuid NOT NULL,
    status text NOT NULL DEFAULT 'running',
    trials integer NOT NULL,
    with_run_id uuid,
    without_run_id uuid,
    agent_version_ids uuid[] NOT NULL,
    golden_ids uuid[] NOT NULL,
    golden_hashes text[] NOT NULL,
    in_scope integer NOT NULL DEFAULT 0,
    left_out jsonb NOT NULL DEFAULT '{}'::jsonb,
    cases jsonb NOT NULL DEFAULT '[]'::jsonb,
    exercised integer NOT NULL DEFAULT 0,
    undecided integer NOT NULL DEFAULT 0,
    fixed uuid[] NOT NULL DEFAULT '{}'::uuid[],
    broken uuid[] NOT NULL DEFAULT '{}'::uuid[],
    completed_at timestamptz,
    override_reason text,
    overridden_by uuid CONSTRAINT fk_knowledge_proofs_overridden_by REFERENCES users (id) ON DELETE SET NULL,
    overridden_at timestamptz,
    created_by uuid CONSTRAINT fk_knowledge_proofs_created_by REFERENCES users (id) ON DELETE SET NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT uq_knowledge_proofs_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT fk_knowledge_proofs_tenant_id_shared_context_id FOREIGN KEY (tenant_id, shared_context_id)
        REFERENCES shared_context (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_knowledge_proofs_tenant_id_with_run_id FOREIGN KEY (tenant_id, with_run_id)
        REFERENCES eval_runs (tenant_id, id) ON DELETE SET NULL (with_run_id),
    CONSTRAINT fk_knowledge_proofs_tenant_id_without_run_id FOREIGN KEY (tenant_id, without_run_id)
        REFERENCES eval_runs (tenant_id, id) ON DELETE SET NULL (without_run_id),
    CONSTRAINT knowledge_proofs_status_known CHECK (status IN ('running', 'done', 'cancelled')),
    CONSTRAINT knowledge_proofs_ends CHECK ((status = 'running') = (completed_at IS NULL)),
    CONSTRAINT knowledge_proofs_goldens_have_hashes CHECK (cardinality(golden_ids) = cardinality(golden_hashes)),
    CONSTRAINT knowledge_proofs_override_has_time CHECK ((override_reason IS NULL) = (overridden_at IS NULL))
);
CREATE INDEX knowledge_proofs_row_idx ON knowledge_proofs (tenant_id, shared_context_id, created_at DESC, id);
CREATE INDEX knowledge_proofs_with_idx ON knowledge_proofs (tenant_id, with_run_id);
CREATE INDEX knowledge_proofs_without_idx ON knowledge_proofs (tenant_id, without_run_id);
CREATE UNIQUE INDEX knowledge_proofs_running_key ON knowledge_proofs (tenant_id, shared_context_id)
 WHERE status = 'running';
GRANT SELECT, INSERT, UPDATE, DELETE ON knowledge_proofs TO upshot_app;
"""
HASH = """
ALTER TABLE sessions ADD COLUMN golden_hash text
    GENERATED ALWAYS AS (md5(((metadata -> 'golden') - '{set,note,snapshot,revisions}'::text[])::text)) STORED;
"""
# Generated columns are not known yet where the guard compares, so it leaves them out. Databases that were upgraded step
# by step have its function without the new one.
LEAVE_OUT = """
DO $$
BEGIN
    EXECUTE replace(pg_get_functiondef('guard_session()'::regprocedure),
                    '''eval_source'', ''search'']', '''eval_source'', ''search'', ''golden_hash'']');
END
$$;
"""


def upgrade() -> None:
    run(LEAVE_OUT)
    run(HASH)
    run(TABLE)
    wall("knowledge_proofs")


def downgrade() -> None:
    tear_down("knowledge_proofs")
    drop_tables("knowledge_proofs")
    run("ALTER TABLE sessions DROP COLUMN golden_hash")
