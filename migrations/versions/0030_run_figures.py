"""The figures of a run apart from the results of its goldens: lists and charts read them without the long rest."""

from migrations.helpers import amend_function, run

revision = "0030_run_figures"
down_revision = "0029_eval_verdicts"
branch_labels = depends_on = None

# A BEFORE trigger sees a generated column empty in NEW. It follows `results`, which the guards compare anyway.
GUARDS = (
    ("guard_eval_run()", "- 'set_name')", "- ARRAY['set_name', 'figures'])"),
    (
        "guard_eval_run()",
        "ARRAY['status', 'completed_at', 'results']",
        "ARRAY['status', 'completed_at', 'results', 'figures']",
    ),
    ("guard_eval_run_asked()", "'failed_count', 'results'", "'failed_count', 'results', 'figures'"),
)


def upgrade() -> None:
    run("ALTER TABLE eval_runs ADD COLUMN figures jsonb GENERATED ALWAYS AS (results - 'bySession') STORED")
    for function, before, after in GUARDS:
        amend_function(function, (before, after))


def downgrade() -> None:
    for function, before, after in reversed(GUARDS):
        amend_function(function, (after, before))
    run("ALTER TABLE eval_runs DROP COLUMN figures")
