"""Patterns of feedback, and what each review did. Their labels are words of the feedback, so only admins read them."""

from migrations.helpers import drop_tables, run, tear_down, wall

revision = "0036_reviews"
down_revision = "0035_criteria_versions"
branch_labels = depends_on = None

TABLES = ("feedback_patterns", "feedback_pattern_rows", "review_runs")
ADMINS_ONLY = "tenant_id = app_tenant() AND app_role() IN ('admin', 'system')"
CREATE = """
CREATE TABLE feedback_patterns (
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT pk_feedback_patterns PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT fk_feedback_patterns_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    label text NOT NULL,
    agent_id uuid,
    entity_type_id uuid,
    shared_context_id uuid,
    first_seen_at timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    signal_count integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT uq_feedback_patterns_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT fk_feedback_patterns_tenant_id_agent_id FOREIGN KEY (tenant_id, agent_id)
        REFERENCES agents (tenant_id, id) ON DELETE SET NULL (agent_id),
    CONSTRAINT fk_feedback_patterns_tenant_id_entity_type_id FOREIGN KEY (tenant_id, entity_type_id)
        REFERENCES entity_types (tenant_id, id) ON DELETE SET NULL (entity_type_id),
    CONSTRAINT fk_feedback_patterns_tenant_id_shared_context_id FOREIGN KEY (tenant_id, shared_context_id)
        REFERENCES shared_context (tenant_id, id) ON DELETE SET NULL (shared_context_id),
    CONSTRAINT feedback_patterns_says_something CHECK (label <> ''),
    CONSTRAINT feedback_patterns_seen_in_order CHECK (first_seen_at <= last_seen_at)
);
CREATE INDEX feedback_patterns_recent_idx ON feedback_patterns (tenant_id, last_seen_at DESC, id DESC);
CREATE INDEX feedback_patterns_agent_idx ON feedback_patterns (tenant_id, agent_id, last_seen_at DESC, id DESC);
CREATE INDEX feedback_patterns_row_idx ON feedback_patterns (tenant_id, shared_context_id)
 WHERE shared_context_id IS NOT NULL;

CREATE TABLE feedback_pattern_rows (
    tenant_id uuid NOT NULL CONSTRAINT fk_feedback_pattern_rows_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    feedback_id uuid NOT NULL,
    pattern_id uuid NOT NULL,
    occurred_at timestamptz NOT NULL,
    CONSTRAINT pk_feedback_pattern_rows PRIMARY KEY (tenant_id, feedback_id),
    CONSTRAINT fk_feedback_pattern_rows_tenant_id_feedback_id FOREIGN KEY (tenant_id, feedback_id)
        REFERENCES feedback (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_feedback_pattern_rows_tenant_id_pattern_id FOREIGN KEY (tenant_id, pattern_id)
        REFERENCES feedback_patterns (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX feedback_pattern_rows_pattern_idx
    ON feedback_pattern_rows (tenant_id, pattern_id, occurred_at DESC, feedback_id DESC);

CREATE TABLE review_runs (
    tenant_id uuid NOT NULL CONSTRAINT fk_review_runs_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    session_id uuid NOT NULL,
    trigger text NOT NULL,
    dry_run boolean NOT NULL DEFAULT false,
    model text,
    total integer NOT NULL DEFAULT 0,
    considered integer NOT NULL DEFAULT 0,
    patterns integer NOT NULL DEFAULT 0,
    proposed uuid[] NOT NULL DEFAULT '{}'::uuid[],
    merged uuid[] NOT NULL DEFAULT '{}'::uuid[],
    dismissed integer NOT NULL DEFAULT 0,
    left_pending integer NOT NULL DEFAULT 0,
    refused jsonb NOT NULL DEFAULT '[]'::jsonb,
    decisions jsonb NOT NULL DEFAULT '[]'::jsonb,
    fingerprint text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    CONSTRAINT pk_review_runs PRIMARY KEY (tenant_id, session_id),
    CONSTRAINT fk_review_runs_tenant_id_session_id FOREIGN KEY (tenant_id, session_id)
        REFERENCES sessions (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT review_runs_trigger_known CHECK (trigger IN ('scheduled', 'manual'))
);
CREATE INDEX review_runs_recent_idx ON review_runs (tenant_id, created_at DESC, session_id DESC);

GRANT SELECT, INSERT, UPDATE, DELETE ON feedback_patterns, feedback_pattern_rows, review_runs TO upshot_app;
"""


def upgrade() -> None:
    run(CREATE)
    for table in TABLES:
        wall(table, ADMINS_ONLY)


def downgrade() -> None:
    for table in TABLES:
        tear_down(table)
    drop_tables(*TABLES)
