"""The guard of sessions as 0008 made it, with room for the rules that later revisions add."""

RULE = "-- rule --"
# Only a completed session that is not a replay becomes golden. While it is, one may take the mark away and change
# nothing else, or edit its set, note and criteria and change nothing else. Texts are compared, not jsonb, to which 1
# and 1.0 are the same while their hashes differ. Generated columns follow `metadata` and are not known yet here.
GUARD = """
CREATE OR REPLACE FUNCTION guard_session() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    derived CONSTANT text[] := ARRAY['metadata', 'golden_set', 'eval_source', 'search', 'golden_hash'];
    editable CONSTANT text[] := ARRAY['set', 'note', 'criteriaSetId'];
BEGIN
    IF TG_OP <> 'INSERT' AND purging(OLD.tenant_id) THEN
        RETURN coalesce(NEW, OLD);
    END IF;
    IF TG_OP = 'DELETE' THEN
        IF OLD.metadata ? 'golden' THEN
            RAISE EXCEPTION 'This session is golden and cannot be deleted.' USING ERRCODE = 'restrict_violation', CONSTRAINT = 'golden';
        END IF;
        RETURN OLD;
    END IF;
    IF NEW.metadata ? 'golden' AND (jsonb_typeof(NEW.metadata -> 'golden') <> 'object'
                                    OR coalesce(NEW.metadata #>> '{golden,set}', '') !~ '^[a-z0-9-]{1,60}$') THEN
        RAISE EXCEPTION 'A golden belongs to a set: small letters, digits and hyphens.' USING ERRCODE = 'check_violation', CONSTRAINT = 'golden';
    END IF;-- rule --
    IF TG_OP = 'UPDATE' AND NEW.status <> OLD.status AND OLD.status IN ('completed', 'failed', 'cancelled') THEN
        RAISE EXCEPTION 'This session has ended and keeps its status.' USING ERRCODE = 'check_violation', CONSTRAINT = 'ended';
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.metadata ? 'golden' THEN
        IF (to_jsonb(OLD) - derived)::text IS DISTINCT FROM (to_jsonb(NEW) - derived)::text
           OR (OLD.metadata - 'golden')::text IS DISTINCT FROM (NEW.metadata - 'golden')::text
           OR (NEW.metadata ? 'golden' AND -- changes --) THEN
            RAISE EXCEPTION 'This session is golden and cannot be changed.' USING ERRCODE = 'check_violation', CONSTRAINT = 'golden';
        END IF;
    ELSIF NEW.metadata ? 'golden' AND (NEW.status <> 'completed' OR NEW.metadata ? 'eval_source') THEN
        RAISE EXCEPTION 'Only a completed session that is not a replay can be golden.' USING ERRCODE = 'check_violation', CONSTRAINT = 'golden';
    END IF;
    RETURN NEW;
END
$$;
"""

CHANGES = "-- changes --"
# What of a golden may not change, as it was until expectations could be edited.
EDITED = """((OLD.metadata -> 'golden') - editable)::text
                                           IS DISTINCT FROM ((NEW.metadata -> 'golden') - editable)::text"""
# A golden without its snapshot cannot be replayed, and without its hash nobody can tell that it was touched. Goldens
# that there are keep their mark; a mark that is set must be whole.
WHOLE = """
    IF NEW.metadata ? 'golden' AND (TG_OP = 'INSERT' OR NOT OLD.metadata ? 'golden')
       AND (coalesce(jsonb_typeof(NEW.metadata #> '{golden,snapshot}'), '') <> 'object'
            OR coalesce(jsonb_typeof(NEW.metadata #> '{golden,snapshot,turns,0}'), '') <> 'string'
            OR coalesce(NEW.metadata #>> '{golden,sha256}', '') !~ '^[0-9a-f]{64}$') THEN
        RAISE EXCEPTION 'A golden is kept with its snapshot and the hash of it.' USING ERRCODE = 'check_violation', CONSTRAINT = 'golden';
    END IF;"""


def guard_session(rule: str = "", edited: str = EDITED) -> str:
    """The function, with more rules about new goldens, and with what says that one was changed as it may not be."""
    return GUARD.replace(RULE, rule).replace(CHANGES, edited)
