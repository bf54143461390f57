"""Versions of agents say why they were written."""

from migrations.helpers import run

revision = "0014_agent_notes"
down_revision = "0012_schedules"
branch_labels = depends_on = None


def upgrade() -> None:
    run("ALTER TABLE agent_versions ADD COLUMN note text")


def downgrade() -> None:
    run("ALTER TABLE agent_versions DROP COLUMN note")
