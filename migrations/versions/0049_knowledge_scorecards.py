"""Scorecards of what knowledge loops produce, as they were when they were made."""

from migrations.helpers import drop_tables, run, tear_down, wall

revision = "0049_knowledge_scorecards"
down_revision = "0048_list_columns"
branch_labels = depends_on = None

TABLE = """
CREATE TABLE knowledge_scorecards (
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT pk_knowledge_scorecards PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT fk_knowledge_scorecards_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    passed boolean NOT NULL,
    summary jsonb NOT NULL DEFAULT '[]'::jsonb,
    scorecard jsonb NOT NULL DEFAULT '{}'::jsonb,
    created_by uuid CONSTRAINT fk_knowledge_scorecards_created_by REFERENCES users (id) ON DELETE RESTRICT,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX knowledge_scorecards_recent_idx ON knowledge_scorecards (tenant_id, created_at DESC, id DESC);
GRANT SELECT, INSERT ON knowledge_scorecards TO upshot_app;
"""


def upgrade() -> None:
    run(TABLE)
    wall("knowledge_scorecards")


def downgrade() -> None:
    tear_down("knowledge_scorecards")
    drop_tables("knowledge_scorecards")
