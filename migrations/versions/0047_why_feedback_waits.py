"""Keep why feedback in a pattern still waits, as the last review said it."""

from migrations.helpers import run

revision = "0047_why_feedback_waits"
down_revision = "0046_scheduled_runs"
branch_labels = depends_on = None


def upgrade() -> None:
    run("ALTER TABLE feedback_pattern_rows ADD COLUMN waits text")


def downgrade() -> None:
    run("ALTER TABLE feedback_pattern_rows DROP COLUMN waits")
