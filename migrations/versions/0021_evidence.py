"""What the database refuses of evidence: a hash that is not the snapshot's, another verdict, a replay that goes alone."""

from migrations.helpers import run

revision = "0021_evidence"
down_revision = "0020_prompt_rows"
branch_labels = depends_on = None

# Canonical JSON, as the app writes it before it hashes: names by their bytes, numbers in full.
HASH = """
CREATE FUNCTION canonical_json(given jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN CASE jsonb_typeof(given)
        WHEN 'object' THEN (
            SELECT '{' || coalesce(string_agg(to_jsonb(e.key)::text || ': ' || CASE
                       WHEN jsonb_typeof(e.value) IN ('object', 'array') THEN public.canonical_json(e.value)
                       ELSE e.value::text END, ', ' ORDER BY e.key COLLATE "C"), '') || '}'
              FROM jsonb_each(given) AS e)
        WHEN 'array' THEN (
            SELECT '[' || coalesce(string_agg(CASE
                       WHEN jsonb_typeof(e.value) IN ('object', 'array') THEN public.canonical_json(e.value)
                       ELSE e.value::text END, ', ' ORDER BY e.place), '') || ']'
              FROM jsonb_array_elements(given) WITH ORDINALITY AS e (value, place))
        ELSE given::text END;
END
$$;
CREATE FUNCTION snapshot_hash(snapshot jsonb) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT encode(sha256(convert_to(public.canonical_json(snapshot), 'UTF8')), 'hex')
$$;
REVOKE ALL ON FUNCTION canonical_json(jsonb), snapshot_hash(jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION canonical_json(jsonb), snapshot_hash(jsonb) TO upshot_app;
"""

# Whether the mark is whole was looked at before. What was said is compared without its order, and a message without a
# letter or a digit may be left out: what counts as empty is the app's to say.
GOLDENS = """
CREATE FUNCTION guard_new_golden() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    frozen CONSTANT jsonb := NEW.metadata #> '{golden,snapshot}';
    said jsonb;
    needed jsonb;
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.metadata ? 'golden' THEN
        RETURN NEW;
    END IF;
    IF public.snapshot_hash(frozen) IS DISTINCT FROM NEW.metadata #>> '{golden,sha256}' THEN
        RAISE EXCEPTION 'The hash of a golden is that of its snapshot.' USING ERRCODE = 'check_violation', CONSTRAINT = 'golden';
    END IF;
    IF TG_OP = 'UPDATE' THEN
        SELECT coalesce(jsonb_agg(e.payload -> 'text'), '[]'),
               coalesce(jsonb_agg(e.payload -> 'text') FILTER (WHERE e.payload ->> 'text' ~ '[A-Za-z0-9]'), '[]')
          INTO said, needed
          FROM public.session_events AS e
         WHERE e.tenant_id = NEW.tenant_id AND e.session_id = NEW.id AND e.event_type = 'user.message';
    END IF;
    IF coalesce(frozen ->> 'session_type', NEW.session_type) <> NEW.session_type
       OR coalesce(frozen #>> '{agent,id}', NEW.agent_id::text) <> NEW.agent_id::text
       OR (TG_OP = 'UPDATE' AND NOT (frozen -> 'turns' <@ said AND needed <@ (frozen -> 'turns'))) THEN
        RAISE EXCEPTION 'The snapshot of a golden holds what its session was.' USING ERRCODE = 'check_violation', CONSTRAINT = 'golden';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER sessions_new_golden BEFORE INSERT OR UPDATE OF metadata ON sessions FOR EACH ROW
    WHEN (NEW.metadata ? 'golden') EXECUTE FUNCTION guard_new_golden();
"""

# A replay begins as one. Its verdict comes with its end and stays; one that errored is marked when it is tried again,
# for which its run is taken up first. It leaves only after its run, as events leave after their session.
REPLAYS = """
CREATE FUNCTION guard_replay() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ended boolean;
BEGIN
    IF TG_OP <> 'INSERT' AND purging(OLD.tenant_id) THEN
        RETURN coalesce(NEW, OLD);
    END IF;
    IF TG_OP = 'DELETE' THEN
        IF EXISTS (SELECT FROM public.eval_runs AS r WHERE r.tenant_id = OLD.tenant_id AND r.id = OLD.eval_run_id) THEN
            RAISE EXCEPTION 'A replay is deleted with its whole run only.' USING ERRCODE = 'restrict_violation', CONSTRAINT = 'replay';
        END IF;
        RETURN OLD;
    END IF;
    SELECT r.completed_at IS NOT NULL INTO ended FROM public.eval_runs AS r
     WHERE r.tenant_id = NEW.tenant_id AND r.id = (NEW.metadata ->> 'eval_run_id')::uuid;
    IF TG_OP = 'INSERT' THEN
        IF ended AND (NEW.status <> 'pending' OR NEW.metadata ?| ARRAY['eval_result', 'eval_retried']) THEN
            RAISE EXCEPTION 'A replay joins a run before it has ended.' USING ERRCODE = 'check_violation', CONSTRAINT = 'replay';
        END IF;
        RETURN NEW;
    END IF;
    IF OLD.eval_run_id IS NULL OR OLD.id <> NEW.id OR OLD.agent_version_id IS DISTINCT FROM NEW.agent_version_id
       OR (OLD.metadata - ARRAY['eval_result', 'eval_retried'])::text
          IS DISTINCT FROM (NEW.metadata - ARRAY['eval_result', 'eval_retried'])::text THEN
        RAISE EXCEPTION 'A replay is one from the beginning and stays what it replays.' USING ERRCODE = 'check_violation', CONSTRAINT = 'replay';
    END IF;
    IF (OLD.status IN ('completed', 'failed', 'cancelled') OR OLD.metadata ? 'eval_result')
       AND (OLD.metadata -> 'eval_result')::text IS DISTINCT FROM (NEW.metadata -> 'eval_result')::text THEN
        RAISE EXCEPTION 'A verdict stays as it was given.' USING ERRCODE = 'check_violation', CONSTRAINT = 'replay';
    END IF;
    IF (OLD.metadata -> 'eval_retried') IS DISTINCT FROM (NEW.metadata -> 'eval_retried')
       AND (ended OR OLD.metadata ? 'eval_retried' OR OLD.metadata #>> '{eval_result,verdict}' IS DISTINCT FROM 'errored') THEN
        RAISE EXCEPTION 'Only what errored is tried again.' USING ERRCODE = 'check_violation', CONSTRAINT = 'replay';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER sessions_replay_begins BEFORE INSERT ON sessions FOR EACH ROW
    WHEN (NEW.metadata ? 'eval_run_id') EXECUTE FUNCTION guard_replay();
CREATE TRIGGER sessions_replay_stays BEFORE UPDATE OF id, tenant_id, agent_version_id, metadata ON sessions FOR EACH ROW
    WHEN (OLD.eval_run_id IS NOT NULL OR NEW.metadata ? 'eval_run_id') EXECUTE FUNCTION guard_replay();
CREATE TRIGGER sessions_replay_leaves BEFORE DELETE ON sessions FOR EACH ROW
    WHEN (OLD.eval_run_id IS NOT NULL) EXECUTE FUNCTION guard_replay();
"""

# What a run was asked for is what its figures mean. The name of its set follows the set: then no golden is left under
# the old one and there are some under the new. A run goes when it has ended, unless a golden was copied from it.
RUNS = """
CREATE FUNCTION guard_eval_run_asked() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    course CONSTANT text[] := ARRAY['name', 'set_name', 'status', 'error', 'started_at', 'created_at', 'completed_at',
                                    'cancel_requested_at', 'passed_count', 'failed_count', 'results'];
BEGIN
    IF purging(OLD.tenant_id) THEN
        RETURN coalesce(NEW, OLD);
    END IF;
    IF TG_OP = 'DELETE' THEN
        IF OLD.completed_at IS NULL THEN
            RAISE EXCEPTION 'This run is under way and cannot be deleted.' USING ERRCODE = 'restrict_violation', CONSTRAINT = 'run_asked';
        END IF;
        IF EXISTS (SELECT FROM public.sessions AS g WHERE g.tenant_id = OLD.tenant_id AND g.golden_set IS NOT NULL
                      AND g.metadata ->> 'copied_from' IN (SELECT c.id::text FROM public.sessions AS c
                                                            WHERE c.tenant_id = OLD.tenant_id AND c.eval_run_id = OLD.id)) THEN
            RAISE EXCEPTION 'A golden was copied from a replay of this run.' USING ERRCODE = 'restrict_violation', CONSTRAINT = 'golden';
        END IF;
        RETURN OLD;
    END IF;
    IF (to_jsonb(OLD) - course)::text IS DISTINCT FROM (to_jsonb(NEW) - course)::text THEN
        RAISE EXCEPTION 'A run stays what it was asked for.' USING ERRCODE = 'check_violation', CONSTRAINT = 'run_asked';
    END IF;
    IF OLD.set_name IS DISTINCT FROM NEW.set_name AND (
        OLD.set_name IS NULL OR NEW.set_name IS NULL OR OLD.completed_at IS NULL
        OR EXISTS (SELECT FROM public.sessions AS s WHERE s.tenant_id = OLD.tenant_id AND s.golden_set = OLD.set_name)
        OR NOT EXISTS (SELECT FROM public.sessions AS s WHERE s.tenant_id = OLD.tenant_id AND s.golden_set = NEW.set_name)) THEN
        RAISE EXCEPTION 'A run stays with its set, and is renamed only with it.' USING ERRCODE = 'check_violation', CONSTRAINT = 'run_asked';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER eval_runs_asked BEFORE UPDATE OR DELETE ON eval_runs FOR EACH ROW EXECUTE FUNCTION guard_eval_run_asked();
GRANT DELETE ON eval_runs TO upshot_app;
"""

# Deferred by whoever deletes a run: the run goes first and its replays follow, all by the end of the transaction.
LINK = """
ALTER TABLE sessions DROP CONSTRAINT fk_sessions_tenant_id_eval_run_id,
    ADD CONSTRAINT fk_sessions_tenant_id_eval_run_id FOREIGN KEY (tenant_id, eval_run_id)
        REFERENCES eval_runs (tenant_id, id) ON DELETE {};
"""


def upgrade() -> None:
    for script in (HASH, GOLDENS, REPLAYS, RUNS, LINK.format("NO ACTION DEFERRABLE")):
        run(script)


def downgrade() -> None:
    run(LINK.format("RESTRICT"))
    run("""
        REVOKE DELETE ON eval_runs FROM upshot_app;
        DROP TRIGGER eval_runs_asked ON eval_runs;
        DROP TRIGGER sessions_replay_begins ON sessions;
        DROP TRIGGER sessions_replay_stays ON sessions;
        DROP TRIGGER sessions_replay_leaves ON sessions;
        DROP TRIGGER sessions_new_golden ON sessions;
        DROP FUNCTION guard_eval_run_asked(), guard_replay(), guard_new_golden(), snapshot_hash(jsonb), canonical_json(jsonb);
    """)
