"""The verdicts of ended runs as rows: one per golden, for comparing runs, the matrix and the trend."""

from migrations.helpers import drop_tables, run, tear_down, wall, whole_tables

revision = "0029_eval_verdicts"
down_revision = "0028_session_bytes"
branch_labels = depends_on = None

TABLE = """
CREATE TABLE eval_verdicts (
    tenant_id uuid NOT NULL CONSTRAINT fk_eval_verdicts_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    run_id uuid NOT NULL,
    golden_id uuid NOT NULL,
    agent_version_id uuid,
    context_mode text NOT NULL,
    knowledge text NOT NULL DEFAULT '',
    trial boolean NOT NULL,
    verdict text NOT NULL,
    accuracy double precision,
    reason text,
    baseline text,
    replay_session_id uuid NOT NULL,
    ended_at timestamptz NOT NULL,
    latest boolean NOT NULL DEFAULT false,
    CONSTRAINT pk_eval_verdicts PRIMARY KEY (tenant_id, run_id, golden_id),
    CONSTRAINT fk_eval_verdicts_tenant_id_run_id FOREIGN KEY (tenant_id, run_id)
        REFERENCES eval_runs (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_eval_verdicts_tenant_id_golden_id FOREIGN KEY (tenant_id, golden_id)
        REFERENCES sessions (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_eval_verdicts_tenant_id_replay_session_id FOREIGN KEY (tenant_id, replay_session_id)
        REFERENCES sessions (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_eval_verdicts_tenant_id_agent_version_id FOREIGN KEY (tenant_id, agent_version_id)
        REFERENCES agent_versions (tenant_id, id) ON DELETE RESTRICT,
    CONSTRAINT eval_verdicts_verdict_known CHECK (verdict IN ('pass', 'fail', 'flaky', 'errored', 'unknown')),
    CONSTRAINT eval_verdicts_context_known CHECK (context_mode IN ('frozen', 'live'))
);
CREATE INDEX eval_verdicts_cell_idx ON eval_verdicts
    (tenant_id, golden_id, agent_version_id, context_mode, knowledge, ended_at DESC);
CREATE INDEX eval_verdicts_latest_idx ON eval_verdicts (tenant_id, golden_id) WHERE latest;
CREATE INDEX eval_verdicts_replay_idx ON eval_verdicts (tenant_id, replay_session_id);
GRANT SELECT, INSERT, UPDATE, DELETE ON eval_verdicts TO upshot_app;
"""
# What runs found before, from the results that they ended with.
FILL = """
INSERT INTO eval_verdicts (tenant_id, run_id, golden_id, agent_version_id, context_mode, knowledge, trial, verdict,
                           accuracy, reason, baseline, replay_session_id, ended_at)
SELECT r.tenant_id, r.id, g.id, s.agent_version_id, r.context_mode,
       (SELECT coalesce(string_agg(k.change, ' ' ORDER BY k.change), '')
          FROM (SELECT '+' || jsonb_array_elements_text(coalesce(r.options -> 'plus', '[]')) AS change
                UNION ALL SELECT '-' || jsonb_array_elements_text(coalesce(r.options -> 'minus', '[]'))) AS k),
       r.options ? 'trial', e.value ->> 'verdict', (e.value ->> 'overall_accuracy')::float8, e.value ->> 'reason',
       e.value ->> 'baseline', s.id, r.completed_at
  FROM eval_runs AS r
 CROSS JOIN jsonb_each(CASE WHEN jsonb_typeof(r.results -> 'bySession') = 'object' THEN r.results -> 'bySession' ELSE '{}' END) AS e
  JOIN sessions AS g ON g.tenant_id = r.tenant_id AND g.id::text = e.key
  JOIN sessions AS s ON s.tenant_id = r.tenant_id AND s.id::text = e.value ->> 'replay_session_id'
 WHERE r.completed_at IS NOT NULL AND e.value ->> 'verdict' IN ('pass', 'fail', 'flaky', 'errored', 'unknown');
UPDATE eval_verdicts AS v SET latest = true
  FROM (SELECT DISTINCT ON (tenant_id, golden_id, agent_version_id, context_mode, knowledge) tenant_id, golden_id, run_id
          FROM eval_verdicts
         ORDER BY tenant_id, golden_id, agent_version_id, context_mode, knowledge, ended_at DESC, run_id) AS n
 WHERE v.tenant_id = n.tenant_id AND v.run_id = n.run_id AND v.golden_id = n.golden_id;
"""


def upgrade() -> None:
    run(TABLE)
    with whole_tables("eval_runs", "sessions"):
        run(FILL)
    wall("eval_verdicts")


def downgrade() -> None:
    tear_down("eval_verdicts")
    drop_tables("eval_verdicts")
