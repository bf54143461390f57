"""Keep which columns of a list each person sees."""

from migrations.helpers import drop_tables, run, tear_down, wall

revision = "0048_list_columns"
down_revision = "0047_why_feedback_waits"
branch_labels = depends_on = None

CREATE = """
CREATE TABLE list_columns (
    tenant_id uuid NOT NULL CONSTRAINT fk_list_columns_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    user_id uuid NOT NULL CONSTRAINT fk_list_columns_user_id REFERENCES users (id) ON DELETE CASCADE,
    list text NOT NULL,
    hidden text[] NOT NULL DEFAULT '{}'::text[],
    keeps_same boolean NOT NULL DEFAULT false,
    CONSTRAINT pk_list_columns PRIMARY KEY (tenant_id, user_id, list),
    CONSTRAINT list_columns_list_known CHECK (list IN ('conversations', 'sessions', 'feedback', 'patterns'))
);
GRANT SELECT, INSERT, UPDATE, DELETE ON list_columns TO upshot_app;
"""
OWN = "tenant_id = app_tenant() AND (user_id = app_user() OR app_role() = 'system')"


def upgrade() -> None:
    run(CREATE)
    wall("list_columns", OWN)


def downgrade() -> None:
    tear_down("list_columns")
    drop_tables("list_columns")
