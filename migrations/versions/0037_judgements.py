"""Judgements of replays by a model, what admins overruled in them, and labels that check the judge."""

from migrations.helpers import amend_function, as_door, drop_tables, run, tear_down, wall

revision = "0037_judgements"
down_revision = "0036_reviews"
branch_labels = depends_on = None

TABLES = """
CREATE TABLE judgements (
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT pk_judgements PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT fk_judgements_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    run_id uuid NOT NULL,
    session_id uuid NOT NULL,
    criteria_set_id uuid NOT NULL,
    criteria_version integer,
    model text,
    status text NOT NULL DEFAULT 'pending',
    attempt integer NOT NULL DEFAULT 0,
    lease_owner text,
    lease_until timestamptz,
    content_hash text,
    cached boolean NOT NULL DEFAULT false,
    dimensions jsonb NOT NULL DEFAULT '{}'::jsonb,
    error text,
    input_tokens integer NOT NULL DEFAULT 0,
    output_tokens integer NOT NULL DEFAULT 0,
    cost numeric(14, 6),
    finished_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT uq_judgements_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT uq_judgements_tenant_id_session_id UNIQUE (tenant_id, session_id),
    CONSTRAINT fk_judgements_tenant_id_run_id FOREIGN KEY (tenant_id, run_id)
        REFERENCES eval_runs (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_judgements_tenant_id_session_id FOREIGN KEY (tenant_id, session_id)
        REFERENCES sessions (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_judgements_tenant_id_criteria_set_id FOREIGN KEY (tenant_id, criteria_set_id)
        REFERENCES criteria_sets (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT judgements_status_known CHECK (status IN ('pending', 'running', 'judged', 'errored', 'not_judged')),
    CONSTRAINT judgements_ends CHECK ((status IN ('judged', 'errored', 'not_judged')) = (finished_at IS NOT NULL)),
    CONSTRAINT judgements_only_judged_score CHECK (status = 'judged' OR dimensions = '{}'::jsonb)
);
CREATE INDEX judgements_run_idx ON judgements (tenant_id, run_id);
CREATE INDEX judgements_open_idx ON judgements (tenant_id, created_at, id) WHERE status IN ('pending', 'running');
CREATE INDEX judgements_content_idx ON judgements (tenant_id, content_hash) WHERE status = 'judged';
CREATE INDEX judgements_spent_idx ON judgements (tenant_id, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX judgements_judge_idx ON judgements (tenant_id, criteria_set_id, model) WHERE status = 'judged';
GRANT SELECT, INSERT, UPDATE, DELETE ON judgements TO upshot_app;

CREATE TABLE judgement_overrules (
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT pk_judgement_overrules PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT fk_judgement_overrules_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    judgement_id uuid NOT NULL,
    dimension text NOT NULL,
    passed boolean NOT NULL,
    reason text NOT NULL,
    created_by uuid CONSTRAINT fk_judgement_overrules_created_by REFERENCES users (id) ON DELETE RESTRICT,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT fk_judgement_overrules_tenant_id_judgement_id FOREIGN KEY (tenant_id, judgement_id)
        REFERENCES judgements (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX judgement_overrules_judgement_idx ON judgement_overrules (tenant_id, judgement_id, created_at);
CREATE INDEX judgement_overrules_recent_idx ON judgement_overrules (tenant_id, created_at DESC, id DESC);
GRANT SELECT, INSERT ON judgement_overrules TO upshot_app;

CREATE TABLE judge_labels (
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT pk_judge_labels PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT fk_judge_labels_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    criteria_set_id uuid NOT NULL,
    model text NOT NULL,
    judgement_id uuid,
    dimension text NOT NULL,
    passed boolean NOT NULL,
    judge_passed boolean NOT NULL,
    created_by uuid CONSTRAINT fk_judge_labels_created_by REFERENCES users (id) ON DELETE RESTRICT,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT uq_judge_labels_tenant_id_judgement_id_dimension_created_by
        UNIQUE (tenant_id, judgement_id, dimension, created_by),
    CONSTRAINT fk_judge_labels_tenant_id_criteria_set_id FOREIGN KEY (tenant_id, criteria_set_id)
        REFERENCES criteria_sets (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_judge_labels_tenant_id_judgement_id FOREIGN KEY (tenant_id, judgement_id)
        REFERENCES judgements (tenant_id, id) ON DELETE SET NULL (judgement_id)
);
CREATE INDEX judge_labels_judge_idx ON judge_labels (tenant_id, criteria_set_id, model, created_at);
GRANT SELECT, INSERT ON judge_labels TO upshot_app;
"""
NAMES = ("judgements", "judgement_overrules", "judge_labels")

DOOR = """
CREATE FUNCTION door_judgements() RETURNS SETOF uuid
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT t.id FROM tenants AS t
     WHERE EXISTS (SELECT FROM judgements AS j WHERE j.tenant_id = t.id AND j.status IN ('pending', 'running')
                      AND (j.status = 'pending' OR j.lease_until < now()))
$$;
"""

# What a judge may do to a stored verdict. What the comparison found is kept under `compared`, and no judgement gets
# past it: a judge turns a pass into a failure or an error, and an admin who overrules the judge takes that back.
MAY_CHANGE = """
CREATE FUNCTION judge_may_change(tenant uuid, replay uuid, before jsonb, after jsonb) RETURNS boolean
    LANGUAGE sql STABLE AS $$
    SELECT before - parts.names = after - parts.names
       AND EXISTS (SELECT FROM public.judgements AS j WHERE j.tenant_id = tenant AND j.session_id = replay)
       AND (after ->> 'verdict' = before #>> '{compared,verdict}'
            OR (before #>> '{compared,verdict}' = 'pass' AND after ->> 'verdict' IN ('fail', 'errored')))
      FROM (SELECT ARRAY['verdict', 'passed', 'reason', 'overall_accuracy', 'rubric'] AS names) AS parts
$$;
"""
GUARDS = (
    (
        "guard_replay()",
        "AND (OLD.metadata -> 'eval_result')::text IS DISTINCT FROM (NEW.metadata -> 'eval_result')::text THEN",
        "AND (OLD.metadata -> 'eval_result')::text IS DISTINCT FROM (NEW.metadata -> 'eval_result')::text\n"
        "       AND public.judge_may_change(OLD.tenant_id, OLD.id, OLD.metadata -> 'eval_result',"
        " NEW.metadata -> 'eval_result') IS NOT TRUE THEN",
    ),
    (
        "guard_eval_run()",
        "AND s.status IN ('pending', 'running')) INTO open_cases;",
        "AND s.status IN ('pending', 'running'))\n"
        "        OR EXISTS (SELECT FROM public.judgements AS j WHERE j.tenant_id = NEW.tenant_id AND j.run_id = NEW.id\n"
        "                      AND j.status IN ('pending', 'running')) INTO open_cases;",
    ),
    # An overruled judgement changes the figures of a run that has ended. They are compared with its cases all the same.
    (
        "guard_eval_run()",
        "        RAISE EXCEPTION 'This run has ended and keeps its figures.' USING ERRCODE = 'check_violation',"
        " CONSTRAINT = 'run_figures';",
        "        IF NEW.completed_at IS NULL\n"
        "           OR (to_jsonb(OLD) - ARRAY['passed_count', 'failed_count', 'results', 'figures'])::text\n"
        "              <> (to_jsonb(NEW) - ARRAY['passed_count', 'failed_count', 'results', 'figures'])::text\n"
        "           OR NOT EXISTS (SELECT FROM public.judgement_overrules AS o JOIN public.judgements AS j\n"
        "                              ON j.tenant_id = o.tenant_id AND j.id = o.judgement_id\n"
        "                           WHERE o.tenant_id = NEW.tenant_id AND j.run_id = NEW.id) THEN\n"
        "            RAISE EXCEPTION 'This run has ended and keeps its figures.' USING ERRCODE = 'check_violation',"
        " CONSTRAINT = 'run_figures';\n"
        "        END IF;",
    ),
)


def upgrade() -> None:
    run(TABLES)
    for name in NAMES:
        wall(name)
    run(MAY_CHANGE)
    for function, before, after in GUARDS:
        amend_function(function, (before, after))
    run("GRANT SELECT (tenant_id, status, lease_until) ON judgements TO upshot_door")
    run("CREATE POLICY judgements_door ON judgements FOR SELECT TO upshot_door USING (true)")
    with as_door():
        run(DOOR)
        run("REVOKE ALL ON FUNCTION door_judgements() FROM PUBLIC")
        run("GRANT EXECUTE ON FUNCTION door_judgements() TO upshot_app")


def downgrade() -> None:
    with as_door():
        run("DROP FUNCTION door_judgements()")
    for function, before, after in reversed(GUARDS):
        amend_function(function, (after, before))
    run("DROP FUNCTION judge_may_change(uuid, uuid, jsonb, jsonb); DROP POLICY judgements_door ON judgements")
    for name in NAMES:
        tear_down(name)
    drop_tables(*NAMES)
