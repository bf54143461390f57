"""Criteria sets have versions, so that what a golden was judged by can be read again."""

from migrations.helpers import drop_tables, run, tear_down, wall, whole_tables

revision = "0035_criteria_versions"
down_revision = "0033_knowledge_proofs"
branch_labels = depends_on = None

TABLE = """
ALTER TABLE criteria_sets ADD COLUMN version integer NOT NULL DEFAULT 1,
    ADD CONSTRAINT criteria_sets_version_counts CHECK (version >= 1);
CREATE TABLE criteria_set_versions (
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT pk_criteria_set_versions PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT fk_criteria_set_versions_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    criteria_set_id uuid NOT NULL,
    version integer NOT NULL,
    name text NOT NULL,
    dimensions jsonb NOT NULL DEFAULT '{}'::jsonb,
    created_by uuid CONSTRAINT fk_criteria_set_versions_created_by REFERENCES users (id) ON DELETE RESTRICT,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT uq_criteria_set_versions_tenant_id_criteria_set_id_version UNIQUE (tenant_id, criteria_set_id, version),
    CONSTRAINT fk_criteria_set_versions_tenant_id_criteria_set_id FOREIGN KEY (tenant_id, criteria_set_id)
        REFERENCES criteria_sets (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT criteria_set_versions_version_counts CHECK (version >= 1)
);
GRANT SELECT, INSERT ON criteria_set_versions TO upshot_app;
"""
FILL = """
INSERT INTO criteria_set_versions (tenant_id, criteria_set_id, version, name, dimensions, created_at)
SELECT tenant_id, id, 1, name, dimensions, created_at FROM criteria_sets;
"""
# Versions leave only with their set, which is gone by the time they follow.
GUARD = """
CREATE FUNCTION guard_criteria_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND (purging(OLD.tenant_id) OR NOT EXISTS (
        SELECT FROM public.criteria_sets AS s WHERE s.tenant_id = OLD.tenant_id AND s.id = OLD.criteria_set_id)) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'Versions of criteria are never changed, and leave only with their set.'
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'append_only';
END
$$;
CREATE TRIGGER criteria_set_versions_guard BEFORE UPDATE OR DELETE ON criteria_set_versions
    FOR EACH ROW EXECUTE FUNCTION guard_criteria_version();
"""


def upgrade() -> None:
    run(TABLE)
    with whole_tables("criteria_sets"):
        run(FILL)
    run(GUARD)
    wall("criteria_set_versions")


def downgrade() -> None:
    tear_down("criteria_set_versions")
    drop_tables("criteria_set_versions")
    run("DROP FUNCTION guard_criteria_version(); ALTER TABLE criteria_sets DROP COLUMN version")
