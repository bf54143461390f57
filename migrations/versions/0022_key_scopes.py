"""Scopes of keys: minting feedback tokens and proposing knowledge are scopes of their own, and a session keeps the scopes
of the key that started it. And which prompts were given to whom, so that only those count as knowledge in a session."""

from migrations.helpers import drop_tables, run, tear_down, wall, whole_tables

revision = "0022_key_scopes"
down_revision = "0021_evidence"
branch_labels = depends_on = None

KNOWN = """
ALTER TABLE api_keys DROP CONSTRAINT api_keys_scopes_known,
    ADD CONSTRAINT api_keys_scopes_known CHECK (scopes <@ ARRAY[{}] AND cardinality(scopes) > 0)
"""
# The product itself removes counts of wrong passwords whose window ended long ago. Nobody sees the others.
OLD = "app_role() = 'system' AND window_began < now() - interval '1 hour'"
ATTEMPTS = f"""
CREATE POLICY sign_in_attempts_old_seen ON sign_in_attempts FOR SELECT USING ({OLD});
CREATE POLICY sign_in_attempts_old_removed ON sign_in_attempts FOR DELETE USING ({OLD});
CREATE INDEX sign_in_attempts_age_idx ON sign_in_attempts (window_began);
"""
BEFORE = "'ingest', 'feedback', 'context', 'admin'"
SERVED = """
CREATE TABLE served_prompts (
    tenant_id uuid NOT NULL CONSTRAINT fk_served_prompts_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    user_id uuid NOT NULL CONSTRAINT fk_served_prompts_user_id REFERENCES users (id) ON DELETE CASCADE,
    sha256 text NOT NULL,
    row_ids uuid[] NOT NULL,
    served_at timestamptz NOT NULL,
    CONSTRAINT pk_served_prompts PRIMARY KEY (tenant_id, user_id, sha256)
);
CREATE INDEX served_prompts_age_idx ON served_prompts (tenant_id, served_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON served_prompts TO upshot_app;
"""
AFTER = "'ingest', 'feedback', 'feedback-token', 'context', 'knowledge', 'admin'"


def upgrade() -> None:
    run(KNOWN.format(AFTER))
    run("ALTER TABLE sessions ADD COLUMN key_scopes text[]")
    run(SERVED)
    wall("served_prompts")
    run(ATTEMPTS)


def downgrade() -> None:
    """Keys keep what they had before; one that had only the newer scopes opens nothing, so it is revoked."""
    run("""
        DROP INDEX sign_in_attempts_age_idx;
        DROP POLICY sign_in_attempts_old_seen ON sign_in_attempts;
        DROP POLICY sign_in_attempts_old_removed ON sign_in_attempts;
    """)
    tear_down("served_prompts")
    drop_tables("served_prompts")
    run("ALTER TABLE sessions DROP COLUMN key_scopes")
    with whole_tables("api_keys"):
        run("""
            UPDATE api_keys
               SET revoked_at = coalesce(revoked_at, now()), scopes = ARRAY['context']
             WHERE scopes <@ ARRAY['feedback-token', 'knowledge'];
            UPDATE api_keys SET scopes = array_remove(array_remove(scopes, 'feedback-token'), 'knowledge')
             WHERE scopes && ARRAY['feedback-token', 'knowledge'];
        """)
    run(KNOWN.format(BEFORE))
