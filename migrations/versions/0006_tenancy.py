"""The database keeps workspaces apart: who acts is told once per transaction, and no other rows exist."""

from migrations.helpers import run, tear_down, wall

revision = "0006_tenancy"
down_revision = "0005_people_and_keys"
branch_labels = depends_on = None

# Inlined into the policies, so that indexes that begin with tenant_id are used. A setting that was local to an earlier
# transaction reads as an empty text, not as null.
WHO_ACTS = """
CREATE FUNCTION app_tenant() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('app.tenant_id', true), '')::uuid $$;
CREATE FUNCTION app_user() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('app.user_id', true), '')::uuid $$;
CREATE FUNCTION app_role() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('app.role', true), '') $$;
REVOKE ALL ON FUNCTION app_tenant(), app_user(), app_role() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION app_tenant(), app_user(), app_role() TO upshot_app, upshot_door;
"""

READ, ADD, EDIT, REMOVE = "SELECT", "INSERT", "UPDATE", "DELETE"
EVERYTHING = (READ, ADD, EDIT, REMOVE)

# What the app may do with the tables of a workspace. What is archived, revoked or buried is never deleted, and what
# is append-only is neither changed nor deleted; session_events go with their session.
OF_TENANT = {
    "agent_versions": (READ, ADD),
    "agents": (READ, ADD, EDIT),
    "api_keys": (READ, ADD, EDIT),
    "audit_log": (READ, ADD),
    "chat_feedback": EVERYTHING,
    "chats": EVERYTHING,
    "criteria_sets": EVERYTHING,
    "entities": EVERYTHING,
    "entity_responses": EVERYTHING,
    "entity_types": (READ, ADD, EDIT),
    "feedback": EVERYTHING,
    "idempotency_keys": EVERYTHING,
    "login_sessions": EVERYTHING,
    "memberships": EVERYTHING,
    "messages": EVERYTHING,
    "one_time_links": EVERYTHING,
    "session_events": (READ, ADD),
    "sessions": EVERYTHING,
    "shared_context": (READ, ADD, EDIT),
    "shared_context_feedback": (READ, ADD, REMOVE),
    "shared_context_history": (READ, ADD),
    "shared_context_usage": (READ, ADD, EDIT),
    "tasks": EVERYTHING,
}
WITHOUT_TENANT = {
    "alembic_version": (READ,),
    "sign_in_attempts": EVERYTHING,
    "tenants": (READ, ADD, EDIT),
    "users": (READ, ADD, EDIT),
}

# A member sees, writes and retracts only what they said themselves. Sub-selects are evaluated once, not for each row.
OWN_OR_ALL = (
    "tenant_id = app_tenant() AND ((SELECT app_role()) IN ('admin', 'system') OR created_by = (SELECT app_user()))"
)
OWN_KEY = "key = nullif(current_setting('app.throttle_key', true), '')"

# The operator's commands name a workspace by its slug; the row of that one name is shown to whoever says it. PostgreSQL
# tries the policies for reading in the order of their names, last first: `tenants_own`, which nearly always decides, is
# the last of them, so that the function behind a later one is not called for every prompt.
TENANTS = """
ALTER TABLE tenants ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenants FORCE ROW LEVEL SECURITY;
CREATE POLICY tenants_own ON tenants FOR SELECT USING (id = app_tenant());
CREATE POLICY tenants_added ON tenants FOR INSERT WITH CHECK (id = app_tenant());
CREATE POLICY tenants_changed ON tenants FOR UPDATE USING (id = app_tenant()) WITH CHECK (id = app_tenant());
CREATE POLICY tenants_named ON tenants FOR SELECT USING (slug = nullif(current_setting('app.tenant_slug', true), ''));
"""

# People are not of one workspace. Whoever adds somebody sees the row in that transaction, before the membership that
# makes it visible is written: an INSERT that returns its defaults needs that.
IN_WORKSPACE = """(external_tenant_id = app_tenant()
        OR EXISTS (SELECT FROM memberships WHERE memberships.user_id = users.id AND memberships.tenant_id = app_tenant()))"""
USERS = f"""
ALTER TABLE users ENABLE ROW LEVEL SECURITY;
ALTER TABLE users FORCE ROW LEVEL SECURITY;
CREATE POLICY users_seen ON users FOR SELECT USING (id = app_user() OR {IN_WORKSPACE}
    OR (app_role() IN ('admin', 'system') AND app_tenant() IS NOT NULL AND created_at = now()));
CREATE POLICY users_added ON users FOR INSERT
    WITH CHECK (app_tenant() IS NOT NULL AND (app_role() IN ('admin', 'system') OR external_tenant_id = app_tenant()));
CREATE POLICY users_changed ON users FOR UPDATE
    USING (id = app_user() OR (app_role() = 'system' AND {IN_WORKSPACE}))
    WITH CHECK (id = app_user() OR (app_role() = 'system' AND {IN_WORKSPACE}));
"""


def upgrade() -> None:
    run(WHO_ACTS)
    for table in OF_TENANT:
        wall(table, OWN_OR_ALL if table == "feedback" else "tenant_id = app_tenant()")
    wall("sign_in_attempts", OWN_KEY)
    run(TENANTS)
    run(USERS)
    for table, rights in (OF_TENANT | WITHOUT_TENANT).items():
        run(f"GRANT {', '.join(rights)} ON {table} TO upshot_app")


def downgrade() -> None:
    for table in OF_TENANT | WITHOUT_TENANT:
        run(f"REVOKE ALL ON {table} FROM upshot_app")
    for table in (*OF_TENANT, "sign_in_attempts"):
        tear_down(table)
    for table, policies in {
        "users": ("seen", "added", "changed"),
        "tenants": ("own", "added", "changed", "named"),
    }.items():
        for policy in policies:
            run(f"DROP POLICY {table}_{policy} ON {table}")
        run(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY; ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
    run("DROP FUNCTION app_tenant(), app_user(), app_role()")
