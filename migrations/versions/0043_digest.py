"""Changes of knowledge by time, for the weekly digest."""

from migrations.helpers import run

revision = "0043_digest"
down_revision = "0041_webhooks"
branch_labels = depends_on = None


def upgrade() -> None:
    run("CREATE INDEX shared_context_history_recent_idx ON shared_context_history (tenant_id, created_at)")


def downgrade() -> None:
    run("DROP INDEX shared_context_history_recent_idx")
