"""Expectations of a golden may change by a revision: what they were before stays, with who changed them and when."""

from migrations.helpers import run
from migrations.session_guard import EDITED, WHOLE, guard_session

revision = "0031_golden_revisions"
down_revision = "0030_run_figures"
branch_labels = depends_on = None

# A golden is promoted without a past.
NEW = """
    IF NEW.metadata ? 'golden' AND (TG_OP = 'INSERT' OR NOT OLD.metadata ? 'golden')
       AND (NEW.metadata -> 'golden') ? 'revisions' THEN
        RAISE EXCEPTION 'A new golden has no revisions.' USING ERRCODE = 'check_violation', CONSTRAINT = 'golden';
    END IF;"""

# Texts are compared, not jsonb, as in the guard. Conditions stand one after the other: SQL may look at any part of an
# AND first, and counts no members of what is no list.
MAY_BECOME = """
CREATE FUNCTION golden_may_become(was jsonb, becomes jsonb) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    editable CONSTANT text[] := ARRAY['set', 'note', 'criteriaSetId'];
    judged CONSTANT text[] := ARRAY['expected', 'baseline_rejected', 'recorded_is_right'];
    past CONSTANT jsonb := coalesce(was -> 'revisions', '[]');
    told CONSTANT jsonb := becomes -> 'revisions';
    before CONSTANT jsonb := (SELECT coalesce(jsonb_object_agg(e.key, e.value), '{}') FROM jsonb_each(was) AS e WHERE e.key = ANY (judged));
    after CONSTANT jsonb := (SELECT coalesce(jsonb_object_agg(e.key, e.value), '{}') FROM jsonb_each(becomes) AS e WHERE e.key = ANY (judged));
    added jsonb;
BEGIN
    IF (was -> 'revisions')::text IS NOT DISTINCT FROM told::text THEN
        RETURN (was - editable)::text = (becomes - editable)::text;
    END IF;
    IF told IS NULL OR jsonb_typeof(told) <> 'array' THEN
        RETURN false;
    END IF;
    IF jsonb_array_length(told) <> jsonb_array_length(past) + 1 OR jsonb_array_length(told) > 100
       OR length(told::text) > 1048576 OR (told - -1)::text <> past::text
       OR (was - judged - 'revisions'::text)::text <> (becomes - judged - 'revisions'::text)::text THEN
        RETURN false;
    END IF;
    added := told -> -1;
    IF jsonb_typeof(added) <> 'object' THEN
        RETURN false;
    END IF;
    RETURN coalesce(
        added - ARRAY['number', 'at', 'by', 'before', 'reason'] = '{}'
        AND (added -> 'number')::text = jsonb_array_length(told)::text
        AND jsonb_typeof(added -> 'by') = 'string' AND added ->> 'by' = public.app_user()::text
        AND jsonb_typeof(added -> 'at') = 'string'
        AND added ->> 'at' ~ '^[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?[+]00:00$'
        AND added ->> 'at' >= coalesce(past -> -1 ->> 'at', '') COLLATE "C"
        AND (added -> 'before')::text = before::text
        AND before::text <> after::text
        AND (after = '{}' OR after IN ('{"baseline_rejected": true}', '{"recorded_is_right": true}')
             OR (after - 'expected'::text = '{}' AND jsonb_typeof(after -> 'expected') = 'object' AND after -> 'expected' <> '{}'))
        AND (NOT added ? 'reason' OR (jsonb_typeof(added -> 'reason') = 'string' AND length(added ->> 'reason') <= 2000)),
        false);
END
$$;
REVOKE ALL ON FUNCTION golden_may_become(jsonb, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION golden_may_become(jsonb, jsonb) TO upshot_app;
"""
CHANGED = "NOT public.golden_may_become(OLD.metadata -> 'golden', NEW.metadata -> 'golden')"


def upgrade() -> None:
    run(MAY_BECOME)
    run(guard_session(WHOLE + NEW, CHANGED))


def downgrade() -> None:
    run(guard_session(WHOLE, EDITED))
    run("DROP FUNCTION golden_may_become(jsonb, jsonb)")
