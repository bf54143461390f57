"""Scheduled work for agents: what is said to them, in whose name, and the runs that came of it."""

from migrations.helpers import run

revision = "0012_schedules"
down_revision = "0015_evals"
branch_labels = depends_on = None


def upgrade() -> None:
    run("""
        ALTER TABLE tasks
            ADD COLUMN message text NOT NULL DEFAULT '',
            ADD COLUMN created_by uuid,
            ADD CONSTRAINT fk_tasks_created_by FOREIGN KEY (created_by) REFERENCES users (id) ON DELETE SET NULL;
        CREATE INDEX task_ticks_session_idx ON task_ticks (tenant_id, session_id) WHERE session_id IS NOT NULL;
    """)


def downgrade() -> None:
    run("""
        DROP INDEX task_ticks_session_idx;
        ALTER TABLE tasks DROP COLUMN message, DROP COLUMN created_by;
    """)
