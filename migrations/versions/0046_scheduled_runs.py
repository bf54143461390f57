"""Find the last scheduled run of a set without reading the others that came after it."""

from migrations.helpers import run

revision = "0046_scheduled_runs"
down_revision = "0045_verdict_trials"
branch_labels = depends_on = None


def upgrade() -> None:
    run(
        "CREATE INDEX eval_runs_scheduled_idx ON eval_runs (tenant_id, set_name, created_at DESC, id DESC)"
        " WHERE triggered_by = 'scheduled' AND status = 'completed'"
    )


def downgrade() -> None:
    run("DROP INDEX eval_runs_scheduled_idx")
