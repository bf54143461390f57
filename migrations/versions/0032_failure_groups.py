"""A failed replay names the newest run that it failed in, so that the failures of a run can be decided together."""

from migrations.helpers import run, whole_tables

revision = "0032_failure_groups"
down_revision = "0031_golden_revisions"
branch_labels = depends_on = None

# The run of the newest replay that is still there.
FILL = """
UPDATE feedback AS f SET context = f.context || jsonb_build_object('eval_run_id', n.eval_run_id)
  FROM feedback AS o
 CROSS JOIN LATERAL (
       SELECT s.eval_run_id
         FROM jsonb_array_elements_text(o.context -> 'replay_session_ids') WITH ORDINALITY AS r (id, place)
         JOIN sessions AS s ON s.tenant_id = o.tenant_id AND s.id = r.id::uuid
        WHERE s.eval_run_id IS NOT NULL ORDER BY r.place DESC LIMIT 1) AS n
 WHERE o.kind = 'replay_failure' AND f.id = o.id;
"""


def upgrade() -> None:
    with whole_tables("feedback", "sessions"):
        run(FILL)
    run("""
        ALTER TABLE feedback ADD COLUMN eval_run_id uuid GENERATED ALWAYS AS ((context ->> 'eval_run_id')::uuid) STORED;
        CREATE INDEX feedback_run_idx ON feedback (tenant_id, eval_run_id, created_at DESC, id DESC)
            WHERE eval_run_id IS NOT NULL;
    """)


def downgrade() -> None:
    run("ALTER TABLE feedback DROP COLUMN eval_run_id")
    with whole_tables("feedback"):
        run("UPDATE feedback SET context = context - 'eval_run_id' WHERE kind = 'replay_failure'")
