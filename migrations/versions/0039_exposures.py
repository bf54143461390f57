"""What was seen of sessions with a knowledge row in their prompt, and of those without it."""

from migrations.helpers import run

revision = "0039_exposures"
down_revision = "0038_review_instructions"
branch_labels = depends_on = None


def upgrade() -> None:
    run("""
        ALTER TABLE shared_context_usage
            ADD COLUMN exposed integer NOT NULL DEFAULT 0,
            ADD COLUMN exposed_negative integer NOT NULL DEFAULT 0,
            ADD COLUMN unexposed integer NOT NULL DEFAULT 0,
            ADD COLUMN unexposed_negative integer NOT NULL DEFAULT 0,
            ADD COLUMN is_harmful boolean NOT NULL DEFAULT false,
            ADD COLUMN negative_sessions uuid[] NOT NULL DEFAULT '{}'::uuid[];
        CREATE INDEX shared_context_usage_harmful_idx ON shared_context_usage (tenant_id, shared_context_id)
         WHERE is_harmful;
        CREATE INDEX session_events_loaded_idx ON session_events (tenant_id, session_id)
         WHERE event_type = 'context.loaded';
    """)


def downgrade() -> None:
    run("""
        DROP INDEX session_events_loaded_idx;
        DROP INDEX shared_context_usage_harmful_idx;
        ALTER TABLE shared_context_usage DROP COLUMN exposed, DROP COLUMN exposed_negative, DROP COLUMN unexposed,
            DROP COLUMN unexposed_negative, DROP COLUMN is_harmful, DROP COLUMN negative_sessions;
    """)
