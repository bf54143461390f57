"""What the database itself refuses, whoever asks: changing a golden, rewriting history, bringing back what ended."""

from migrations.helpers import run
from migrations.session_guard import guard_session

revision = "0008_guards"
down_revision = "0007_doors"
branch_labels = depends_on = None

# Guards stand aside only for `purge_tenant`. The setting alone is not enough: who logged in must be the owner, since
# foreign keys act as the owner whoever set them off.
PURGING = """
CREATE FUNCTION purging(tenant uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(nullif(current_setting('app.purging', true), '')::uuid = tenant, false)
       AND pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = 'public.tenants'::regclass), 'MEMBER')
$$;
"""

TRIGGER = """
CREATE TRIGGER sessions_guard BEFORE INSERT OR UPDATE OR DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION guard_session();
"""

# Events are only added, and not to a golden. The session's row is locked first, so that a promotion under way is
# waited for. They leave only with their session, which is gone by the time its events follow.
EVENTS = """
CREATE FUNCTION guard_new_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM public.sessions AS s WHERE (s.tenant_id, s.id) IN (SELECT tenant_id, session_id FROM added)
      ORDER BY s.id FOR NO KEY UPDATE;
    IF EXISTS (SELECT FROM public.sessions AS s WHERE (s.tenant_id, s.id) IN (SELECT tenant_id, session_id FROM added)
                  AND s.metadata ? 'golden') THEN
        RAISE EXCEPTION 'This session is golden and takes no more events.' USING ERRCODE = 'check_violation', CONSTRAINT = 'golden';
    END IF;
    RETURN NULL;
END
$$;
CREATE FUNCTION guard_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF purging(OLD.tenant_id) THEN
        RETURN OLD;
    END IF;
    IF TG_OP = 'DELETE' AND NOT EXISTS (SELECT FROM public.sessions AS s WHERE s.tenant_id = OLD.tenant_id AND s.id = OLD.session_id) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'Events are never changed, and leave only with their session.' USING ERRCODE = 'restrict_violation', CONSTRAINT = 'append_only';
END
$$;
CREATE TRIGGER session_events_added AFTER INSERT ON session_events REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION guard_new_events();
CREATE TRIGGER session_events_guard BEFORE UPDATE OR DELETE ON session_events FOR EACH ROW EXECUTE FUNCTION guard_event();
"""

APPEND_ONLY = ("agent_versions", "audit_log", "shared_context_history")
NO_CHANGE = """
CREATE FUNCTION guard_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF purging(OLD.tenant_id) THEN
        RETURN coalesce(NEW, OLD);
    END IF;
    RAISE EXCEPTION 'Rows of % are never changed or deleted.', TG_TABLE_NAME USING ERRCODE = 'restrict_violation', CONSTRAINT = 'append_only';
END
$$;
"""

CRITERIA = """
CREATE FUNCTION guard_criteria_set() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT purging(OLD.tenant_id) AND EXISTS (
        SELECT FROM public.sessions AS s WHERE s.tenant_id = OLD.tenant_id AND s.golden_set IS NOT NULL
           AND s.metadata #>> '{golden,criteriaSetId}' = OLD.id::text) THEN
        RAISE EXCEPTION 'A golden is judged by these criteria; they cannot be deleted.' USING ERRCODE = 'restrict_violation', CONSTRAINT = 'golden';
    END IF;
    RETURN OLD;
END
$$;
CREATE TRIGGER criteria_sets_guard BEFORE DELETE ON criteria_sets FOR EACH ROW EXECUTE FUNCTION guard_criteria_set();
"""

# A rejected extraction was already tried again, which is what applied it. Everything else begins pending.
FEEDBACK = """
CREATE FUNCTION guard_new_feedback() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.status = 'pending' OR (NEW.status = 'applied' AND NEW.source_type = 'extraction'
                                  AND coalesce(NEW.context ->> 'retry_ref', '') <> '') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'New feedback is pending.' USING ERRCODE = 'check_violation', CONSTRAINT = 'begins_pending';
END
$$;
CREATE TRIGGER feedback_begins BEFORE INSERT ON feedback FOR EACH ROW EXECUTE FUNCTION guard_new_feedback();
"""

# Deletes a workspace for good: goldens, history and all. Tables go in whatever order their foreign keys allow, so a
# table that is added later is included by having a tenant_id. People stay if another workspace knows them.
PURGE = """
CREATE POLICY users_purged_seen ON users FOR SELECT TO upshot_owner USING (purging(app_tenant()));
CREATE POLICY users_purged ON users FOR DELETE TO upshot_owner USING (purging(app_tenant()));
CREATE POLICY tenants_purged ON tenants FOR DELETE TO upshot_owner USING (purging(id));
CREATE FUNCTION purge_tenant(tenant uuid) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    waiting text[];
    blocked text[];
    name text;
    people uuid[];
    person uuid;
    n bigint;
    counts jsonb := '{}';
BEGIN
    PERFORM set_config('app.tenant_id', tenant::text, true), set_config('app.role', 'system', true),
            set_config('app.user_id', '', true), set_config('app.purging', tenant::text, true);
    IF NOT purging(tenant) THEN
        RAISE EXCEPTION 'Only the owner of the database deletes a workspace.' USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT array_agg(c.relname::text ORDER BY c.relname) INTO waiting
      FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
     WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace;
    SELECT array_agg(m.user_id) INTO people FROM memberships AS m WHERE m.tenant_id = tenant;
    FOREACH name IN ARRAY waiting LOOP
        EXECUTE format('SELECT count(*) FROM %I WHERE tenant_id = $1', name) INTO n USING tenant;
        counts := counts || jsonb_build_object(name, n);
    END LOOP;
    WHILE waiting <> '{}' LOOP
        blocked := '{}';
        FOREACH name IN ARRAY waiting LOOP
            BEGIN
                EXECUTE format('DELETE FROM %I WHERE tenant_id = $1', name) USING tenant;
            EXCEPTION WHEN foreign_key_violation OR restrict_violation THEN
                blocked := blocked || name;
            END;
        END LOOP;
        IF blocked = waiting THEN
            RAISE EXCEPTION 'Nothing could be deleted from %.', blocked;
        END IF;
        waiting := blocked;
    END LOOP;
    DELETE FROM tenants WHERE id = tenant;
    GET DIAGNOSTICS n = ROW_COUNT;
    counts := counts || jsonb_build_object('tenants', n, 'users', 0);
    FOREACH person IN ARRAY coalesce(people, '{}') LOOP
        CONTINUE WHEN EXISTS (SELECT FROM door_memberships(person));
        BEGIN
            DELETE FROM users WHERE id = person;
            counts := counts || jsonb_build_object('users', (counts ->> 'users')::bigint + 1);
        EXCEPTION WHEN foreign_key_violation OR restrict_violation THEN
            NULL;
        END;
    END LOOP;
    INSERT INTO purges (workspace_id, counts) VALUES (tenant, counts);
    PERFORM set_config('app.purging', '', true), set_config('app.tenant_id', '', true), set_config('app.role', '', true);
    RAISE LOG 'Workspace % was deleted for good: %', tenant, counts;
    RETURN counts;
END
$$;
REVOKE ALL ON FUNCTION purge_tenant(uuid) FROM PUBLIC;
"""


def upgrade() -> None:
    for script in (PURGING, guard_session(), TRIGGER, EVENTS, NO_CHANGE, CRITERIA, FEEDBACK, PURGE):
        run(script)
    for table in APPEND_ONLY:
        run(
            f"CREATE TRIGGER {table}_guard BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION guard_history()"
        )
    run("ALTER TABLE purges ENABLE ROW LEVEL SECURITY")


def downgrade() -> None:
    run("ALTER TABLE purges DISABLE ROW LEVEL SECURITY")
    run("DROP FUNCTION purge_tenant(uuid)")
    run(
        "DROP POLICY users_purged_seen ON users; DROP POLICY users_purged ON users; DROP POLICY tenants_purged ON tenants"
    )
    for table in APPEND_ONLY:
        run(f"DROP TRIGGER {table}_guard ON {table}")
    run("""
        DROP TRIGGER sessions_guard ON sessions;
        DROP TRIGGER session_events_added ON session_events;
        DROP TRIGGER session_events_guard ON session_events;
        DROP TRIGGER criteria_sets_guard ON criteria_sets;
        DROP TRIGGER feedback_begins ON feedback;
        DROP FUNCTION guard_session(), guard_new_events(), guard_event(), guard_history(), guard_criteria_set(),
            guard_new_feedback(), purging(uuid);
    """)
