"""${message}."""

from migrations.helpers import run

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = depends_on = None


def upgrade() -> None:
    run("""
    """)


def downgrade() -> None:
    run("""
    """)
