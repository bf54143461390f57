"""Drafts: changes of agents and entity types that agents propose and a person decides about."""

from migrations.helpers import drop_tables, run, tear_down, wall

revision = "0040_change_drafts"
down_revision = "0039_exposures"
branch_labels = depends_on = None

ADMINS_ONLY = "tenant_id = app_tenant() AND app_role() IN ('admin', 'system')"
CREATE = """
CREATE TABLE change_drafts (
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT pk_change_drafts PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT fk_change_drafts_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    agent_id uuid,
    entity_type_id uuid,
    base_version integer,
    before jsonb NOT NULL,
    after jsonb NOT NULL,
    reason text,
    status text NOT NULL DEFAULT 'open',
    session_id uuid,
    feedback_ids uuid[] NOT NULL DEFAULT '{}'::uuid[],
    created_by_agent_id uuid,
    created_by uuid CONSTRAINT fk_change_drafts_created_by REFERENCES users (id) ON DELETE SET NULL,
    trial_version_id uuid,
    trial_run_ids uuid[] NOT NULL DEFAULT '{}'::uuid[],
    decided_by uuid CONSTRAINT fk_change_drafts_decided_by REFERENCES users (id) ON DELETE SET NULL,
    decided_at timestamptz,
    decision_note text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT uq_change_drafts_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT fk_change_drafts_tenant_id_agent_id FOREIGN KEY (tenant_id, agent_id)
        REFERENCES agents (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_change_drafts_tenant_id_entity_type_id FOREIGN KEY (tenant_id, entity_type_id)
        REFERENCES entity_types (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_change_drafts_tenant_id_session_id FOREIGN KEY (tenant_id, session_id)
        REFERENCES sessions (tenant_id, id) ON DELETE SET NULL (session_id),
    CONSTRAINT fk_change_drafts_tenant_id_created_by_agent_id FOREIGN KEY (tenant_id, created_by_agent_id)
        REFERENCES agents (tenant_id, id) ON DELETE SET NULL (created_by_agent_id),
    CONSTRAINT fk_change_drafts_tenant_id_trial_version_id FOREIGN KEY (tenant_id, trial_version_id)
        REFERENCES agent_versions (tenant_id, id) ON DELETE SET NULL (trial_version_id),
    CONSTRAINT change_drafts_status_known CHECK (status IN ('open', 'approved', 'rejected', 'withdrawn')),
    CONSTRAINT change_drafts_has_target CHECK (coalesce(agent_id, entity_type_id) IS NOT NULL),
    CONSTRAINT change_drafts_agent_has_base CHECK (agent_id IS NULL OR base_version IS NOT NULL),
    CONSTRAINT change_drafts_ends CHECK ((status = 'open') = (decided_at IS NULL))
);
CREATE INDEX change_drafts_status_idx ON change_drafts (tenant_id, status, created_at DESC, id DESC);
CREATE INDEX change_drafts_recent_idx ON change_drafts (tenant_id, created_at DESC, id DESC);
CREATE INDEX change_drafts_feedback_idx ON change_drafts USING gin (feedback_ids);
CREATE INDEX change_drafts_agent_idx ON change_drafts (tenant_id, agent_id) WHERE agent_id IS NOT NULL;

GRANT SELECT, INSERT, UPDATE, DELETE ON change_drafts TO upshot_app;
"""


def upgrade() -> None:
    run(CREATE)
    wall("change_drafts", ADMINS_ONLY)


def downgrade() -> None:
    tear_down("change_drafts")
    drop_tables("change_drafts")
