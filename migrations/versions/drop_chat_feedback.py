"""The old table of thumbs goes. What was still written to it comes along first."""

from migrations.helpers import run, wall, whole_tables
from migrations.legacy import CREATE_CHAT_FEEDBACK, FEEDBACK_FROM_THUMBS, THUMBS_FROM_FEEDBACK

revision = "drop_chat_feedback"
down_revision = "0008_guards"
branch_labels = depends_on = None


def upgrade() -> None:
    with whole_tables("feedback", "chats", "messages"):
        run("ALTER TABLE chat_feedback NO FORCE ROW LEVEL SECURITY")
        run(FEEDBACK_FROM_THUMBS)
    run("DROP TABLE chat_feedback")


def downgrade() -> None:
    run(CREATE_CHAT_FEEDBACK)
    with whole_tables("feedback"):
        run(THUMBS_FROM_FEEDBACK)
    wall("chat_feedback")
    run("GRANT SELECT, INSERT, UPDATE, DELETE ON chat_feedback TO upshot_app")
