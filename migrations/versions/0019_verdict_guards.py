"""What the database refuses of goldens and runs: a mark without what it froze, and figures that no case bears out."""

from migrations.helpers import run
from migrations.session_guard import WHOLE, guard_session

revision = "0019_verdict_guards"
down_revision = "0017_receptions"
branch_labels = depends_on = None

# A run begins without figures, ends with those of its cases, and keeps them. Its set may be renamed; a completed run is
# taken up again only with cases that are left to replay.
RUNS = """
CREATE FUNCTION guard_eval_run() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    open_cases boolean;
    passed integer;
    failed integer;
BEGIN
    IF purging(NEW.tenant_id) THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'INSERT' THEN
        IF NEW.completed_at IS NOT NULL OR NEW.passed_count <> 0 OR NEW.failed_count <> 0 OR NEW.results <> '{}' THEN
            RAISE EXCEPTION 'A run begins without figures.' USING ERRCODE = 'check_violation', CONSTRAINT = 'run_figures';
        END IF;
        RETURN NEW;
    END IF;
    SELECT EXISTS (SELECT FROM public.sessions AS s WHERE s.tenant_id = NEW.tenant_id AND s.eval_run_id = NEW.id
                      AND s.status IN ('pending', 'running')) INTO open_cases;
    IF OLD.completed_at IS NOT NULL THEN
        IF (to_jsonb(OLD) - 'set_name')::text = (to_jsonb(NEW) - 'set_name')::text THEN
            RETURN NEW;
        END IF;
        IF OLD.status = 'completed' AND NEW.status = 'running' AND NEW.results = '{}' AND open_cases
           AND (to_jsonb(OLD) - ARRAY['status', 'completed_at', 'results'])::text
               = (to_jsonb(NEW) - ARRAY['status', 'completed_at', 'results'])::text THEN
            RETURN NEW;
        END IF;
        RAISE EXCEPTION 'This run has ended and keeps its figures.' USING ERRCODE = 'check_violation', CONSTRAINT = 'run_figures';
    END IF;
    IF NEW.completed_at IS NULL THEN
        IF (OLD.passed_count, OLD.failed_count) IS DISTINCT FROM (NEW.passed_count, NEW.failed_count)
           OR OLD.results::text IS DISTINCT FROM NEW.results::text THEN
            RAISE EXCEPTION 'The figures of a run are written when it ends.' USING ERRCODE = 'check_violation', CONSTRAINT = 'run_figures';
        END IF;
        RETURN NEW;
    END IF;
    SELECT count(*) FILTER (WHERE g.passes AND NOT g.flaky AND NOT g.unknown),
           count(*) FILTER (WHERE g.flaky OR (g.fails AND NOT g.unknown))
      INTO passed, failed
      FROM (SELECT bool_or(c.verdict = 'pass') AS passes, bool_or(c.verdict = 'fail') AS fails,
                   bool_or(c.verdict = 'unknown') AS unknown,
                   bool_or(c.verdict = 'flaky') OR (bool_or(c.verdict = 'pass') AND bool_or(c.verdict = 'fail')) AS flaky
              FROM (SELECT s.eval_source, coalesce(s.metadata #>> '{eval_result,verdict}', 'errored') AS verdict
                      FROM public.sessions AS s
                     WHERE s.tenant_id = NEW.tenant_id AND s.eval_run_id = NEW.id AND NOT s.metadata ? 'eval_retried') AS c
             GROUP BY c.eval_source) AS g;
    IF open_cases OR NEW.passed_count <> passed OR NEW.failed_count <> failed
       OR coalesce((NEW.results #>> '{verdicts,pass}')::integer, 0) <> passed THEN
        RAISE EXCEPTION 'A run ends with the figures of its cases.' USING ERRCODE = 'check_violation', CONSTRAINT = 'run_figures';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER eval_runs_guard BEFORE INSERT OR UPDATE ON eval_runs FOR EACH ROW EXECUTE FUNCTION guard_eval_run();
"""


def upgrade() -> None:
    run(guard_session(WHOLE))
    run(RUNS)


def downgrade() -> None:
    run("DROP TRIGGER eval_runs_guard ON eval_runs; DROP FUNCTION guard_eval_run();")
    run(guard_session())
