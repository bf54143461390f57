"""The doors: what must look past the tenant. They hand out ids, never a text."""

from migrations.helpers import as_door, run

revision = "0007_doors"
down_revision = "0006_tenancy"
branch_labels = depends_on = None

# Which columns each door reads or writes. A column that is not named here cannot come out of a door.
SEEN = {
    "agents": "id, tenant_id, kind",
    "api_keys": "id, tenant_id, user_id, key_hash, expires_at, revoked_at",
    "chats": "id, tenant_id, last_message_at, search",
    "feedback": "id, tenant_id, status, created_by, created_at, search",
    "login_sessions": "id, tenant_id, user_id, token_hash, expires_at, revoked_at",
    "memberships": "tenant_id, user_id, created_at",
    "messages": "id, tenant_id, chat_id, created_at, search",
    "one_time_links": "id, tenant_id, user_id, token_hash, expires_at, used_at",
    "sessions": "id, tenant_id, agent_id, status, created_at, started_at, lease_until, attempt, search",
    "shared_context": "id, tenant_id, active, updated_at, search",
    "tasks": "id, tenant_id, enabled, next_run_at",
    "tenants": "id",
    "users": "id, email, erased_at",
}
CLAIMED = "status, lease_owner, lease_until, attempt, started_at"

SIGN_IN = """
CREATE FUNCTION door_key(hash text) RETURNS TABLE (key_id uuid, login_id uuid, user_id uuid, tenant_id uuid)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT k.id, NULL::uuid, k.user_id, k.tenant_id FROM api_keys AS k
     WHERE k.key_hash = hash AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
     UNION ALL
    SELECT NULL::uuid, l.id, l.user_id, l.tenant_id FROM login_sessions AS l
     WHERE l.token_hash = hash AND l.revoked_at IS NULL AND l.expires_at > now()
$$;
CREATE FUNCTION door_login(email text) RETURNS uuid
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT u.id FROM users AS u
     WHERE lower(u.email) = lower(door_login.email) AND u.email IS NOT NULL AND u.erased_at IS NULL
$$;
CREATE FUNCTION door_memberships(user_id uuid) RETURNS SETOF uuid
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT m.tenant_id FROM memberships AS m
     WHERE m.user_id = door_memberships.user_id ORDER BY m.created_at, m.tenant_id
$$;
CREATE FUNCTION door_invite(hash text) RETURNS TABLE (link_id uuid, tenant_id uuid, user_id uuid)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT l.id, l.tenant_id, l.user_id FROM one_time_links AS l
     WHERE l.token_hash = hash AND l.used_at IS NULL AND l.expires_at > now()
$$;
"""

# Agents of kind `external` run elsewhere: their pending sessions are not ours to run.
WORK = """
CREATE FUNCTION door_claim(owner text, n integer, lease interval)
    RETURNS TABLE (session_id uuid, tenant_id uuid, attempt integer)
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    WITH free AS (
        SELECT s.id FROM sessions AS s
          JOIN agents AS a ON a.tenant_id = s.tenant_id AND a.id = s.agent_id AND a.kind <> 'external'
         WHERE s.status IN ('pending', 'running') AND s.attempt < 3
           AND (s.lease_until < now() OR (s.status = 'pending' AND s.lease_until IS NULL))
         ORDER BY s.created_at, s.id LIMIT least(n, 1000)
           FOR NO KEY UPDATE OF s SKIP LOCKED
    )
    UPDATE sessions AS s
       SET status = 'running', lease_owner = owner, lease_until = clock_timestamp() + lease, attempt = s.attempt + 1,
           started_at = coalesce(s.started_at, clock_timestamp())
      FROM free WHERE s.id = free.id
    RETURNING s.id, s.tenant_id, s.attempt
$$;
CREATE FUNCTION door_due(at timestamptz) RETURNS TABLE (task_id uuid, tenant_id uuid)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT t.id, t.tenant_id FROM tasks AS t WHERE t.enabled AND t.next_run_at <= at ORDER BY t.next_run_at, t.id
$$;
CREATE FUNCTION door_counts()
    RETURNS TABLE (tenants bigint, sessions_pending bigint, sessions_running bigint, feedback_pending bigint, tasks_due bigint)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT (SELECT count(*) FROM tenants),
           (SELECT count(*) FROM sessions AS s WHERE s.status IN ('pending', 'running') AND s.status = 'pending'),
           (SELECT count(*) FROM sessions AS s WHERE s.status IN ('pending', 'running') AND s.status = 'running'),
           (SELECT count(*) FROM feedback AS f WHERE f.status = 'pending'),
           (SELECT count(*) FROM tasks AS t WHERE t.enabled AND t.next_run_at <= now())
$$;
"""

# Matching a text is not leakproof, so under a policy PostgreSQL would read every row of the workspace instead of the
# index. Here the tenant is a condition like any other. EXECUTE plans for the words at hand.
SEARCH = """
CREATE FUNCTION door_search(kind text, query text, n integer) RETURNS TABLE (id uuid)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    matching text := CASE kind
        WHEN 'feedback' THEN 'SELECT f.id FROM feedback AS f
            WHERE f.search @@ $1 AND f.tenant_id = $2 AND ($3 OR f.created_by = $4) ORDER BY f.created_at DESC, f.id DESC'
        WHEN 'sessions' THEN 'SELECT s.id FROM sessions AS s
            WHERE s.search @@ $1 AND s.tenant_id = $2 ORDER BY s.created_at DESC, s.id DESC'
        WHEN 'chats' THEN 'SELECT c.id FROM chats AS c
            WHERE c.search @@ $1 AND c.tenant_id = $2 ORDER BY c.last_message_at DESC, c.id DESC'
        WHEN 'messages' THEN 'SELECT m.chat_id FROM messages AS m
            WHERE m.search @@ $1 AND m.tenant_id = $2 GROUP BY m.chat_id ORDER BY max(m.created_at) DESC, m.chat_id DESC'
        WHEN 'knowledge' THEN 'SELECT k.id FROM shared_context AS k
            WHERE k.search @@ $1 AND k.tenant_id = $2 ORDER BY k.updated_at DESC, k.id DESC'
    END;
BEGIN
    IF matching IS NULL THEN
        RAISE EXCEPTION 'There is no search for %.', kind USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN QUERY EXECUTE matching || ' LIMIT $5'
        USING websearch_to_tsquery('english', query), app_tenant(), coalesce(app_role() IN ('admin', 'system'), false),
              app_user(), greatest(least(n, 1000), 0);
END
$$;
"""

DOORS = (
    "door_key(text)", "door_login(text)", "door_memberships(uuid)", "door_invite(text)",
    "door_claim(text, integer, interval)", "door_due(timestamptz)", "door_counts()", "door_search(text, text, integer)",
)  # fmt: skip

# Signs a request in and binds it in one round trip. It runs with the caller's rights: past the door everything is read
# under the policies of the workspace it just bound. What is bound here is what Actor.bound_role would bind.
BIND_CREDENTIAL = """
CREATE FUNCTION bind_credential(hash text)
    RETURNS TABLE (kind text, credential_id uuid, user_id uuid, tenant_id uuid, role text, scopes text[], name text,
                   email text, tenant_name text, tenant_slug text, seen_at timestamptz)
    LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    found_key record;
    answer record;
    bound text;
BEGIN
    SELECT * INTO found_key FROM door_key(hash) AS d;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM set_config('app.tenant_id', found_key.tenant_id::text, true),
            set_config('app.user_id', found_key.user_id::text, true), set_config('app.role', 'member', true);
    SELECT m.role, k.scopes, u.name, u.email, t.name AS tenant_name, t.slug AS tenant_slug, l.seen_at INTO answer
      FROM memberships AS m
      JOIN users AS u ON u.id = m.user_id AND u.erased_at IS NULL
      JOIN tenants AS t ON t.id = m.tenant_id
      LEFT JOIN api_keys AS k ON k.tenant_id = m.tenant_id AND k.id = found_key.key_id
      LEFT JOIN login_sessions AS l ON l.tenant_id = m.tenant_id AND l.id = found_key.login_id
     WHERE m.tenant_id = found_key.tenant_id AND m.user_id = found_key.user_id;
    IF NOT FOUND THEN
        PERFORM set_config('app.tenant_id', '', true), set_config('app.user_id', '', true), set_config('app.role', '', true);
        RETURN;
    END IF;
    bound := CASE WHEN answer.role = 'system' THEN 'system'
                  WHEN answer.role IN ('admin', 'owner') AND (answer.scopes IS NULL OR 'admin' = ANY (answer.scopes)) THEN 'admin'
                  ELSE 'member' END;
    PERFORM set_config('app.role', bound, true);
    RETURN QUERY SELECT CASE WHEN found_key.key_id IS NULL THEN 'login' ELSE 'key' END,
        coalesce(found_key.key_id, found_key.login_id), found_key.user_id, found_key.tenant_id, answer.role::text,
        answer.scopes::text[], answer.name::text, answer.email::text, answer.tenant_name::text, answer.tenant_slug::text,
        answer.seen_at::timestamptz;
END
$$;
REVOKE ALL ON FUNCTION bind_credential(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION bind_credential(text) TO upshot_app;
"""


def upgrade() -> None:
    for table, columns in SEEN.items():
        run(f"GRANT SELECT ({columns}) ON {table} TO upshot_door")
        run(f"CREATE POLICY {table}_door ON {table} FOR SELECT TO upshot_door USING (true)")
    run(f"GRANT UPDATE ({CLAIMED}) ON sessions TO upshot_door")
    run("CREATE POLICY sessions_claim ON sessions FOR UPDATE TO upshot_door USING (true)")
    with as_door():
        for functions in (SIGN_IN, WORK, SEARCH):
            run(functions)
        run(f"REVOKE ALL ON FUNCTION {', '.join(DOORS)} FROM PUBLIC")
        run(f"GRANT EXECUTE ON FUNCTION {', '.join(DOORS)} TO upshot_app")
        run("GRANT EXECUTE ON FUNCTION door_memberships(uuid) TO upshot_owner")
    run("""CREATE POLICY tenants_joined ON tenants FOR SELECT TO upshot_app
               USING (id IN (SELECT door_memberships(app_user())))""")
    run(BIND_CREDENTIAL)


def downgrade() -> None:
    run("DROP FUNCTION bind_credential(text)")
    run("DROP POLICY tenants_joined ON tenants")
    with as_door():
        run(f"DROP FUNCTION {', '.join(DOORS)}")
    run("DROP POLICY sessions_claim ON sessions")
    run(f"REVOKE UPDATE ({CLAIMED}) ON sessions FROM upshot_door")
    for table, columns in SEEN.items():
        run(f"DROP POLICY {table}_door ON {table}")
        run(f"REVOKE SELECT ({columns}) ON {table} FROM upshot_door")
