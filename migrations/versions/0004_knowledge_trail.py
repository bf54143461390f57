"""Where a knowledge row came from, how it was edited, and how often it was used."""

from migrations.helpers import drop_tables, run

revision = "0004_knowledge_trail"
down_revision = "0003_shared_context"
branch_labels = depends_on = None

TABLES = """
CREATE TABLE shared_context_feedback (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    shared_context_id uuid NOT NULL,
    feedback_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_shared_context_feedback PRIMARY KEY (id),
    CONSTRAINT uq_shared_context_feedback_tenant_id_shared_context_id__5c17 UNIQUE (tenant_id, shared_context_id, feedback_id),
    CONSTRAINT fk_shared_context_feedback_tenant_id_shared_context_id FOREIGN KEY (tenant_id, shared_context_id) REFERENCES shared_context (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_shared_context_feedback_tenant_id_feedback_id FOREIGN KEY (tenant_id, feedback_id) REFERENCES feedback (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_shared_context_feedback_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE
);
CREATE INDEX shared_context_feedback_feedback_idx ON shared_context_feedback (tenant_id, feedback_id);

CREATE TABLE shared_context_history (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    shared_context_id uuid NOT NULL,
    version integer NOT NULL,
    action text NOT NULL,
    before jsonb NOT NULL DEFAULT '{}'::jsonb,
    after jsonb NOT NULL DEFAULT '{}'::jsonb,
    reason text,
    user_id uuid,
    agent_id uuid,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_shared_context_history PRIMARY KEY (id),
    CONSTRAINT uq_shared_context_history_tenant_id_shared_context_id_version UNIQUE (tenant_id, shared_context_id, version),
    CONSTRAINT fk_shared_context_history_tenant_id_shared_context_id FOREIGN KEY (tenant_id, shared_context_id) REFERENCES shared_context (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_shared_context_history_user_id FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE RESTRICT,
    CONSTRAINT fk_shared_context_history_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE
);

CREATE TABLE shared_context_usage (
    tenant_id uuid NOT NULL,
    shared_context_id uuid NOT NULL,
    injected bigint NOT NULL DEFAULT 0,
    last_injected_at timestamptz,
    helpful bigint NOT NULL DEFAULT 0,
    harmful bigint NOT NULL DEFAULT 0,
    CONSTRAINT pk_shared_context_usage PRIMARY KEY (tenant_id, shared_context_id),
    CONSTRAINT fk_shared_context_usage_tenant_id_shared_context_id FOREIGN KEY (tenant_id, shared_context_id) REFERENCES shared_context (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_shared_context_usage_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE
);
"""


def upgrade() -> None:
    run(TABLES)


def downgrade() -> None:
    drop_tables("shared_context_feedback", "shared_context_history", "shared_context_usage")
