"""How many of the judged trials of a golden passed, next to its verdict in a run."""

from migrations.helpers import run, whole_tables

revision = "0045_verdict_trials"
down_revision = "0044_machine_feedback"
branch_labels = depends_on = None

# What runs found before, from the results that they ended with.
FILL = """
UPDATE eval_verdicts AS v SET trials_passed = t.passed, trials_judged = t.judged
  FROM (SELECT r.tenant_id, r.id AS run_id, e.key AS golden_id,
               count(*) FILTER (WHERE trial ->> 'verdict' = 'pass') AS passed,
               count(*) FILTER (WHERE trial ->> 'verdict' IN ('pass', 'fail')) AS judged
          FROM eval_runs AS r
         CROSS JOIN jsonb_each(CASE WHEN jsonb_typeof(r.results -> 'bySession') = 'object'
                                    THEN r.results -> 'bySession' ELSE '{}' END) AS e
         CROSS JOIN jsonb_array_elements(CASE WHEN jsonb_typeof(e.value -> 'trials') = 'array'
                                              THEN e.value -> 'trials' ELSE '[]' END) AS trial
         GROUP BY 1, 2, 3) AS t
 WHERE v.tenant_id = t.tenant_id AND v.run_id = t.run_id AND v.golden_id::text = t.golden_id
"""


def upgrade() -> None:
    run(
        "ALTER TABLE eval_verdicts ADD COLUMN trials_passed integer NOT NULL DEFAULT 0,"
        " ADD COLUMN trials_judged integer NOT NULL DEFAULT 0"
    )
    with whole_tables("eval_runs", "eval_verdicts"):
        run(FILL)


def downgrade() -> None:
    run("ALTER TABLE eval_verdicts DROP COLUMN trials_passed, DROP COLUMN trials_judged")
