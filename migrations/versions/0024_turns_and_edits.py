"""Turn ids are unique within a conversation, and an edit has its replacement text as comment."""

from migrations.helpers import run, whole_tables

revision = "0024_turns_and_edits"
down_revision = "0023_replay_safety"
branch_labels = depends_on = None

# Edits made on the chat page had their text in the details only.
UP = """
DROP INDEX feedback_one_reaction_key;
CREATE UNIQUE INDEX feedback_one_reaction_key ON feedback (tenant_id, chat_id, turn_id, created_by)
    WHERE kind = 'reaction' AND origin = 'user';
UPDATE feedback SET turn_id = details ->> 'turn_id_set_aside', details = details - 'turn_id_set_aside'
 WHERE details ? 'turn_id_set_aside';
UPDATE feedback SET comment = details ->> 'preferred_answer' WHERE signal = 'edit' AND details ? 'preferred_answer';
"""

# The older index allows one reaction for each turn id in a workspace. The newest keeps the id; the others keep it in
# their details, where the way up finds it.
DOWN = """
DROP INDEX feedback_one_reaction_key;
WITH numbered AS (
    SELECT id, row_number() OVER (PARTITION BY tenant_id, turn_id, created_by ORDER BY created_at DESC, id) AS place
      FROM feedback WHERE kind = 'reaction' AND origin = 'user' AND turn_id IS NOT NULL
)
UPDATE feedback SET details = details || jsonb_build_object('turn_id_set_aside', turn_id), turn_id = NULL
  FROM numbered WHERE numbered.id = feedback.id AND numbered.place > 1;
CREATE UNIQUE INDEX feedback_one_reaction_key ON feedback (tenant_id, turn_id, created_by)
    WHERE kind = 'reaction' AND origin = 'user';
"""


def upgrade() -> None:
    with whole_tables("feedback"):
        run(UP)


def downgrade() -> None:
    with whole_tables("feedback"):
        run(DOWN)
