"""Imports, saved views, comments and assignees, and the daily counts behind the volume strip."""

from migrations.helpers import drop_tables, run, tear_down, wall

revision = "0009_capture"
down_revision = "drop_chat_feedback"
branch_labels = depends_on = None

TABLES = """
CREATE TABLE imports (
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT pk_imports PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT fk_imports_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    kind text NOT NULL,
    filename text,
    created integer NOT NULL DEFAULT 0,
    existing integer NOT NULL DEFAULT 0,
    failed integer NOT NULL DEFAULT 0,
    created_by uuid NOT NULL CONSTRAINT fk_imports_created_by REFERENCES users (id) ON DELETE RESTRICT,
    created_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    undone_at timestamptz,
    undone_by uuid CONSTRAINT fk_imports_undone_by REFERENCES users (id) ON DELETE RESTRICT,
    CONSTRAINT uq_imports_tenant_id_id UNIQUE (tenant_id, id)
);
CREATE INDEX imports_recent_idx ON imports (tenant_id, created_at DESC);

CREATE TABLE saved_views (
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT pk_saved_views PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT fk_saved_views_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    user_id uuid NOT NULL CONSTRAINT fk_saved_views_user_id REFERENCES users (id) ON DELETE CASCADE,
    tab text NOT NULL,
    name text NOT NULL,
    query text NOT NULL,
    shared boolean NOT NULL DEFAULT false,
    is_default boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT uq_saved_views_tenant_id_user_id_tab_name UNIQUE (tenant_id, user_id, tab, name),
    CONSTRAINT saved_views_tab_known CHECK (tab IN ('conversations', 'sessions', 'feedback', 'knowledge'))
);
CREATE UNIQUE INDEX saved_views_default_key ON saved_views (tenant_id, user_id, tab) WHERE is_default;

CREATE TABLE feedback_comments (
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT pk_feedback_comments PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT fk_feedback_comments_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    feedback_id uuid NOT NULL,
    user_id uuid NOT NULL CONSTRAINT fk_feedback_comments_user_id REFERENCES users (id) ON DELETE RESTRICT,
    body text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT feedback_comments_says_something CHECK (body <> ''),
    CONSTRAINT fk_feedback_comments_tenant_id_feedback_id FOREIGN KEY (tenant_id, feedback_id)
        REFERENCES feedback (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX feedback_comments_feedback_idx ON feedback_comments (tenant_id, feedback_id, created_at);

CREATE TABLE feedback_daily (
    tenant_id uuid NOT NULL CONSTRAINT fk_feedback_daily_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    day date NOT NULL,
    rating text NOT NULL,
    total bigint NOT NULL,
    counted_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_feedback_daily PRIMARY KEY (tenant_id, day, rating),
    CONSTRAINT feedback_daily_rating_known CHECK (rating IN ('positive', 'negative', 'neutral'))
);
"""

COLUMNS = """
ALTER TABLE feedback ADD COLUMN assignee_id uuid CONSTRAINT fk_feedback_assignee_id REFERENCES users (id) ON DELETE SET NULL;
ALTER TABLE feedback ADD COLUMN error_categories text[] NOT NULL DEFAULT '{}'::text[];
CREATE INDEX feedback_assignee_idx ON feedback (tenant_id, assignee_id, created_at DESC, id DESC) WHERE assignee_id IS NOT NULL;
CREATE INDEX feedback_occurred_idx ON feedback (tenant_id, occurred_at);

ALTER TABLE agents ADD COLUMN merged_into uuid;
ALTER TABLE agents ADD CONSTRAINT fk_agents_tenant_id_merged_into FOREIGN KEY (tenant_id, merged_into)
    REFERENCES agents (tenant_id, id) ON DELETE RESTRICT;

ALTER TABLE sessions ADD CONSTRAINT fk_sessions_tenant_id_import_id FOREIGN KEY (tenant_id, import_id)
    REFERENCES imports (tenant_id, id) ON DELETE SET NULL (import_id);
CREATE INDEX sessions_import_idx ON sessions (tenant_id, import_id, created_at DESC, id DESC) WHERE import_id IS NOT NULL;
CREATE INDEX sessions_environment_idx ON sessions (tenant_id, environment, created_at DESC, id DESC) WHERE environment IS NOT NULL;
CREATE INDEX sessions_model_idx ON sessions (tenant_id, model, created_at DESC, id DESC) WHERE model IS NOT NULL;
CREATE INDEX sessions_entity_idx ON sessions (tenant_id, entity_id, created_at DESC, id DESC) WHERE entity_id IS NOT NULL;
CREATE INDEX entities_recent_idx ON entities (tenant_id, updated_at DESC, id DESC);
"""

RIGHTS = """
GRANT SELECT, INSERT, UPDATE, DELETE ON imports, saved_views, feedback_daily TO upshot_app;
GRANT SELECT, INSERT, DELETE ON feedback_comments TO upshot_app;
"""

# A shared view is read by everyone in the workspace and changed by whoever made it.
VIEWS = """
ALTER TABLE saved_views ENABLE ROW LEVEL SECURITY;
ALTER TABLE saved_views FORCE ROW LEVEL SECURITY;
CREATE POLICY saved_views_tenant ON saved_views
    USING (tenant_id = app_tenant() AND (user_id = app_user() OR app_role() = 'system'))
    WITH CHECK (tenant_id = app_tenant() AND (user_id = app_user() OR app_role() = 'system'));
CREATE POLICY saved_views_shared ON saved_views FOR SELECT USING (tenant_id = app_tenant() AND shared);
"""

# Before a browser sends anything from another site it asks whether it may, and cannot say which workspace it means. The
# workspaces that allow an origin are shown to whoever names it.
ORIGINS = """
CREATE POLICY tenants_allowing ON tenants FOR SELECT
    USING (settings -> 'feedback_origins' ? nullif(current_setting('app.origin', true), ''));
"""
ADMINS_ONLY = "tenant_id = app_tenant() AND app_role() IN ('admin', 'system')"


def upgrade() -> None:
    run(TABLES)
    run(COLUMNS)
    wall("imports")
    wall("feedback_daily")
    wall("feedback_comments", ADMINS_ONLY)
    run(VIEWS)
    run(ORIGINS)
    run(RIGHTS)


def downgrade() -> None:
    run("""
        DROP INDEX entities_recent_idx, sessions_entity_idx, sessions_model_idx, sessions_environment_idx, sessions_import_idx;
        ALTER TABLE sessions DROP CONSTRAINT fk_sessions_tenant_id_import_id;
        ALTER TABLE agents DROP CONSTRAINT fk_agents_tenant_id_merged_into;
        ALTER TABLE agents DROP COLUMN merged_into;
        DROP INDEX feedback_occurred_idx, feedback_assignee_idx;
        ALTER TABLE feedback DROP COLUMN error_categories, DROP COLUMN assignee_id;
    """)
    run("DROP POLICY tenants_allowing ON tenants")
    run("DROP POLICY saved_views_shared ON saved_views")
    for table in ("imports", "feedback_daily", "feedback_comments", "saved_views"):
        tear_down(table)
    drop_tables("imports", "saved_views", "feedback_comments", "feedback_daily")
